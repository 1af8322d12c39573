"""Read the checked-out branch of a git repository without git."""

from pathlib import Path

from .files import open_kept

MAX_HEAD_BYTES = 8_192


def current_branch(cwd: Path) -> str:
    """Return the branch checked out at `cwd`, or its commit; "" outside a repository."""
    for folder in (cwd, *cwd.parents):
        git = folder / ".git"
        try:
            if git.is_file():  # a worktree: the file contains the path of the git folder
                named = read_start(git).partition("gitdir:")[2]
                git = folder / named.strip()
            head = read_start(git / "HEAD").strip()
        except (OSError, ValueError):  # the named file may be anything
            continue
        return head.removeprefix("ref: refs/heads/") if head.startswith("ref:") else head[:8]
    return ""


def read_start(path: Path, most: int = MAX_HEAD_BYTES) -> str:
    """Read the start of a regular file. Raises OSError, also for a link: it may lead anywhere."""
    with open_kept(path) as file:
        return file.read(most).decode("utf-8", "replace")
