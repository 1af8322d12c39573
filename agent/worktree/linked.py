"""`--worktree NAME`: a separate git worktree for a session, next to the checkout, kept afterwards.

It is at `../<checkout>-worktrees/NAME`, outside the view of `git status` and of tools in the
checkout, on the branch `ctxagent/NAME`. Creating it runs no hook or filter of the repository.
"""

import os
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from ...tools.system.git_links import current_branch
from ..errors import UsageError
from ..lazy import dataclass, regex
from .git import GitRunner

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
            raise UsageError(f"--worktree: {error.strerror}") from None

    def output(self, *arguments: str) -> str:
        """Return the output of a command. Raises UsageError with git's error message."""
        try:
            return os.fsdecode(self.run(*arguments)).rstrip("\n")
        except OSError as error:
            why = f"git {arguments[0]} failed: {error.strerror}"
            raise UsageError(f"--worktree: {why}") from None

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
