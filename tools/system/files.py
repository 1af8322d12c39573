"""Write files and folders atomically, with access for their owner only.

`replacing` writes the new content to a part file next to the target and renames it at the end. If
the process is killed, the target has either the old or the new content.
"""

import errno
import fcntl
import os
import select
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from io import BufferedReader, FileIO
from pathlib import Path
from typing import BinaryIO

from ...agent.lazy import regex
from .safe_open import folder_descriptor, open_regular, stable_path

_UNIQUE_PART = regex(r"\.ctxagent-[0-9a-f]{16}")
_REMOVALS = 5  # attempts to remove a folder in which files may still appear


@contextmanager
def replacing(
    path: Path,
    *,
    part_name: str = "",
    new_mode: int | None = 0o600,
    keep_mode: bool = False,
    durable: bool = True,
) -> Iterator[BinaryIO]:
    """Yield a part file that replaces `path` when the block ends, or is deleted if it raises.

    `part_name` is for a file with a single writer: a leftover part file is then overwritten next
    time. Without it each part file has a unique name. A new file gets `new_mode`, or the umask's
    for None. With `keep_mode` an existing file keeps its mode and, if permitted, its owner.
    `durable` syncs the content to disk before the rename. Raises OSError and leaves the old file
    unchanged.
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


@contextmanager
def keeping_old(path: Path) -> Iterator[Path]:
    """Keep the file that the block replaces, and yield the path of this copy: `NAME.<time>.bak`.
    If the block fails, no copy remains. Raises OSError.
    """
    kept = path.with_name(f"{path.name}.{datetime.now(UTC):%Y%m%d-%H%M%S}.bak")
    while kept.exists():
        kept = kept.with_name(f"{kept.stem}-2.bak")
    share_private(path, kept)
    with ExitStack() as undo:
        undo.callback(kept.unlink, missing_ok=True)
        yield kept
        undo.pop_all()


def sync_file(descriptor: int) -> None:
    """Sync an open file to disk. Raises OSError."""
    if full := getattr(fcntl, "F_FULLFSYNC", None):  # macOS: fsync(2) is not enough
        with suppress(OSError):  # network file systems do not support it
            fcntl.fcntl(descriptor, full)
            return
    os.fsync(descriptor)


def replace_file(
    path: Path, data: bytes, *, single_writer: bool = False, durable: bool = True
) -> None:
    """Write a file atomically, with access for its owner only. Raises OSError. `single_writer`:
    only one process writes it, so repeated kills leave at most one part file.
    """
    part_name = f"{path.name}.part" if single_writer else ""
    with replacing(path, part_name=part_name, durable=durable) as file:
        file.write(data)


def edit_file(path: Path, data: bytes) -> None:
    """Write a file of the user and create its folders. A new file gets the umask's mode; an
    existing one keeps its mode, owner and extended attributes. A file with hard links is
    overwritten in place, so that all names have the new content. Raises PermissionError for a
    read-only file, and OSError; the file is then unchanged.
    """
    if path.exists() and not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, "it is read-only", str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.stat().st_nlink > 1:
        _write_over(path, data)
        return
    with replacing(path, new_mode=None, keep_mode=True) as file:
        file.write(data)


def _write_over(path: Path, data: bytes) -> None:
    """Overwrite a file in place. A part file keeps the new content until the end, in case of a
    kill. Raises OSError after restoring the old content.
    """
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
    """Copy the extended attributes, including ACLs, as far as permitted."""
    if not hasattr(os, "listxattr"):  # only on Linux
        return
    with suppress(OSError):
        for name in os.listxattr(source):
            with suppress(OSError):
                os.setxattr(target, name, os.getxattr(source, name))


def is_part_name(name: str) -> bool:
    """Return True if a file name is that of a unique part file."""
    return _UNIQUE_PART.fullmatch(name) is not None


def private_opener(path: str, flags: int) -> int:
    """Open a file for `open(..., opener=)`. A new file is accessible to its owner only. Raises
    OSError with ELOOP for a link, whose target may belong to anybody.
    """
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _no_link_opener(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC)


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner can access. Raises OSError."""
    with open(path, "wb", opener=private_opener) as file:
        file.write(data)


def open_kept(path: Path) -> BufferedReader:
    """Open a regular file for reading. Raises OSError, with EINVAL for a FIFO or a device, which
    could block or never end, and with ELOOP for a link.
    """
    return open(path, "rb", opener=_regular_opener)


def read_next(descriptor: int, max_bytes: int) -> bytes:
    """Return the next bytes of a pipe, even of a non-blocking one; b"" at the end or on an error.
    Blocks.
    """
    while True:
        try:
            return os.read(descriptor, max_bytes)
        except BlockingIOError:
            select.select([descriptor], [], [])
        except OSError:
            return b""


def read_below(folder: Path, name: str, max_bytes: int) -> bytes:
    """Return the first `max_bytes` of a regular file below a folder, following no links. Raises
    OSError.
    """
    with open_below(folder, name) as file:
        return file.read(max_bytes)


def open_below(folder: Path, name: str) -> BufferedReader:
    """Open a regular file below a folder for reading, following no links. Raises OSError."""
    with stable_path(folder.resolve()) as inside, folder_descriptor(inside) as top:
        return os.fdopen(open_regular(name, top), "rb")


def _regular_opener(path: str, flags: int) -> int:
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "it is no regular file", path)


def copy_private(source: Path, target: Path) -> None:
    """Copy a regular file to one that only its owner can access. Raises OSError, also for a copy
    onto itself, which would lose the content.
    """
    with open_kept(source) as old, open(target, "ab", opener=private_opener) as new:
        if os.path.samestat(os.fstat(old.fileno()), os.fstat(new.fileno())):
            raise OSError(errno.EINVAL, "it is the very file that it is copied to", str(source))
        new.truncate(0)
        shutil.copyfileobj(old, new, 1 << 20)


def share_private(source: Path, target: Path) -> None:
    """Hard-link a regular file that never changes, or copy it if that fails. Raises OSError."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        copy_private(source, target)


def copy_tree_private(
    source: Path, target: Path, copy: Callable[[Path, Path], None] = copy_private
) -> None:
    """Copy a folder's regular files and folders with `copy`, for their owner only. Links are left
    out. Raises OSError, with EINVAL for a copy of a folder into itself.
    """
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
    """Create a folder and its missing parents, for their owner only. Raises OSError."""
    missing = []
    while not folder.exists():
        if folder.is_symlink():
            raise FileNotFoundError(errno.ENOENT, "a symlink that leads nowhere", str(folder))
        missing.append(folder)
        folder = folder.parent
    for each in reversed(missing):
        each.mkdir(mode=0o700, exist_ok=True)


def remove_used_folder(folder: Path) -> None:
    """Remove a folder in which other threads or processes may still create files by its path.
    Raises OSError.

    The folder gets another name first. Then only files that are being created at this moment can
    still appear in it, so that few attempts are enough.
    """
    renamed = folder.rename(f"{folder}-removed")
    for _ in range(_REMOVALS):
        shutil.rmtree(renamed, ignore_errors=True)
        if not renamed.exists():
            return
    shutil.rmtree(renamed)
