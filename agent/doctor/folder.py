"""Checks of a session's folder: its lock, file modes and disk space."""

import fcntl
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from ..session.lock import LOCK_NAME as LOCK
from .finding import Finding, listed

HELD_BY_PROCESS = "held by process"
MIN_FREE_BYTES = 64 << 20
MAX_NAMED_FILES = 5
_MAX_FILES = 100_000  # checked files of a session


def check_lock(log: Path) -> Finding:
    """Return a finding with the process that has the session open, if any."""
    path = log.with_name(LOCK)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return Finding("lock", "not held")
    except OSError as error:
        return Finding("lock", f"{path} cannot be opened: {error.strerror}; remove it", False)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return Finding("lock", f"{path} is not a file; remove it", False)
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
        return Finding("lock", f"{HELD_BY_PROCESS} {pid}")
    except OSError:
        return Finding(
            "lock", "this file system has no locks: let only one process write at a time"
        )
    finally:
        os.close(descriptor)
    return Finding("lock", "not held")


def check_disk_space(folder: Path) -> Finding:
    free = shutil.disk_usage(folder).free
    return Finding("disk space", f"{free >> 20:,} MiB free", free >= MIN_FREE_BYTES)


def check_modes(folder: Path) -> Finding:
    wrong = [
        f"{path.relative_to(folder.parent)} {mode:04o}" for path, mode, _ in wrong_modes(folder)
    ]
    if not wrong:
        return Finding("modes", "only the owner can open the files and folders")
    names = listed(wrong, MAX_NAMED_FILES)
    return Finding("modes", f"{names}; must be 0600, and 0700 for folders", False)


def fix_modes(folder: Path) -> int:
    """Correct the modes of the files in a session's folder, and return the number of changed
    ones.
    """
    count = 0
    for path, _, right in wrong_modes(folder):
        path.chmod(right)
        count += 1
    return count


def wrong_modes(folder: Path) -> Iterator[tuple[Path, int, int]]:
    """Yield (path, mode, correct mode) for paths that other users can open or the owner cannot. A
    folder is yielded before it is read, so that the caller can correct its mode first.
    """
    waiting, count = [folder], 0
    while waiting and count < _MAX_FILES:
        path = waiting.pop()
        count += 1
        mode = path.lstat().st_mode
        if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
            continue
        right = 0o700 if stat.S_ISDIR(mode) else 0o600
        if mode & 0o077 or mode & right != right:
            yield path, stat.S_IMODE(mode), right
        if stat.S_ISDIR(mode) and os.access(path, os.R_OK | os.X_OK):
            waiting += sorted(path.iterdir(), reverse=True)
