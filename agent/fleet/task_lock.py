"""The lock of a task: an open file that also names the process working on the task."""

import fcntl
import os
import socket
import time
from contextlib import suppress

from ...tools.system.process_table import birth

_NAMED_BYTES = 200


def take(fd: int, seconds: float = 0.0) -> bool:
    """Wait `seconds`, then try to take the lock; return True if it was free."""
    time.sleep(seconds)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def name_holder(fd: int, pid: int) -> None:
    """Write the process that works on the task into the lock file."""
    born = (birth(pid) or b"-").decode()
    os.pwrite(fd, f"{pid} {born} {socket.gethostname()}\n".ljust(_NAMED_BYTES).encode(), 0)


def holder(fd: int) -> int | None:
    """Return the process named in the lock file, if it still runs on this machine."""
    with suppress(ValueError):
        pid, born, host = os.pread(fd, _NAMED_BYTES, 0).decode(errors="replace").split()
        if host == socket.gethostname() and birth(int(pid)) == born.encode():
            return int(pid)
    return None
