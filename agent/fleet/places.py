"""Where a task is done, and what it changed there: a git worktree of a directory, the directory
itself, or a clone; a container sees such a place, or an empty one, as its own.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ...tools.system.environment import child_environment
from ...tools.system.files import copy_private, write_private
from ..errors import CtxagentError
from ..worktree.git import safe_git_environment
from ..worktree.linked import OF_ANOTHER_REPOSITORY
from .ledger import TaskFolder
from .manifest import Task

GIT_TIMEOUT_S = 1_800
MAX_SAID_CHARS = 300  # of what git says when it fails

# No hook and no program that a repository names is run.
_SETTINGS = ("core.hooksPath=/dev/null", "core.fsmonitor=false", "submodule.recurse=false")


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
        commit = _Git(place, environ).output("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
        if commit is None and source is None and task.worktree:
            hint = 'Make one there, or let the task work in it: "worktree": false.'
            raise PlaceError(f"{place} is no git repository with a commit", hint=hint)
        write_private(folder.base, (commit or "").encode())
    return place


def write_patch(place: Path, folder: TaskFolder, environ: Mapping[str, str]) -> int | None:
    """Write what the files of a place differ by from the commit that its task began at, files that
    git does not know included, and return its size; None outside of a repository. The index of the
    place stays as it is. Raises PlaceError and OSError."""
    base = folder.base.read_text() if folder.base.exists() else ""
    if not base:
        return None
    with tempfile.TemporaryDirectory(dir=folder.path) as scratch:
        own = Path(scratch, "index")
        git = _Git(place, environ)
        index = git.output("rev-parse", "--path-format=absolute", "--git-path", "index")
        if index is None:
            return None
        if Path(index).exists():
            copy_private(Path(index), own)
        git.env["GIT_INDEX_FILE"] = str(own)
        git.run("cannot look for new files", "add", "--intent-to-add", "--", ":/")
        patch = git.run("cannot compare", "diff", "--binary", "--no-ext-diff", "--no-textconv",
                        "--no-color", base)  # fmt: skip
    write_private(folder.patch, patch)
    return len(patch)


def _clone(source: str, commit: str | None, place: Path, environ: Mapping[str, str]) -> None:
    """Make a clone, whole or not at all. Raises PlaceError."""
    part = place.with_name(f"{place.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    outside = _Git(place.parent, environ, fetches=True)
    outside.run(f"cannot clone {source}",
                "clone", "--quiet", "--no-checkout", "--", source, str(part))  # fmt: skip
    wanted = commit or "HEAD"
    inside = _Git(part, environ)
    if not commit and inside.output("rev-parse", "--verify", "--quiet", "HEAD^{commit}") is None:
        raise PlaceError(f"the repository {source} has no commit", hint="Make the first one there.")
    if commit and inside.output("rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}") is None:
        fetching = _Git(part, environ, fetches=True)
        fetching.run(f"{source} has no commit {commit}", "fetch", "--quiet", "origin", commit)
        wanted = "FETCH_HEAD"
    inside.run(f"cannot check {wanted} of {source} out", "checkout", "--quiet", "--detach", wanted)
    part.rename(place)


class _Git:
    """Runs git in a place, without a program that a repository there names."""

    def __init__(self, place: Path, environ: Mapping[str, str], *, fetches: bool = False) -> None:
        """Raises PlaceError where there is no git, or the repository would have it look elsewhere.
        With `fetches` it may ask other machines."""
        env = {k: v for k, v in environ.items() if k not in OF_ANOTHER_REPOSITORY}
        env = child_environment(env)
        try:
            self.env = dict(env) if fetches else safe_git_environment(place, env)
        except OSError as error:
            raise PlaceError(f"{place}: {error.strerror}") from None
        self.env["LC_ALL"] = "C"
        self._place = place

    def output(self, *words: str) -> str | None:
        """Return what a command prints, None where it fails."""
        try:
            return os.fsdecode(self.run("", *words)).strip()
        except PlaceError:
            return None

    def run(self, failed: str, *words: str) -> bytes:
        """Return what a command prints. Raises PlaceError that begins with `failed`."""
        settings = [part for setting in _SETTINGS for part in ("-c", setting)]
        try:
            done = subprocess.run(
                ["git", *settings, *words],
                cwd=self._place,
                env=self.env,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=GIT_TIMEOUT_S,
            )
        except FileNotFoundError:
            raise PlaceError(f"{failed}: git is not installed") from None
        except (OSError, subprocess.TimeoutExpired) as error:
            raise PlaceError(f"{failed}: {error}") from None
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip()[-MAX_SAID_CHARS:]
            raise PlaceError(f"{failed}: {said}")
        return done.stdout
