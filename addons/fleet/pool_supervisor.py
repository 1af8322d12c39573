"""Run a pool of Parsl workers that ends when its fleet ends, for whatever reason.

This is a separate script, started on the worker machines as `python pool_supervisor.py LOCK PID
COMMAND…`. LOCK is a file on a shared file system; the fleet locks it while it runs and writes its
PID into it. When the lock is free or another fleet holds it, the pool and idle workers are ended. A
worker with a running agent ends with its agent, and this process waits for it.
"""

import ctypes
import fcntl
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

LOCK_CHECK_S = 10.0  # between two checks of the lock
MAX_FAILED_CHECKS = 2  # consecutive checks without the fleet before the pool is ended
PROCESS_CHECK_S = 0.5  # between two checks of the processes
SET_CHILD_SUBREAPER = 36  # of prctl: orphans become children of this process


def fleet_has_ended(lock: str, pid: str) -> bool:
    """Return True if the fleet has ended; False if that is unknown."""
    try:
        fd = os.open(lock, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return os.read(fd, 32).decode(errors="replace").strip() != pid
    except OSError:  # a file system without locks
        return False
    finally:
        os.close(fd)


def children(pid: int) -> list[int]:
    """Return the child processes of a process."""
    found = list[int]()
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (thread / "children").read_text().split())
    return found


def end_idle_workers() -> None:
    """End workers without an agent; wait for all others. An agent has its own process session, so
    it is not ended.
    """
    own = os.getsid(0)
    with suppress(ChildProcessError):
        while True:
            for worker in children(os.getpid()):
                with suppress(ProcessLookupError):
                    if os.getsid(worker) == own and not children(worker):
                        os.kill(worker, signal.SIGTERM)
            if not os.waitpid(-1, os.WNOHANG)[0]:
                time.sleep(PROCESS_CHECK_S)


def main(lock: str, pid: str, command: list[str]) -> int:
    """Run the pool until it or its fleet ends; return the exit code."""
    if hasattr(libc := ctypes.CDLL(None), "prctl"):
        libc.prctl(SET_CHILD_SUBREAPER, 1)
    pool, failed_checks = subprocess.Popen(command), 0
    signal.signal(signal.SIGTERM, lambda *_: pool.terminate())
    next_check = time.monotonic() + LOCK_CHECK_S
    while failed_checks < MAX_FAILED_CHECKS:
        try:
            return pool.wait(PROCESS_CHECK_S)
        except subprocess.TimeoutExpired:
            if time.monotonic() >= next_check:
                next_check = time.monotonic() + LOCK_CHECK_S
                failed_checks = failed_checks + 1 if fleet_has_ended(lock, pid) else 0
    pool.kill()
    pool.wait()
    end_idle_workers()
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
