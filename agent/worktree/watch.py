"""A watch on the folders of a work tree with inotify(7): it lists the files that may have changed
since the last scan, so that the next scan can skip the others.

Anything may have changed after an overflow, a new mount, a replaced root, or with too many folders.
The watch is not used on file systems that can change without the local kernel. It cannot name the
changed files if folders appear, disappear or change permissions, or if a file with several names is
written. Files with several names are watched individually, because their folder does not see writes
through other names.

Two kinds of change are missed: writes through a memory mapping whose file was closed before the
last scan, and writes through a name created outside since then. Therefore the watch only decides
which command a change is attributed to, never what a snapshot contains.
"""

import ctypes
import errno
import os
import select
import stat
import struct
import sys
import weakref
from collections.abc import Callable, Iterable, Set
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

MIN_WATCHED, MAX_WATCHED = 4_096, 65_536  # watched folders and files with several names
WATCHED_SHARE = 8  # use at most 1/8 of the watches that the user may have
MAX_NAMED = 200  # changed files that are named; with more, the answer is "unknown"
# File systems that can change only through the local kernel, which reports every change.
_LOCAL_SYSTEMS = frozenset(
    ("ext2", "ext3", "ext4", "xfs", "btrfs", "tmpfs", "f2fs", "zfs", "bcachefs", "overlay")
)
_MODIFY, _ATTRIB, _CLOSE_WRITE, _MOVED_FROM, _MOVED_TO = 0x02, 0x04, 0x08, 0x40, 0x80
_CREATE, _DELETE, _DELETE_SELF, _MOVE_SELF = 0x100, 0x200, 0x400, 0x800
_UNMOUNT, _OVERFLOW, _DONT_FOLLOW, _IS_FOLDER = 0x2000, 0x4000, 0x0200_0000, 0x4000_0000
_CHANGES = (
    _MODIFY | _ATTRIB | _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO
    | _CREATE | _DELETE | _DELETE_SELF | _MOVE_SELF | _DONT_FOLLOW
)  # fmt: skip
_EVENT = struct.Struct("iIII")
_READ_BYTES = 65_536


class _Calls(NamedTuple):
    """The inotify functions of the system library."""

    init: Callable[[int], int]
    add: Callable[[int, bytes, int], int]


class FolderWatch:
    """Detects possible changes below `root`, except in the folders that `skipped` returns (paths
    relative to the root). Call `renew` before a scan and `is_quiet` after it.
    """

    def __init__(self, root: str, skipped: Callable[[], Iterable[str]]) -> None:
        self._root = root
        self._skipped = skipped
        self._usable = _calls() is not None and _is_local(root)
        self._descriptor = -1
        self._close: weakref.finalize[[int], FolderWatch] | None = None
        self._paths: dict[int, str] = {}  # by watch number
        self._identity: tuple[int, int] = (0, 0)  # device and inode of the root
        self._fresh: list[str] = []  # new paths
        self._changed: set[str] | None = None  # changed files, None if not all are known
        self._search_again = True
        self._mounts = select.poll() if self._usable else None
        if self._mounts:
            file = os.open("/proc/self/mountinfo", os.O_RDONLY | os.O_CLOEXEC)
            weakref.finalize(self, os.close, file)
            self._mounts.register(file, select.POLLERR | select.POLLPRI)

    def is_quiet(self) -> bool:
        """Return True if nothing can have changed since the last `renew`."""
        if not self._usable:
            return False
        self._read_events()
        return self._changed == set() and not self._search_again

    def renew(self) -> Set[str] | None:
        """Return the files that may have changed, or None if unknown. Reset the record of changes
        and watch new paths.
        """
        if not self._usable:
            return None
        self._read_events()
        changed = None if self._search_again else self._changed
        try:
            if self._search_again:
                self._begin()
            else:
                for path in self._fresh:
                    self._add_all(path, set())
        except OSError:  # too many watches, or the folder was removed meanwhile
            self._give_up()
            changed = None
        self._changed, self._fresh = set(), []
        return changed

    def search_again(self) -> None:
        """Make the next `renew` search all folders again, because the skipped ones may differ."""
        self._search_again = True

    def _read_events(self) -> None:
        """Read pending events and detect new mounts and a replaced root."""
        if self._mounts and self._mounts.poll(0):
            self._search_again = True
        found = (0, 0)
        with suppress(OSError):
            at = os.lstat(self._root)
            found = (at.st_dev, at.st_ino)
        if self._descriptor < 0 or found != self._identity:
            self._search_again = True
            return
        with suppress(BlockingIOError):
            while data := os.read(self._descriptor, _READ_BYTES):
                self._take(data)

    def _take(self, data: bytes) -> None:
        place = 0
        while place < len(data):
            number, what, _, length = _EVENT.unpack_from(data, place)
            place += _EVENT.size + length
            name = os.fsdecode(data[place - length : place].rstrip(b"\0"))
            if not what & (_CHANGES | _UNMOUNT | _OVERFLOW):  # a watch has ended
                self._paths.pop(number, None)
                continue
            self._note(number, name, what)
            moved = what & _IS_FOLDER and what & (_MOVED_FROM | _MOVED_TO)
            if moved or what & (_UNMOUNT | _OVERFLOW) or name == ".gitignore":
                self._search_again = True
            elif what & (_CREATE | _MOVED_TO) and number in self._paths:
                self._fresh.append(f"{self._paths[number]}/{name}")

    def _note(self, number: int, name: str, what: int) -> None:
        """Record the file of an event, or that more than one file may have changed."""
        if self._changed is None:
            return
        folder = "" if what & _IS_FOLDER else self._paths.get(number)
        if name and folder and len(self._changed) < MAX_NAMED:
            self._changed.add(f"{folder}/{name}")
        else:
            self._changed = None

    def _begin(self) -> None:
        if self._close:
            self._close()
        self._paths, self._descriptor = {}, -1
        calls = _calls()
        if calls is None or (descriptor := calls.init(os.O_NONBLOCK | os.O_CLOEXEC)) < 0:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        self._descriptor = descriptor
        self._close = weakref.finalize(self, os.close, descriptor)
        at = os.lstat(self._root)
        self._identity, self._search_again = (at.st_dev, at.st_ino), False
        self._add_all(self._root, {f"{self._root}/{name.rstrip('/')}" for name in self._skipped()})

    def _add_all(self, top: str, skipped: set[str]) -> None:
        """Watch a path and everything below it, each folder before it is listed. Raises OSError if
        there are too many watches or another file system is mounted inside.
        """
        pending = [top]
        while pending:
            path = pending.pop()
            with suppress(FileNotFoundError, NotADirectoryError):  # deleted, and an event says so
                found = os.lstat(path)
                if not stat.S_ISDIR(found.st_mode):
                    if found.st_nlink > 1:
                        self._add(path)
                    continue
                if found.st_dev != self._identity[0]:
                    raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)
                self._add(path)
                with os.scandir(path) as entries:
                    inner = (e.path for e in entries if e.name != ".git")
                    pending += [each for each in inner if each not in skipped]

    def _add(self, path: str) -> None:
        calls = _calls()
        if calls is None or len(self._paths) >= min(MAX_WATCHED, _allowed_watches()):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        number = calls.add(self._descriptor, os.fsencode(path), _CHANGES)
        if number < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), path)
        self._paths[number] = path

    def _give_up(self) -> None:
        self._usable = False
        if self._close:
            self._close()


def _is_local(root: str) -> bool:
    """Return True if a folder is on a file system that reports every change."""
    with suppress(OSError, ValueError):
        device = os.lstat(root).st_dev
        named = f" {os.major(device)}:{os.minor(device)} "
        lines = Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape").splitlines()
        kinds = {line.partition(" - ")[2].split(" ")[0] for line in lines if named in line}
        return bool(kinds) and kinds <= _LOCAL_SYSTEMS
    return False


@cache
def _allowed_watches() -> int:
    """Return the number of watches to use; other programs of the user need some too."""
    with suppress(OSError, ValueError):
        allowed = int(Path("/proc/sys/fs/inotify/max_user_watches").read_text("ascii"))
        return max(MIN_WATCHED, allowed // WATCHED_SHARE)
    return MIN_WATCHED


@cache
def _calls() -> _Calls | None:
    """Return the functions of inotify(7), or None if unavailable."""
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None, use_errno=True)
    try:
        init, add = library.inotify_init1, library.inotify_add_watch
    except AttributeError:
        return None
    add.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32)
    return _Calls(init, add)
