"""The lock of a session: one process writes, and the kernel frees the lock when it ends, however it
ends."""

import fcntl
import os
from pathlib import Path

from ..errors import RecordError, SessionError

_NO_LOCKS = "this file system has no locks: make sure that no other process uses the session"


def acquire(log: Path, warnings: list[str]) -> int:
    """The open lock of a log: a file beside it that names the holder's pid. Where the file system
    has no locks, a text is added to `warnings`.

    Raises SessionError when another process has it, RecordError when it cannot be made.
    """
    lock = log.with_name("lock")
    try:
        make_private(log.parent)
        fd = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise unwritable(lock, error) from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(fd, 32).decode(errors="replace").strip() or "unknown"
        os.close(fd)
        raise SessionError(
            f"session {log.parent.name} is open in another process (pid {holder})",
            hint="End that process, or go on with a copy: `ctxagent --resume "
            f"{log.parent.name} --fork`.",
        ) from None
    except OSError:
        warnings.append(f"{lock}: {_NO_LOCKS}")
    try:
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    except OSError as error:
        os.close(fd)
        raise unwritable(lock, error) from error
    return fd


def make_private(folder: Path) -> None:
    """Make a folder and its missing parents, open to their owner alone. Raises OSError."""
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for each in reversed(missing):
        each.mkdir(mode=0o700, exist_ok=True)


def unwritable(path: Path, error: OSError) -> RecordError:
    return RecordError(
        f"cannot record the session: {path}: {error.strerror}",
        hint="Nothing more is done until it can be recorded. Free the disk or set state.dir "
        "(CTXAGENT_STATE_DIR) to a folder that can be written.",
    )
