"""The lock of a task: an open file, which also names the process that works on the task."""

import fcntl
import os
import socket
import time
from contextlib import suppress

from ...tools.system.process_table import birth

_NAMED_BYTES = 200


def take(fd: int, seconds: float = 0.0) -> bool:
    """Take the lock if it is free after some seconds; return whether it is ours."""
    time.sleep(seconds)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def name_holder(fd: int, pid: int) -> None:
    """Write into the lock which process works on the task."""
    born = (birth(pid) or b"-").decode()
    os.pwrite(fd, f"{pid} {born} {socket.gethostname()}\n".ljust(_NAMED_BYTES).encode(), 0)


def holder(fd: int) -> int | None:
    """Return the process that the lock names, if it runs on this machine and is the same still."""
    with suppress(ValueError):
        pid, born, host = os.pread(fd, _NAMED_BYTES, 0).decode(errors="replace").split()
        if host == socket.gethostname() and birth(int(pid)) == born.encode():
            return int(pid)
    return None
