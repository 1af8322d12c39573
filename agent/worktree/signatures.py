"""Detect file changes without git: by size, times and mode, and by content for named files."""

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import NamedTuple

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
