"""Open files by paths without links, and work in folders by their descriptors.

A path is judged with links resolved and opened later. In between, somebody could replace a folder
by a link to another place. So a judged path is opened without following links (openat2(2),
RESOLVE_NO_SYMLINKS), and work in a folder uses its descriptor (proc(5), /proc/PID/fd). If the
kernel has no openat2, the components are opened one by one.
"""

import ctypes
import errno
import os
import stat
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

_OPENAT2 = 437  # on every architecture
_AT_FDCWD = -100
_NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x02, 0x04, 0x08
# Without O_PATH, O_NONBLOCK avoids waiting for a pipe.
_SEARCH = getattr(os, "O_PATH", os.O_RDONLY | os.O_NONBLOCK) | os.O_CLOEXEC
_BY_DESCRIPTOR = "/proc/self/fd"


def open_real(path: Path | str, flags: int = os.O_RDONLY) -> int:
    """Open an absolute path as `os.open` does. Raises OSError with ELOOP if any part of it is a
    link. A new file is accessible to its owner only.
    """
    return _open(str(path), flags | os.O_CLOEXEC, _AT_FDCWD)


def open_beneath(folder: int, name: str, flags: int = os.O_RDONLY) -> int:
    """Open a relative path below an open folder, as `open_real` does. Raises OSError with EXDEV if
    the path leads out of the folder.
    """
    if name.startswith("/") or ".." in name.split("/"):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), name)
    return _open(name, flags | os.O_CLOEXEC, folder)


def open_regular(path: Path | str, folder: int | None = None) -> int:
    """Open a regular file for reading, by an absolute path or by one below an open folder. Raises
    OSError, with EINVAL for other files, which are neither opened nor waited for.
    """
    place = open_real(path, _SEARCH) if folder is None else open_beneath(folder, str(path), _SEARCH)
    try:
        if not stat.S_ISREG(os.fstat(place).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        return _reopened(place, str(path), folder)
    finally:
        os.close(place)


@contextmanager
def stable_path(folder: Path | str, *, make: bool = False) -> Iterator[Path]:
    """Yield a path to a folder that stays valid even if the folder is replaced during the block.
    `folder` is absolute and contains no link. `make` creates missing folders with the umask's mode.
    Raises OSError.
    """
    descriptor = _made(str(folder)) if make else open_real(folder, _SEARCH | os.O_DIRECTORY)
    try:
        yield Path(f"{_BY_DESCRIPTOR}/{descriptor}") if _has_descriptors() else Path(folder)
    finally:
        os.close(descriptor)


@contextmanager
def stable_path_below(folder: Path, name: str) -> Iterator[Path]:
    """Yield a path, as `stable_path` does, to a folder below one that `stable_path` has yielded; ""
    names that folder itself. Raises OSError.
    """
    with folder_descriptor(folder) as top, folder_descriptor(name or ".", top) as found:
        yield Path(f"{_BY_DESCRIPTOR}/{found}") if _has_descriptors() else folder / name


def current_path(folder: Path) -> Path:
    """Return the current absolute real path of a folder, which may be a path from `stable_path` or
    below it.
    """
    if not folder.is_relative_to(_BY_DESCRIPTOR):
        return folder.resolve()
    descriptor, *below = folder.relative_to(_BY_DESCRIPTOR).parts
    return Path(os.readlink(f"{_BY_DESCRIPTOR}/{descriptor}"), *below)  # noqa: PTH115 - one step


@contextmanager
def folder_descriptor(path: Path | str, folder: int | None = None) -> Iterator[int]:
    """Yield a descriptor of a folder: of a path as from `stable_path`, or of a path below an open
    folder. Raises OSError.
    """
    flags = _SEARCH | os.O_DIRECTORY
    found = os.open(path, flags) if folder is None else open_beneath(folder, str(path), flags)
    try:
        yield found
    finally:
        os.close(found)


def _open(path: str, flags: int, folder: int) -> int:
    resolve = _NO_SYMLINKS | _NO_MAGICLINKS | (_BENEATH if folder != _AT_FDCWD else 0)
    call = _openat2()
    if call is not None:
        how = struct.pack("QQQ", flags, 0o600 if flags & os.O_CREAT else 0, resolve)
        while True:
            ctypes.set_errno(0)
            descriptor: int = call(_OPENAT2, folder, os.fsencode(path), how, len(how))
            if descriptor >= 0:
                return descriptor
            if (error := ctypes.get_errno()) != errno.EAGAIN:  # EAGAIN: a file was moved meanwhile
                raise OSError(error, os.strerror(error), path)
    return _open_by_components(path, flags, None if folder == _AT_FDCWD else folder)


@cache
def _openat2():  # type: ignore[no-untyped-def]
    """Return the function for system calls, None if the kernel has no openat2."""
    if not sys.platform.startswith("linux"):
        return None
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t)
    call.restype = ctypes.c_long
    how = struct.pack("QQQ", _SEARCH | os.O_DIRECTORY, 0, _NO_SYMLINKS)
    descriptor = call(_OPENAT2, _AT_FDCWD, b"/", how, len(how))
    if descriptor < 0:
        return None
    os.close(descriptor)
    return call


def _open_by_components(path: str, flags: int, folder: int | None) -> int:
    """Open a path without openat2, folder by folder."""
    at = os.open("/", _SEARCH | os.O_DIRECTORY) if folder is None else os.dup(folder)
    try:
        *folders, name = [part for part in path.split("/") if part not in ("", ".")] or ["."]
        for part in folders:
            at, before = os.open(part, _SEARCH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at), at
            os.close(before)
        return os.open(name, flags | os.O_NOFOLLOW, 0o600, dir_fd=at)
    except NotADirectoryError as error:  # O_NOFOLLOW's error for a link in place of a folder
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path) from error
    finally:
        os.close(at)


def _reopened(place: int, path: str, folder: int | None) -> int:
    """Open an O_PATH descriptor's file for reading."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    if _has_descriptors():
        return os.open(f"{_BY_DESCRIPTOR}/{place}", flags)
    found = open_real(path, flags) if folder is None else open_beneath(folder, path, flags)
    if os.path.samestat(os.fstat(found), os.fstat(place)):
        return found
    os.close(found)
    raise OSError(errno.ELOOP, "it was exchanged for another file", path)


def _made(folder: str) -> int:
    """Open a folder. Create it and its parents if they are missing."""
    with suppress(FileNotFoundError):
        return open_real(folder, _SEARCH | os.O_DIRECTORY)
    at = os.open("/", _SEARCH | os.O_DIRECTORY)
    try:
        for part in filter(None, folder.split("/")):
            with suppress(FileExistsError):
                os.mkdir(part, dir_fd=at)
            at, before = open_beneath(at, part, _SEARCH | os.O_DIRECTORY), at
            os.close(before)
    except OSError:
        os.close(at)
        raise
    return at


@cache
def _has_descriptors() -> bool:
    return Path(_BY_DESCRIPTOR).is_dir() and hasattr(os, "O_PATH")
