"""Run a command that ends with its parent process, however that process ends.

This is a separate script, started as `python end_with_parent.py FD[,BYTES] COMMAND…` in its own
session. FD is the read end of a pipe whose write end only the parent has: the kernel closes it when
the parent ends, even by SIGKILL. Then, or when the command ends, the rest of the process group gets
SIGTERM and, after a moment, SIGKILL. The command inherits stdin, stdout and stderr. BYTES limits
the size of files that the command writes.
"""

import os
import select
import signal
import sys
import time

GRACE_S = 0.5  # between SIGTERM and SIGKILL


def main(held: int, command: list[str]) -> int:
    """Run the command until it or the parent ends. Return its exit code, 127 if it cannot be
    started.
    """
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: None)  # the group gets SIGTERM, this process included
    try:
        pid = os.posix_spawnp(
            command[0],
            command,
            os.environ,
            file_actions=[(os.POSIX_SPAWN_CLOSE, fd) for fd in (held, woken, waker)],
            setsigdef=[signal.SIGCHLD, signal.SIGTERM],
        )
    except OSError as error:
        print(f"cannot start {command[0]}: {error.strerror}", file=sys.stderr)
        return 127
    for stream in (0, 1):  # only the command has them open, so that readers see its end
        os.close(stream)
    while held not in select.select([held, woken], [], [])[0]:
        os.read(woken, 100)
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            os.killpg(0, signal.SIGTERM)
            return os.waitstatus_to_exitcode(status) & 0xFF
    os.killpg(0, signal.SIGTERM)
    until = time.monotonic() + GRACE_S
    while time.monotonic() < until and not os.waitpid(pid, os.WNOHANG)[0]:
        select.select([woken], [], [], 0.05)
    os.killpg(0, signal.SIGKILL)  # this process, too
    return 1


if __name__ == "__main__":
    held, _, max_bytes = sys.argv[1].partition(",")
    if max_bytes:  # also limits this process
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (int(max_bytes), int(max_bytes)))
    sys.exit(main(int(held), sys.argv[2:]))
