"""What tells that a file has changed, without git: its size, times and mode, and of a file that was
named the digest of its content too. Links are never followed, and folders of version control never
entered. Whatever cannot be looked at counts as not there."""

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import NamedTuple

LARGEST = 10 << 20  # bytes of a file whose content is looked at
SKIPPED = frozenset((".git", ".hg", ".svn", ".jj"))


class Signature(NamedTuple):
    """`digest` is that of `blob_digest`, "" where the content was not looked at."""

    size: int
    mtime_ns: int
    inode: int
    mode: int
    digest: str = ""

    def differs(self, other: "Signature") -> bool:
        """Whether the file is another one; a file that was only touched is not, as far as its
        content is known."""
        if self.digest and other.digest:
            return (self.digest, self.mode) != (other.digest, other.mode)
        return self[:4] != other[:4]


def signature(path: str, *, content: bool = False) -> Signature | None:
    """The signature of a regular file or a link, None for anything else."""
    try:
        found = os.lstat(path)
        if not (stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode)):
            return None
        digest = blob_digest(path) if content and found.st_size <= LARGEST else ""
    except (OSError, ValueError):
        return None
    return Signature(found.st_size, found.st_mtime_ns, found.st_ino, found.st_mode, digest)


def blob_digest(path: str) -> str:
    """What git would call the content of a file, or the target of a link; "" for one that cannot
    be read."""
    try:
        target = os.fsencode(os.readlink(path))  # noqa: PTH115 - paths are plain strings here
    except (OSError, ValueError):
        return _digest(path, blob=True)
    return hashlib.sha1(b"blob %d\0" % len(target) + target, usedforsecurity=False).hexdigest()


def sha256(path: str) -> str:
    """The digest of a regular file, "" for what cannot be read."""
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


def scan(folder: str, most: int) -> Mapping[str, Signature]:
    """The files below a folder, in the order of their names, `most` at most."""
    found = islice(_files(folder), most)
    return {path: known for path in found if (known := signature(path))}


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
            found = [entry for entry in rows if entry.name not in SKIPPED]
    except OSError:
        return []
    return sorted(found, key=lambda entry: entry.name)
