"""Files and folders written whole and for their owner alone.

`replacing` is the one way to put a file in place: the new content goes to a part file next to it,
which takes its name when all is written. What is there is either the old content or the new one,
whenever the process is killed.
"""

import errno
import fcntl
import os
import select
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader, FileIO
from pathlib import Path
from typing import BinaryIO

from ...agent.lazy import regex
from .safe_open import entered, open_regular, opened_folder

_UNIQUE_PART = regex(r"\.ctxagent-[0-9a-f]{16}")


@contextmanager
def replacing(
    path: Path,
    *,
    part_name: str = "",
    new_mode: int | None = 0o600,
    keep_mode: bool = False,
    durable: bool = True,
) -> Iterator[BinaryIO]:
    """Yield a part file that takes the place of `path` when the block ends, or goes when it raises.

    `part_name` is for a name that one process alone writes to: the part that a kill has left is
    then overwritten by the next one. By default each part has a name of its own. A file that was
    not there gets `new_mode`, None for what the umask says; with `keep_mode` one that was keeps its
    mode and, where that is allowed, its owner. `durable`: the content is on the medium before it
    takes its place. Raises OSError, with the old file as it was.
    """
    old = None
    with suppress(FileNotFoundError):
        old = path.stat() if keep_mode else None
    part = path.with_name(part_name or f".ctxagent-{os.urandom(8).hex()}")
    if part_name:
        part.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(part, flags, 0o666 if new_mode is None and old is None else 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            if old:
                with suppress(PermissionError):
                    os.fchown(descriptor, old.st_uid, old.st_gid)
                os.fchmod(descriptor, stat.S_IMODE(old.st_mode))
                _copy_attributes(path, descriptor)
            elif new_mode not in (None, 0o600):
                os.fchmod(descriptor, new_mode)
            if durable:
                sync_file(descriptor)
        part.replace(path)
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def sync_file(descriptor: int) -> None:
    """Put on the medium what was written to an open file. Raises OSError."""
    if full := getattr(fcntl, "F_FULLFSYNC", None):  # fsync(2) of macOS leaves it to the drive
        with suppress(OSError):  # a file system of another machine does not know it
            fcntl.fcntl(descriptor, full)
            return
    os.fsync(descriptor)


def replace_file(
    path: Path, data: bytes, *, single_writer: bool = False, durable: bool = True
) -> None:
    """Put a file with these bytes in place, open to its owner alone. Raises OSError.
    `single_writer`: one process alone writes it, so however often that is killed, one part file is
    left behind at most."""
    part_name = f"{path.name}.part" if single_writer else ""
    with replacing(path, part_name=part_name, durable=durable) as file:
        file.write(data)


def edit_file(path: Path, data: bytes) -> None:
    """Put a file of the user's in place, and make the folders it needs. A new one gets the mode
    that the umask says, one that is there keeps its mode, owner and extended attributes. One with
    several names (hard links) is written over, so that all of them have the new content. Raises
    PermissionError for one that is read-only, and OSError; then nothing has changed."""
    if path.exists() and not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, "it is read-only", str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.stat().st_nlink > 1:
        _write_over(path, data)
        return
    with replacing(path, new_mode=None, keep_mode=True) as file:
        file.write(data)


def _write_over(path: Path, data: bytes) -> None:
    """Give a file new content where it lies. A part file has it whole until that is done, in case a
    kill comes between. Raises OSError, with the old content put back."""
    part = path.with_name(f".ctxagent-{os.urandom(8).hex()}")
    try:
        write_private(part, data)
        with open(path, "r+b", buffering=0, opener=_no_link_opener) as file:
            old = file.readall()
            try:
                _write_from_start(file, data)
            except OSError:
                _write_from_start(file, old)
                raise
    finally:
        part.unlink(missing_ok=True)


def _write_from_start(file: FileIO, data: bytes) -> None:
    file.seek(0)
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]
    file.truncate()
    sync_file(file.fileno())


def _copy_attributes(source: Path, target: int) -> None:
    """Copy the extended attributes, access lists among them, as far as that is allowed."""
    if not hasattr(os, "listxattr"):  # Linux alone has them in this form
        return
    with suppress(OSError):
        for name in os.listxattr(source):
            with suppress(OSError):
                os.setxattr(target, name, os.getxattr(source, name))


def is_part_name(name: str) -> bool:
    """Return whether a file has the name of a part of its own, until it is whole."""
    return _UNIQUE_PART.fullmatch(name) is not None


def private_opener(path: str, flags: int) -> int:
    """Open a file for `open(..., opener=)`; a new one is for its owner alone. A link is an OSError
    with ELOOP: what it leads to may be anybody's."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _no_link_opener(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC)


def write_private(path: Path, data: bytes) -> None:
    """Write a file that is for its owner alone. Raises OSError."""
    with open(path, "wb", opener=private_opener) as file:
        file.write(data)


def open_kept(path: Path) -> BufferedReader:
    """Open a regular file for reading; a FIFO or a device, which would be waited for or never end,
    is an OSError with EINVAL, a link one with ELOOP. Raises OSError."""
    return open(path, "rb", opener=_regular_opener)


def read_next(descriptor: int, max_bytes: int) -> bytes:
    """Return the next bytes of a pipe or the like, also of one that does not block by itself; b""
    at the end, which an unreadable one has come to. Blocking."""
    while True:
        try:
            return os.read(descriptor, max_bytes)
        except BlockingIOError:
            select.select([descriptor], [], [])
        except OSError:
            return b""


def read_below(folder: Path, name: str, max_bytes: int) -> bytes:
    """Return what a regular file below a folder begins with, `max_bytes` at most; no link leads to
    it. Raises OSError."""
    with open_below(folder, name) as file:
        return file.read(max_bytes)


def open_below(folder: Path, name: str) -> BufferedReader:
    """Open a regular file below a folder for reading; no link leads to it. Raises OSError."""
    with entered(folder.resolve()) as inside, opened_folder(inside) as top:
        return os.fdopen(open_regular(name, top), "rb")


def _regular_opener(path: str, flags: int) -> int:
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "it is no regular file", path)


def copy_private(source: Path, target: Path) -> None:
    """Copy the content of a regular file to one for its owner alone. Raises OSError: a file is not
    copied onto itself, which would lose it."""
    with open_kept(source) as old, open(target, "ab", opener=private_opener) as new:
        if os.path.samestat(os.fstat(old.fileno()), os.fstat(new.fileno())):
            raise OSError(errno.EINVAL, "it is the very file that it is copied to", str(source))
        new.truncate(0)
        shutil.copyfileobj(old, new, 1 << 20)


def share_private(source: Path, target: Path) -> None:
    """Give a regular file that is never written again a second name, or copy it where the file
    system cannot. Raises OSError."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        copy_private(source, target)


def copy_tree_private(
    source: Path, target: Path, copy: Callable[[Path, Path], None] = copy_private
) -> None:
    """Copy a folder with the regular files and folders in it, for its owner alone, each file by
    `copy`; links are left out. Raises OSError, with EINVAL for a folder that would be copied into
    itself."""
    if target.resolve().is_relative_to(source.resolve()):
        raise OSError(errno.EINVAL, "a folder is not copied into itself", str(source))
    entries = list(os.scandir(source))
    make_private_folder(target)
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            copy_tree_private(Path(entry), target / entry.name, copy)
        elif entry.is_file(follow_symlinks=False):
            copy(Path(entry), target / entry.name)


def make_private_folder(folder: Path) -> None:
    """Make a folder and its missing parents, open to their owner alone. Raises OSError."""
    missing = []
    while not folder.exists():
        if folder.is_symlink():
            raise FileNotFoundError(errno.ENOENT, "a symlink that leads nowhere", str(folder))
        missing.append(folder)
        folder = folder.parent
    for each in reversed(missing):
        each.mkdir(mode=0o700, exist_ok=True)
