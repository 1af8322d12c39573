"""The commit that this program was made of.

It is recorded in `commit.txt`: by git in archives that it makes (`.gitattributes`), by `setup.py`
in the sdist and the wheel. A checkout has no record; there the files of its repository tell. Only
the standard library is imported, since `setup.py` loads this module from its file.
"""

import re
from pathlib import Path

RECORD = Path("agent", "cli", "commit.txt")
_HASH = re.compile("[0-9a-f]{40}(?:[0-9a-f]{24})?")


def find_commit(root: Path) -> str | None:
    """Return the hash of the commit that the tree in `root` was made of, if anything tells."""
    return _hash_in(_text(root / RECORD)) or _checked_out(root / ".git")


def _checked_out(git: Path) -> str | None:
    """Return the commit that is checked out in a repository, by its files."""
    if git.is_file():  # of a linked work tree or a submodule
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
    """Return what a file has, without the line end; "" if it cannot be read."""
    try:
        return path.read_text("utf-8").rstrip("\n")
    except (OSError, ValueError):
        return ""


def _hash_in(text: str) -> str | None:
    return text if _HASH.fullmatch(text) else None
