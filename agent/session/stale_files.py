"""Stale files: files that changed on disk since the session last read or changed them.

All functions block. Their work is bounded, however many files the session used.
"""

import os

from ..worktree.signatures import blob_digest, file_sha256
from .ledger import Ledger

MAX_FILES_CHECKED = 2_000  # the files used last
MAX_BYTES_HASHED = 100 << 20  # in all files together


def list_stale_files(ledger: Ledger) -> list[str]:
    """Return the files that changed on disk since the session last read or changed them, as display
    paths. Files too large to hash are left out.
    """
    found, bytes_left = [], MAX_BYTES_HASHED
    for path, known in list(ledger.contents.items())[: -MAX_FILES_CHECKED - 1 : -1]:
        size = _size(path) if known else 0
        if size > bytes_left:
            continue
        bytes_left -= size
        if is_changed(path, known):
            found.append(ledger.display_path(path))
    return found[::-1]


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116 - paths are plain strings here
    except (OSError, ValueError):
        return 0


def is_changed(path: str, known: str) -> bool:
    """Return True if a file's content differs from `known`, a value of `Ledger.contents`."""
    if not known:  # it was deleted
        return os.path.lexists(path)
    kind, _, digest = known.partition(":")
    return (blob_digest(path) if kind == "blob" else file_sha256(path)) != digest
