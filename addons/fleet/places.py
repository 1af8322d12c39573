"""The working directories of tasks and the patches of their changes: a git worktree of a directory,
the directory itself, or a clone. A container has a clone, a directory or an empty folder mounted.
"""

import hashlib
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ...api.base import CtxagentError
from ...api.files import GitRunner, copy_private, worktrees_folder, write_private
from ...api.programs import child_environment
from ...api.record import Project
from .ledger import TaskFolder
from .manifest import Task

PROJECT_CACHES = ("worktree.git", "worktree", "touched", "index.db", "index.db-wal",
                  "index.db-shm", "index.lock", "sessions.json")  # fmt: skip
SESSION_CACHES = ("worktree.index", "resume.json", "resume.stat")
MAX_NAME_CHARS = 57  # characters of the task's ID in the name of its worktree


class PlaceError(CtxagentError):
    """A task's working directory cannot be created."""


def prepare(task: Task, folder: TaskFolder, environ: Mapping[str, str]) -> Path:
    """Return the directory in which a task's agent starts; create it if it is a clone or empty. The
    commit from which the task starts is stored once in the task's folder. Raises PlaceError.
    """
    source = task.git
    if task.image is not None and task.worktree:
        source = source or task.dir  # a worktree would not work without its repository
    place = start_of(task, folder)
    if source is not None:
        if not place.exists():
            _clone(source, task.commit, place, environ)
    elif task.dir is None:
        place.mkdir(mode=0o700, exist_ok=True)
        return place
    elif not place.is_dir():
        raise PlaceError(f"there is no directory {place}")
    if not folder.base.exists():
        commit = _git(place, environ).find("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
        if commit is None and source is None and task.worktree:
            hint = 'Make a commit, or add "worktree": false to work in the directory itself.'
            raise PlaceError(f"{place} is not a git repository with a commit", hint=hint)
        write_private(folder.base, (commit or "").encode())
    return place


def start_of(task: Task, folder: TaskFolder) -> Path:
    """Return the directory in which a task's agent starts. It may create a worktree of it."""
    is_cloned = task.git is not None or (task.image is not None and task.worktree)
    return folder.place if is_cloned or task.dir is None else Path(task.dir)


def worktree_name(folder: TaskFolder) -> str:
    """Return the name of a task's worktree."""
    return f"{folder.id[:MAX_NAME_CHARS].replace('@', '-')}-{folder.session[-6:]}"


class ExpectedPlaces:
    """The expected paths of task sessions. Git runs once for each directory."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._holders: dict[str, tuple[Path, Path] | None] = {}

    def log(self, task: Task, folder: TaskFolder) -> Path | None:
        """Return the expected path of the log of a task's session, or None if unknown."""
        cwd: Path | None = folder.place
        if task.image is None and task.dir is not None:
            cwd = self._worktree(task.dir, folder) if task.worktree else Path(task.dir)
        elif task.dir is not None and not task.worktree:
            cwd = Path(task.dir)  # mounted in the container
        if cwd is None:
            return None
        return Project(folder.state_of(task.image), cwd).log_for_task(folder.session)

    def _worktree(self, directory: str, folder: TaskFolder) -> Path | None:
        if directory not in self._holders:
            self._holders[directory] = None
            with suppress(CtxagentError):
                env = child_environment(self._environ)
                self._holders[directory] = worktrees_folder(Path(directory), env)
        if (found := self._holders[directory]) is None:
            return None
        holder, below = found
        return holder / worktree_name(folder) / below


def write_patch(place: Path, folder: TaskFolder, environ: Mapping[str, str]) -> int | None:
    """Write the patch of a directory to the task's folder; return its size, or None outside a
    repository. Raises PlaceError and OSError.
    """
    patch = diff_of(place, folder, environ)
    if patch is None:
        return None
    write_private(folder.patch, patch)
    return len(patch)


def diff_of(place: Path, folder: TaskFolder, environ: Mapping[str, str]) -> bytes | None:
    """Return the diff between the task's base commit and the files in a directory, including
    untracked files, or None outside a repository. The index is not changed. Raises PlaceError and
    OSError.
    """
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
        return _run(git, "cannot compare", "diff", "--binary", "--no-ext-diff", "--no-textconv",
                    "--no-color", base)  # fmt: skip


def digest_of(patch: bytes) -> str:
    """Return a digest of a diff."""
    return hashlib.sha256(patch).hexdigest()


def remove_caches(log: Path) -> None:
    """Remove caches, locks and file snapshots of a finished session, if its project has no other
    session. The log and the conversation are kept; the working directory and the patch replace the
    snapshots.
    """
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
    """Create a clone at `place`. After a failure, nothing is there. Raises PlaceError."""
    part = place.with_name(f"{place.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    outside = _git(place.parent, environ, fetches=True)
    _run(outside, f"cannot clone {source}",
                "clone", "--quiet", "--no-checkout", "--", source, str(part))  # fmt: skip
    wanted = commit or "HEAD"
    inside = _git(part, environ)
    if not commit and inside.find("rev-parse", "--verify", "--quiet", "HEAD^{commit}") is None:
        raise PlaceError(f"the repository {source} has no commit", hint="Make a commit there.")
    if commit and inside.find("rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}") is None:
        fetching = _git(part, environ, fetches=True)
        _run(fetching, f"{source} has no commit {commit}", "fetch", "--quiet", "origin", commit)
        wanted = "FETCH_HEAD"
    _run(
        inside, f"cannot check out {wanted} of {source}", "checkout", "--quiet", "--detach", wanted
    )
    part.rename(place)


def _git(place: Path, environ: Mapping[str, str], *, fetches: bool = False) -> GitRunner:
    """Return a git runner for a directory. Raises PlaceError."""
    try:
        return GitRunner(place, child_environment(environ), fetches=fetches)
    except OSError as error:
        raise PlaceError(f"{place}: {error.strerror}") from None


def _run(git: GitRunner, failed: str, *words: str) -> bytes:
    """Return the output of a git command. Raises PlaceError with a message that begins with
    `failed`.
    """
    try:
        return git.run(*words)
    except OSError as error:
        raise PlaceError(f"{failed}: {error.strerror}") from None
