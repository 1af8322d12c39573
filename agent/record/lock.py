"""The lock of a session: one process writes, and the kernel frees the lock when it ends, however it
ends. So what a lock file says is only ever read to be told; a stale one is none."""

import errno
import fcntl
import os
import time
from pathlib import Path

from ..errors import RecordError, SessionBusy

NAME = "lock"
TRIES, PAUSE = 5, 0.02  # a list of sessions holds a lock for a moment, to see whether it is free

_NO_LOCKS = "this file system has no locks: make sure that no other process uses the session"
_NO_FILE = (errno.EISDIR, errno.ELOOP, errno.EACCES, errno.EPERM, errno.ENXIO)


def acquire(log: Path, warnings: list[str]) -> int:
    """The open lock of a log: a file beside it that names the holder's pid. Where the file system
    has no locks, a text is added to `warnings`.

    Raises SessionBusy when another process has it, RecordError when it cannot be made.
    """
    lock = log.with_name(NAME)
    for left in reversed(range(TRIES)):
        fd = _opened(lock)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(fd, 32).decode(errors="replace").strip() or "unknown"
            os.close(fd)
            if not left:
                raise SessionBusy(log.parent.name, holder) from None
            time.sleep(PAUSE)
            continue
        except OSError:
            warnings.append(f"{lock}: {_NO_LOCKS}")
        if _is_at(fd, lock):
            break
        os.close(fd)  # somebody removed it meanwhile, and another process may have a new one
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


def _opened(lock: Path) -> int:
    try:
        make_private(lock.parent)
        return os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        if error.errno in _NO_FILE and os.path.lexists(lock):
            raise RecordError(
                f"cannot lock the session: {lock} is not a file that can be written",
                hint="Remove it; nothing else may have that name there.",
            ) from error
        raise unwritable(lock, error) from error


def _is_at(fd: int, path: Path) -> bool:
    """Whether an open file is still the one at a path."""
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except OSError:
        return False


def make_private(folder: Path) -> None:
    """Make a folder and its missing parents, open to their owner alone. Raises OSError."""
    missing = []
    while not folder.exists():
        if folder.is_symlink():
            raise FileNotFoundError(errno.ENOENT, "a symlink that leads nowhere", str(folder))
        missing.append(folder)
        folder = folder.parent
    for each in reversed(missing):
        each.mkdir(mode=0o700, exist_ok=True)


def unwritable(path: Path, error: OSError) -> RecordError:
    return RecordError(
        f"cannot record the session: {error.filename or path}: {error.strerror}",
        hint="Nothing more is done until it can be recorded. Free the disk or set state.dir "
        "(CTXAGENT_STATE_DIR) to a folder that can be written.",
    )
