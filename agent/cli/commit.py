"""The commit that this program was built from.

It is recorded in `commit.txt`: by git in its archives (`.gitattributes`), by `setup.py` in the
sdist and the wheel. In a checkout, it is read from the repository. This module imports only the
standard library, because `setup.py` loads it from its file.
"""

import re
from pathlib import Path

RECORD = Path("agent", "cli", "commit.txt")
_HASH = re.compile("[0-9a-f]{40}(?:[0-9a-f]{24})?")


def find_commit(root: Path) -> str | None:
    """Return the hash of the commit of the tree in `root`, or None if unknown."""
    return _hash_in(_text(root / RECORD)) or _checked_out(root / ".git")


def _checked_out(git: Path) -> str | None:
    """Return the checked-out commit, read from a repository's files."""
    if git.is_file():  # a linked work tree or a submodule
        git = git.parent / _text(git).removeprefix("gitdir: ")
    head = _text(git / "HEAD")
    if not head.startswith("ref: "):
        return _hash_in(head)
    ref = head.removeprefix("ref: ")
    shared = git / _text(git / "commondir")  # the repository of a linked work tree
    if loose := _hash_in(_text(shared / ref)):
        return loose
    for line in _text(shared / "packed-refs").splitlines():
        packed, _, name = line.partition(" ")
        if name == ref:
            return _hash_in(packed)
    return None


def _text(path: Path) -> str:
    """Return the content of a file without the line end, or "" if it cannot be read."""
    try:
        return path.read_text("utf-8").rstrip("\n")
    except (OSError, ValueError):
        return ""


def _hash_in(text: str) -> str | None:
    return text if _HASH.fullmatch(text) else None
