"""What lies around a log: its lock, the modes of its files, room on the disk."""

import fcntl
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from ..record.lock import NAME as LOCK
from .finding import Finding

HELD = "held by process"
LEAST_ROOM = 64 << 20  # bytes
NAMED = 5
_MANY = 100_000  # files of a session that are looked at


def lock(log: Path) -> Finding:
    """Who has the session, if anybody."""
    path = log.with_name(LOCK)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return Finding("lock", "not held")
    except OSError as error:
        return Finding("lock", f"{path} cannot be opened: {error.strerror}; remove it", False)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return Finding("lock", f"{path} is no file; remove it", False)
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
        return Finding("lock", f"{HELD} {pid}")
    except OSError:
        return Finding("lock", "this file system has none: let one process at a time write")
    finally:
        os.close(descriptor)
    return Finding("lock", "not held")


def room(folder: Path) -> Finding:
    free = shutil.disk_usage(folder).free
    return Finding("room on the disk", f"{free >> 20:,} MiB free", free >= LEAST_ROOM)


def modes(folder: Path) -> Finding:
    wrong = [
        f"{path.relative_to(folder.parent)} {mode:04o}" for path, mode, _ in wrong_modes(folder)
    ]
    if not wrong:
        return Finding("modes", "files and folders are their owner's alone")
    more = f" and {len(wrong) - NAMED:,} more" if len(wrong) > NAMED else ""
    told = f"{', '.join(wrong[:NAMED])}{more}; must be 0600, and 0700 for folders"
    return Finding("modes", told, False)


def mend_modes(folder: Path) -> int:
    """Give what is in a session's folder the modes it must have; how many had others."""
    count = 0
    for path, _, right in wrong_modes(folder):
        path.chmod(right)
        count += 1
    return count


def wrong_modes(folder: Path) -> Iterator[tuple[Path, int, int]]:
    """Files and folders that others may look into, or the owner may not: path, mode, right mode.
    A folder comes before it is looked into, so that its mode can be put right first."""
    waiting, count = [folder], 0
    while waiting and count < _MANY:
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
