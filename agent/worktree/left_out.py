"""Files that existed when a snapshot was taken but are not in it: ignored, large and unreadable
files, names that git refuses, other repositories, and unreadable folders.

A restore removes a file only if it certainly did not exist. Because a file missing from a tree may
have been left out, every snapshot records what was left out. The record is a parent of the
snapshot's commit: it is stored again only after a change, and lasts as long as the snapshot.
"""

import os
from collections.abc import Iterable
from dataclasses import field
from typing import Self

from ..lazy import dataclass
from .object_store import ObjectStore

MAX_ROWS = 200_000  # with more rows, only the folders are recorded
_RECORD_NAME = "left-out"
_COMMIT = (
    "tree {}\nauthor ctxagent <ctxagent> 0 +0000\ncommitter ctxagent <ctxagent> 0 +0000\n\n"
    "Left out of snapshots.\n"
)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Paths below the root of a work tree. A folder ends with a slash and includes everything in
    it.
    """

    files: frozenset[str] = field(default_factory=frozenset)
    folders: frozenset[str] = field(default_factory=frozenset)

    @classmethod
    def of(cls, names: Iterable[str]) -> Self:
        """Return the record of these names."""
        rows = set(names)
        if len(rows) > MAX_ROWS:
            rows = {name.rpartition("/")[0] + "/" if "/" in name[:-1] else name for name in rows}
        folders = frozenset(name for name in rows if name.endswith("/"))
        return cls(frozenset(rows - folders), folders)

    def may_have_had(self, name: str) -> bool:
        """Return True if a file with this name may have been left out."""
        if name in self.files or ".git" in name.lower().split("/"):
            return True
        ends = (at + 1 for at, character in enumerate(name) if character == "/")
        return any(name[:end] in self.folders for end in ends)

    def store(self, store: ObjectStore) -> str:
        """Store the record and return the name of its commit. Raises GitFailed."""
        rows = sorted(os.fsencode(name) for name in self.files | self.folders)
        blob = store.write_object(b"blob", b"".join(row + b"\0" for row in rows))
        row = b"100644 " + _RECORD_NAME.encode() + b"\0" + bytes.fromhex(blob)
        tree = store.write_object(b"tree", row)
        return store.write_object(b"commit", _COMMIT.format(tree).encode("ascii"))


def load_left_out(store: ObjectStore, snapshot: str) -> LeftOut | None:
    """Return what was left out of a snapshot, or None if unknown. Raises GitFailed."""
    for _, kind, data in store.read_objects([f"{snapshot}^1:{_RECORD_NAME}"]):
        if kind == b"blob":
            return LeftOut.of(os.fsdecode(row) for row in data.split(b"\0") if row)
    return None
