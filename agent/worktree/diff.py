"""Differences between two states of files: two git trees, or two sets of signatures.

Signatures detect changes without git: by size, times and mode, and by content for named files.
"""

import hashlib
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple

from ...tools.project_encodings import text_of
from ...tools.text import NotText
from ..lazy import dataclass, regex
from .object_store import GitFailed, ObjectStore

MAX_CONTENT_BYTES = 10 << 20  # the content of larger files is not read
# Scans skip these folders and links. Unreadable files count as absent.
SKIPPED_FOLDERS = frozenset((".git", ".hg", ".svn", ".jj"))


class FileSignature(NamedTuple):
    """The state of a file, from its stat and optionally its content."""

    size: int
    mtime_ns: int
    inode: int
    mode: int
    digest: str = ""  # `blob_digest`, "" if the content was not read

    def differs(self, other: "FileSignature") -> bool:
        """Return True if the file changed. With both digests, only touching it does not count."""
        if self.digest and other.digest:
            return (self.digest, self.mode) != (other.digest, other.mode)
        return self[:4] != other[:4]


def read_signature(path: str, *, content: bool = False) -> FileSignature | None:
    """Return the signature of a regular file or a link, or None for anything else."""
    try:
        found = os.lstat(path)
        if not (stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode)):
            return None
        digest = blob_digest(path) if content and found.st_size <= MAX_CONTENT_BYTES else ""
    except (OSError, ValueError):
        return None
    return FileSignature(found.st_size, found.st_mtime_ns, found.st_ino, found.st_mode, digest)


def blob_digest(path: str) -> str:
    """Return git's blob name for a file's content or a link's target, or "" if unreadable."""
    try:
        target = os.fsencode(os.readlink(path))  # noqa: PTH115 - paths are plain strings here
    except (OSError, ValueError):
        return _digest(path, blob=True)
    return hashlib.sha1(b"blob %d\0" % len(target) + target, usedforsecurity=False).hexdigest()


def file_sha256(path: str) -> str:
    """Return the SHA-256 of a regular file, or "" if it cannot be read."""
    return _digest(path, blob=False)


def _digest(path: str, *, blob: bool) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                return ""
            digest = hashlib.sha1(usedforsecurity=False) if blob else hashlib.sha256()
            if blob:
                digest.update(b"blob %d\0" % found.st_size)
            while data := file.read(1 << 20):
                digest.update(data)
    except (OSError, ValueError):
        return ""
    return digest.hexdigest()


def scan_folder(folder: str, max_files: int) -> Mapping[str, FileSignature]:
    """Return the signatures of the first `max_files` files below a folder, by name."""
    found = islice(_files(folder), max_files)
    return {path: known for path in found if (known := read_signature(path))}


def _files(folder: str) -> Iterator[str]:
    waiting = [iter(_entries(folder))]
    while waiting:
        entry = next(waiting[-1], None)
        if entry is None:
            waiting.pop()
        elif entry.is_dir(follow_symlinks=False):
            waiting.append(iter(_entries(entry.path)))
        else:
            yield entry.path


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as rows:
            found = [entry for entry in rows if entry.name not in SKIPPED_FOLDERS]
    except OSError:
        return []
    return sorted(found, key=lambda entry: entry.name)


DiffAction = Literal["created", "modified", "deleted"]

DIFF_COMMAND = ("diff-tree", "-r", "--no-renames", "--no-ext-diff", "--no-textconv")
_LIST_COMMAND = (*DIFF_COMMAND, "-z", "--raw", "--numstat")
_NEXT_FILE = b"\ndiff --git "
_NEW_NAME = regex(rb"^\+\+\+ b/(.+)$", re.MULTILINE)
_ACTIONS: dict[str, DiffAction] = {"A": "created", "D": "deleted"}


@dataclass(frozen=True, slots=True)
class TreeChange:
    """A file that differs between two states."""

    path: str  # absolute
    action: DiffAction
    added: int = 0  # lines; 0 if unknown
    removed: int = 0  # lines; 0 if unknown
    blob: str = ""  # `signatures.blob_digest` of the new content, "" if unknown


def compare_signatures(
    before: Mapping[str, FileSignature], after: Mapping[str, FileSignature]
) -> dict[str, TreeChange]:
    """Return the changes from one set of signatures to another, by path."""
    found = {path: TreeChange(path, "deleted") for path in before if path not in after}
    for path, new in after.items():
        old = before.get(path)
        if old is None or old.differs(new):
            found[path] = TreeChange(path, "modified" if old else "created", blob=new.digest)
    return found


def certain_changes(
    found: Mapping[str, TreeChange], before: Mapping[str, FileSignature]
) -> dict[str, TreeChange]:
    """Return the changes that are certain although a scan was cut off."""
    # A file that enters or leaves a cut scan may have existed all the time.
    last = max(map(_scan_order, before), default=[])
    return {
        path: change
        for path, change in found.items()
        if change.action == "modified"
        or (change.action == "created" and _scan_order(path) < last)
        or (change.action == "deleted" and not os.path.lexists(path))
    }


def _scan_order(path: str) -> list[str]:
    return path.split("/")


def without_moves(
    change: TreeChange, before: Mapping[str, FileSignature], after: Mapping[str, FileSignature]
) -> TreeChange:
    """Report a file as modified if it only became, or stopped being, a watched file."""
    came = change.action == "created" and change.path in before
    went = change.action == "deleted" and change.path in after
    return replace(change, action="modified") if came or went else change


def compare_trees(store: ObjectStore, old: str, new: str) -> list[TreeChange]:
    """Return the files with different content in two trees. Raises GitFailed."""
    if old == new:
        return []
    said = b""
    with suppress(GitFailed):  # the running git was killed
        said = store.ask(*_LIST_COMMAND, "--stdin", line=f"{old} {new}")
    repeated, _, rows = said.partition(b"\n")
    if repeated != f"{old} {new}".encode():  # or one of them is a snapshot's commit
        rows = store.run(*_LIST_COMMAND, old, new)
    return [replace(change, path=f"{store.root}/{change.path}") for change in _rows(rows)]


def _rows(said: bytes) -> Iterator[TreeChange]:
    """Parse `--raw --numstat -z`: first a pair of words per path, then the line counts."""
    words = [os.fsdecode(word) for word in said.split(b"\0") if word]
    count = next((i for i, word in enumerate(words[::2]) if not word.startswith(":")), len(words))
    heads, lines = words[: 2 * count], {}
    for word in words[2 * count :]:
        added, removed, path = word.split("\t", 2)
        lines[path] = (_number(added), _number(removed))
    for head, path in zip(heads[::2], heads[1::2], strict=True):
        _, _, _, new, status = head.split()
        action = _ACTIONS.get(status[:1], "modified")
        yield TreeChange(path, action, *lines.get(path, (0, 0)), new if new.strip("0") else "")


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def decoded(said: bytes, root: Path) -> str:
    """Return git's diff of the files below a folder as text, each part in the encoding of its
    file.
    """
    parts = said.split(_NEXT_FILE)
    return _NEXT_FILE.decode().join(_decoded_part(part, root) for part in parts)


def _decoded_part(part: bytes, root: Path) -> str:
    found = _NEW_NAME.search(part)
    name = os.fsdecode(found[1].removesuffix(b"\t")) if found else "."
    try:
        return text_of(root / name, part, whole=False)
    except NotText:
        return part.decode("utf-8", "replace")
