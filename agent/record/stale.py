"""Files that are no longer as a session knew them: the ledger's facts held against the disk.
Blocking, and bounded however many files a session met."""

import os

from .ledger import Ledger
from .worktree.signatures import blob_digest, sha256

LOOKED_AT = 2_000  # files, those that the session met last
HASHED = 100 << 20  # bytes of them


def stale(ledger: Ledger) -> list[str]:
    """The files that on disk are no longer as the session last read or left them, as the ledger
    shows paths. One that is too large to be read is not among them."""
    found, room = [], HASHED
    for path, known in list(ledger.contents.items())[: -LOOKED_AT - 1 : -1]:
        size = _size(path) if known else 0
        if size > room:
            continue
        room -= size
        if is_changed(path, known):
            found.append(ledger.shown(path))
    return found[::-1]


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116 - paths are plain strings here
    except (OSError, ValueError):
        return 0


def is_changed(path: str, known: str) -> bool:
    """Whether a file has another content than the one that is known."""
    if not known:  # it was deleted
        return os.path.lexists(path)
    kind, _, digest = known.partition(":")
    return (blob_digest(path) if kind == "blob" else sha256(path)) != digest
