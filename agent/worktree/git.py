"""The project's git repository. Its configuration is untrusted: programs that it names are not
started, and they would find no secret in the environment.
"""

import errno
import os
import stat
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ...tools.system.environment import git_variables
from ...tools.system.git_links import current_branch, first_outside_link
from ...tools.system.programs import own_environment, program
from ..errors import UsageError
from ..lazy import dataclass, regex

NOT_INSTALLED = "Git: not installed"
NO_REPOSITORY = "Git: not a repository"
MAX_CHANGED_FILES = 40  # changed files that are named
RUN_TIMEOUT_S = 1_800  # long, because a command may copy a whole repository
MAX_SAID_CHARS = 500  # of git's error message

_HARMLESS = {
    "core.fsmonitor": "false",
    "log.showSignature": "false",
    "safe.bareRepository": "explicit",  # ignore bare repositories inside a work tree
    "status.relativePaths": "false",
}
_QUIET = ("core.hooksPath=/dev/null", "core.fsmonitor=false", "submodule.recurse=false")
# Variables that point git to another repository than the one in its folder.
_OF_ANOTHER_REPOSITORY = frozenset(
    ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY")
)
_NO_FETCH = {"GIT_ALLOW_PROTOCOL": "none"}  # a partial clone can name a program for fetching


def git_program(env: Mapping[str, str]) -> str:
    """Return the path of the trusted git program, or "" if there is none."""
    return program("git", env.get("PATH"))


def describe_repository(cwd: Path, env: Mapping[str, str]) -> str:
    """Describe the branch, newest commits and changed files in a few lines for the model. `env` is
    the environment of the model's commands: git does not get variables that are missing there.
    """
    path = git_program(env)
    if not path:
        return NOT_INSTALLED
    if not _has_work_tree(cwd):
        return NO_REPOSITORY
    if astray := first_outside_link(cwd):
        return f"Git: not looked at: {astray}"
    env = {**own_environment(env), **_NO_FETCH, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    try:
        env |= git_variables({**_HARMLESS, **_no_filters(path, cwd, env)}, env)
        return _describe(path, cwd, env)
    except OSError:
        return f"Git: {cwd}, unreadable"


def _has_work_tree(cwd: Path) -> bool:
    """Return True if the nearest repository has files: a bare one and a `.git` folder have none."""
    for folder in (cwd, *cwd.parents):
        inner = folder / ".git"
        if os.path.isfile(inner) or _is_git_folder(inner):  # noqa: PTH113 (it never raises)
            return True
        if _is_git_folder(folder):
            return False
    return False


def _is_git_folder(folder: Path) -> bool:
    """Return True if git would take a folder for the data of a repository."""
    return all(os.path.lexists(folder / name) for name in ("HEAD", "objects", "refs"))


def _describe(path: str, cwd: Path, env: Mapping[str, str]) -> str:
    """Describe a repository. Raises OSError with git's error message."""
    # Without `dirty`, git would run in nested repositories and read their settings.
    words = ("status", "--short", "--branch", "--ignore-submodules=dirty")
    branch, *changed = os.fsdecode(_run(path, words, cwd, env)).splitlines()
    lines = [f"Git branch: {branch.removeprefix('## ')}"]
    lines += ["Changed files:", *changed[:MAX_CHANGED_FILES]] if changed else ["Work tree: clean"]
    if len(changed) > MAX_CHANGED_FILES:
        lines.append(f"… and {len(changed) - MAX_CHANGED_FILES} more")
    with suppress(OSError):  # before the first commit
        newest = _run(path, ("log", "-5", "--format=%h %s"), cwd, env)
        lines.append("Newest commits:")
        lines += [line[:100] for line in os.fsdecode(newest).splitlines()]
    return "\n".join(lines)


def _run(
    path: str,
    words: Sequence[str],
    cwd: Path,
    env: Mapping[str, str],
    given: bytes = b"",
    seconds: float = RUN_TIMEOUT_S,
) -> bytes:
    """Run git in a folder and return its output; `given` is its input. Raises OSError with git's
    error message.
    """
    try:
        done = subprocess.run(
            [path, *words], cwd=cwd, env=env, input=given, capture_output=True, timeout=seconds
        )
    except subprocess.TimeoutExpired as error:
        raise OSError(errno.ETIMEDOUT, str(error)) from None
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip()
        raise OSError(errno.EIO, said[-MAX_SAID_CHARS:])
    return done.stdout


def safe_git_environment(cwd: Path, env: Mapping[str, str]) -> dict[str, str]:
    """Return `env` with settings that stop git from running the repository's filters and from
    fetching. Raises OSError if git is missing or the repository points to another folder.
    """
    env = own_environment(env)
    path = git_program(env)
    if not path:
        raise FileNotFoundError(errno.ENOENT, "git is not installed")
    if astray := first_outside_link(cwd):
        raise PermissionError(errno.EACCES, f"{astray}, out of the repository")
    return {**env, **_NO_FETCH, **git_variables(_no_filters(path, cwd, env), env)}


class GitRunner:
    """Runs git commands in a folder, without the hooks and programs that a repository there
    names.
    """

    def __init__(
        self,
        folder: Path,
        env: Mapping[str, str],
        *,
        fetches: bool = False,
        seconds: float = RUN_TIMEOUT_S,
    ) -> None:
        """With `fetches`, git may access the network. After `seconds`, a command is killed. Raises
        OSError if git is missing or the repository points to another folder.
        """
        env = {name: value for name, value in env.items() if name not in _OF_ANOTHER_REPOSITORY}
        self._folder, self._program, self._seconds = folder, git_program(env), seconds
        if not self._program:
            raise FileNotFoundError(errno.ENOENT, "git is not installed")
        self.env = {**(env if fetches else safe_git_environment(folder, env)), "LC_ALL": "C"}

    def find(self, *words: str, given: bytes = b"") -> str | None:
        """Return the output of a command, or None if it fails."""
        with suppress(OSError):
            return os.fsdecode(self.run(*words, given=given)).strip()
        return None

    def run(self, *words: str, given: bytes = b"") -> bytes:
        """Return the output of a command; `given` is its input. Raises OSError with git's error
        message.
        """
        settings = [part for setting in _QUIET for part in ("-c", setting)]
        words = (*settings, *words)
        return _run(self._program, words, self._folder, self.env, given, self._seconds)


def _no_filters(path: str, cwd: Path, env: Mapping[str, str]) -> dict[str, str]:
    """Return settings that disable every filter: `git status` would run the `clean` filters. Raises
    OSError.
    """
    options = ("config", "--null", "--name-only", "--get-regexp", r"^filter\.")
    done = subprocess.run([path, *options], cwd=cwd, env=env, capture_output=True)
    names = os.fsdecode(done.stdout).split("\0")  # git fails if there are none
    return dict.fromkeys(filter(None, names), "")


BRANCH_PREFIX = "ctxagent/"
NAME_HINT = "Give up to 64 letters, digits, dots, - and _, beginning with a letter or digit."

_NAME = regex(r"(?!.*\.\.)[A-Za-z0-9][A-Za-z0-9._-]{0,63}(?<!\.lock)(?<!\.)")


@dataclass(frozen=True, slots=True)
class LinkedWorktree:
    """An existing worktree."""

    path: Path  # its top folder
    folder: Path  # the folder in it that corresponds to the requesting folder
    checkout: Path  # top folder of the requesting checkout
    is_new: bool

    @property
    def branch(self) -> str:
        """The checked-out branch, or the commit."""
        return current_branch(self.path)


def open_worktree(
    cwd: Path, name: str, env: Mapping[str, str], lock: Callable[[Path], None]
) -> LinkedWorktree:
    """Return the worktree NAME of the repository that contains `cwd`, and create it if it is
    missing. Blocks.

    `lock` is called with the worktree's path before anything is created; its exceptions are passed
    on. Raises UsageError for a bad name, outside a repository, without a commit, or if git cannot
    create the worktree. Nothing is left behind then.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(f"--worktree {name!r} is not a valid name", hint=NAME_HINT)
    git = _Git(cwd, env)
    if git.find("rev-parse", "--is-inside-work-tree") != "true":
        hint = "Change to a checkout, or create one: git init, then a first commit."
        raise UsageError(f"--worktree: {cwd} is not in a git checkout", hint=hint)
    if git.find("rev-parse", "--verify", "--quiet", "HEAD^{commit}") is None:
        hint = "Create the first commit: git commit."
        raise UsageError("--worktree: the repository has no commit yet", hint=hint)
    checkout, holder, inner = git.places(cwd)
    path = holder / name
    lock(path)
    is_new = git.prepare(path, BRANCH_PREFIX + name)
    below = path / inner
    return LinkedWorktree(path, below if below.is_dir() else path, checkout, is_new)


def worktrees_folder(cwd: Path, env: Mapping[str, str]) -> tuple[Path, Path]:
    """Return the folder of the worktrees of the repository that contains `cwd`, and the folder
    inside such a worktree that corresponds to `cwd`. Raises UsageError.
    """
    git = _Git(cwd, env)
    _, holder, inner = git.places(cwd)
    is_kept = git.find("rev-parse", "--verify", "--quiet", "HEAD:./") is not None
    return holder, inner if is_kept else Path()


class _Git(GitRunner):
    """Git in the repository that contains a folder."""

    def __init__(self, cwd: Path, env: Mapping[str, str]) -> None:
        try:
            super().__init__(cwd, env)
        except OSError as error:
            raise UsageError(
                f"--worktree: {error.strerror}", hint="Install git, or leave out --worktree."
            ) from None

    def output(self, *arguments: str) -> str:
        """Return the output of a command. Raises UsageError with git's error message."""
        try:
            return os.fsdecode(self.run(*arguments)).rstrip("\n")
        except OSError as error:
            why = f"git {arguments[0]} failed: {error.strerror}"
            raise UsageError(
                f"--worktree: {why}", hint="Correct the repository, or leave out --worktree."
            ) from None

    def places(self, cwd: Path) -> tuple[Path, Path, Path]:
        """Return the top folder of the checkout that contains `cwd`, the folder for its worktrees,
        and the path of `cwd` in the checkout. Raises UsageError.
        """
        checkout = Path(self.output("rev-parse", "--show-toplevel"))
        main = self.main_checkout(checkout)
        inner = Path(os.path.realpath(cwd)).relative_to(os.path.realpath(checkout))
        return checkout, main.parent / f"{main.name}-worktrees", inner

    def main_checkout(self, checkout: Path) -> Path:
        """Return the main checkout of the repository, which differs from `checkout` if that is a
        worktree.
        """
        own, common = self.output(
            "rev-parse", "--path-format=absolute", "--git-dir", "--git-common-dir"
        ).split("\n")
        return checkout if own == common else next(iter(self._worktrees()))

    def prepare(self, path: Path, branch: str) -> bool:
        """Create the worktree if it is missing, and return True if it was created. Raises
        UsageError.
        """
        known = self._worktrees()
        real = Path(os.path.realpath(path))
        if real in known and path.is_dir() and not path.is_symlink():
            return False
        if real in known:
            hint = "Remove it from the list: git worktree prune."
            raise UsageError(f"--worktree: {path} is missing, but git still lists it", hint=hint)
        if os.path.lexists(path):
            hint = "Move it away, or choose another name."
            raise UsageError(f"--worktree: {path} exists and is not a worktree", hint=hint)
        for other, there in known.items():
            if there == branch:
                hint = "Work there, or choose another name."
                raise UsageError(f"--worktree: {branch} is checked out in {other}", hint=hint)
        self._make(path, branch)
        return True

    def _make(self, path: Path, branch: str) -> None:
        is_holder_new = _make_worktrees_folder(path.parent)
        has_branch = (
            self.find("show-ref", "--verify", "--quiet", f"refs/heads/{branch}") is not None
        )
        begin = [str(path), branch] if has_branch else ["-b", branch, str(path), "HEAD"]
        try:
            self.output("worktree", "add", "--quiet", *begin)
        except UsageError:
            self.find("worktree", "prune")
            if not has_branch:
                self.find("branch", "--delete", "--force", branch)
            if is_holder_new:
                with suppress(OSError):
                    path.parent.rmdir()
            raise

    def _worktrees(self) -> dict[Path, str]:
        """Return the worktrees of the repository with their branches, the main checkout first."""
        found = dict[Path, str]()
        for part in self.output("worktree", "list", "--porcelain").split("\n\n"):
            facts = dict(line.partition(" ")[::2] for line in part.split("\n"))
            place = Path(os.path.realpath(facts.get("worktree", "")))
            found[place] = facts.get("branch", "").removeprefix("refs/heads/")
        return found


def _make_worktrees_folder(folder: Path) -> bool:
    """Create the folder for worktrees, and return True if it was created. Raises UsageError if that
    fails or if other users own or can write to the folder.
    """
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        found = folder.lstat()
        own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
        if not own or found.st_mode & stat.S_IWOTH:
            hint = "Move it away: no other user may write to the folder of worktrees."
            raise UsageError(
                f"--worktree: other users own or can write to {folder}", hint=hint
            ) from None
        return False
    except OSError as error:
        hint = (
            "Worktrees are next to the checkout: make that folder writable, or move the checkout."
        )
        raise UsageError(f"--worktree: cannot make {folder}: {error.strerror}", hint=hint) from None
    return True
