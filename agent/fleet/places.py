"""Where a task is done, and what it changed there: a git worktree of a directory, the directory
itself, or a clone; a container sees such a place, or an empty one, as its own.
"""

import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ...tools.system.environment import child_environment
from ...tools.system.files import copy_private, write_private
from ..errors import CtxagentError
from ..session.store import Project
from ..worktree.git import GitRunner
from ..worktree.linked import worktree_holder
from .ledger import TaskFolder
from .manifest import Task

PROJECT_CACHES = ("worktree.git", "worktree", "touched", "index.db", "index.db-wal",
                  "index.db-shm", "index.lock", "sessions.json")  # fmt: skip
SESSION_CACHES = ("worktree.index", "resume.json", "resume.stat")
MAX_NAME_CHARS = 57  # of a task's id in the name of its worktree


class PlaceError(CtxagentError):
    """A task's place cannot be made."""


def prepare(task: Task, folder: TaskFolder, environ: Mapping[str, str]) -> Path:
    """Return the directory in which the agent of a task is started; make it where it is a clone or
    empty. The commit that the task begins from is kept in its folder, once. Raises PlaceError."""
    source = task.git
    if task.image is not None and task.worktree:
        source = source or task.dir  # a worktree would need its repository beside it
    place = folder.place
    if source is not None:
        if not place.exists():
            _clone(source, task.commit, place, environ)
    elif task.dir is None:
        place.mkdir(mode=0o700, exist_ok=True)
        return place
    else:
        place = Path(task.dir)
        if not place.is_dir():
            raise PlaceError(f"there is no directory {place}")
    if not folder.base.exists():
        commit = _git(place, environ).find("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
        if commit is None and source is None and task.worktree:
            hint = 'Make one there, or let the task work in it: "worktree": false.'
            raise PlaceError(f"{place} is no git repository with a commit", hint=hint)
        write_private(folder.base, (commit or "").encode())
    return place


def worktree_name(folder: TaskFolder) -> str:
    """Return the name of the worktree of a task."""
    return f"{folder.id[:MAX_NAME_CHARS].replace('@', '-')}-{folder.session[-6:]}"


class ExpectedPlaces:
    """Where the sessions of tasks will be. Git is asked once for each directory."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._holders: dict[str, tuple[Path, Path] | None] = {}

    def log(self, task: Task, folder: TaskFolder) -> Path | None:
        """Return where the log of a task's session will be, None where that is not known."""
        cwd: Path | None = folder.place
        if task.image is None and task.dir is not None:
            cwd = self._worktree(task.dir, folder) if task.worktree else Path(task.dir)
        elif task.dir is not None and not task.worktree:
            cwd = Path(task.dir)  # which the container sees
        if cwd is None:
            return None
        return Project(folder.state_of(task.image), cwd).log_for_task(folder.session)

    def _worktree(self, directory: str, folder: TaskFolder) -> Path | None:
        if directory not in self._holders:
            self._holders[directory] = None
            with suppress(CtxagentError):
                env = child_environment(self._environ)
                self._holders[directory] = worktree_holder(Path(directory), env)
        if (found := self._holders[directory]) is None:
            return None
        holder, below = found
        return holder / worktree_name(folder) / below


def write_patch(place: Path, folder: TaskFolder, environ: Mapping[str, str]) -> int | None:
    """Write what the files of a place differ by from the commit that its task began at, files that
    git does not know included, and return its size; None outside of a repository. The index of the
    place stays as it is. Raises PlaceError and OSError."""
    base = folder.base.read_text() if folder.base.exists() else ""
    if not base:
        return None
    with tempfile.TemporaryDirectory(dir=folder.path) as scratch:
        own = Path(scratch, "index")
        git = _git(place, environ)
        index = git.find("rev-parse", "--path-format=absolute", "--git-path", "index")
        if index is None:
            return None
        if Path(index).exists():
            copy_private(Path(index), own)
        git.env["GIT_INDEX_FILE"] = str(own)
        _run(git, "cannot look for new files", "add", "--intent-to-add", "--", ":/")
        patch = _run(git, "cannot compare", "diff", "--binary", "--no-ext-diff", "--no-textconv",
                        "--no-color", base)  # fmt: skip
    write_private(folder.patch, patch)
    return len(patch)


def remove_caches(log: Path) -> None:
    """Remove what a session that is done has next to its log and its conversation, in a project of
    its own: caches, locks, and the snapshots of files, which the place and the patch stand for."""
    project = log.parents[2]
    with suppress(OSError):
        if [path.name for path in log.parents[1].iterdir()] != [log.parent.name]:
            return  # tasks may share a directory
        for name in PROJECT_CACHES:
            path = project / name
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        for name in SESSION_CACHES:
            (log.parent / name).unlink(missing_ok=True)


def _clone(source: str, commit: str | None, place: Path, environ: Mapping[str, str]) -> None:
    """Make a clone, whole or not at all. Raises PlaceError."""
    part = place.with_name(f"{place.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    outside = _git(place.parent, environ, fetches=True)
    _run(outside, f"cannot clone {source}",
                "clone", "--quiet", "--no-checkout", "--", source, str(part))  # fmt: skip
    wanted = commit or "HEAD"
    inside = _git(part, environ)
    if not commit and inside.find("rev-parse", "--verify", "--quiet", "HEAD^{commit}") is None:
        raise PlaceError(f"the repository {source} has no commit", hint="Make the first one there.")
    if commit and inside.find("rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}") is None:
        fetching = _git(part, environ, fetches=True)
        _run(fetching, f"{source} has no commit {commit}", "fetch", "--quiet", "origin", commit)
        wanted = "FETCH_HEAD"
    _run(
        inside, f"cannot check {wanted} of {source} out", "checkout", "--quiet", "--detach", wanted
    )
    part.rename(place)


def _git(place: Path, environ: Mapping[str, str], *, fetches: bool = False) -> GitRunner:
    """Return git for a place. Raises PlaceError."""
    try:
        return GitRunner(place, child_environment(environ), fetches=fetches)
    except OSError as error:
        raise PlaceError(f"{place}: {error.strerror}") from None


def _run(git: GitRunner, failed: str, *words: str) -> bytes:
    """Return what a command prints. Raises PlaceError that begins with `failed`."""
    try:
        return git.run(*words)
    except OSError as error:
        raise PlaceError(f"{failed}: {error.strerror}") from None
