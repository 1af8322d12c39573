"""What is checked out in a work tree, read from the files of git: at no cost, and without git."""

import os
import stat
from pathlib import Path

LARGEST = 8_192  # bytes read of a file


def branch(cwd: Path) -> str:
    """The branch checked out at `cwd`, the beginning of the commit where there is none; "" outside
    a repository."""
    for folder in (cwd, *cwd.parents):
        git = folder / ".git"
        try:
            if git.is_file():  # a worktree: the file names the directory
                named = _beginning(git).partition("gitdir:")[2]
                git = folder / named.strip()
            head = _beginning(git / "HEAD").strip()
        except (OSError, ValueError):  # anyone may have written what is named there
            continue
        return head.removeprefix("ref: refs/heads/") if head.startswith("ref:") else head[:8]
    return ""


def _beginning(path: Path) -> str:
    """How a regular file begins; "" for a pipe or a device, which is not waited for. Raises
    OSError."""
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        regular = stat.S_ISREG(os.fstat(file).st_mode)
        return os.read(file, LARGEST).decode("utf-8", "replace") if regular else ""
    finally:
        os.close(file)
