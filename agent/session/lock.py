"""The lock of a session: one process writes, and the kernel frees the lock when the process ends.

The pid in a lock file is only for messages. A lock file without a lock on it has no meaning.
"""

import errno
import fcntl
import os
import time
from pathlib import Path

from ...tools.system.files import make_private_folder
from ..errors import RecordError, SessionBusy

LOCK_NAME = "lock"
# Listing sessions holds a lock for a moment to test whether it is free.
LOCK_TRIES = 5
LOCK_PAUSE_S = 0.02

_NO_LOCKS = "this file system has no locks: make sure that no other process uses the session"
_NO_FILE = (errno.EISDIR, errno.ELOOP, errno.EACCES, errno.EPERM, errno.ENXIO)


def acquire_lock(log: Path, warnings: list[str]) -> int:
    """Lock a log with a lock file next to it that contains our pid, and return the open file. If
    the file system has no locks, add a text to `warnings`. Raises SessionBusy if another process
    has the lock, and RecordError if the lock file cannot be created.
    """
    lock = log.with_name(LOCK_NAME)
    for tries_left in reversed(range(LOCK_TRIES)):
        fd = _open_lock(lock)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(fd, 32).decode(errors="replace").strip() or "unknown"
            os.close(fd)
            if not tries_left:
                raise SessionBusy(log.parent.name, holder) from None
            time.sleep(LOCK_PAUSE_S)
            continue
        except OSError:
            warnings.append(f"{lock}: {_NO_LOCKS}")
        if _is_file_at(fd, lock):
            break
        os.close(fd)  # the file was removed meanwhile; another process may have a new one
    else:
        raise SessionBusy(log.parent.name, "unknown")
    try:
        pid = f"{os.getpid()}\n".encode()
        os.pwrite(fd, pid, 0)
        os.ftruncate(fd, len(pid))
    except OSError as error:
        os.close(fd)
        raise unwritable(lock, error) from error
    return fd


def _open_lock(lock: Path) -> int:
    try:
        make_private_folder(lock.parent)
        return os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        if error.errno in _NO_FILE and os.path.lexists(lock):
            raise RecordError(
                f"cannot lock the session: {lock} is not a file that can be written",
                hint="Remove it: only the lock file may have this name.",
            ) from error
        raise unwritable(lock, error) from error


def _is_file_at(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except OSError:
        return False


def unwritable(path: Path, error: OSError) -> RecordError:
    """Return the error for a session folder that cannot be written."""
    return RecordError(
        f"cannot record the session: {error.filename or path}: {error.strerror}",
        hint="Nothing runs until the session can be recorded. Free disk space or set state.dir "
        "(CTXAGENT_STATE_DIR) to a writable folder.",
    )
