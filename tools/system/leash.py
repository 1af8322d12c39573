"""Run a command that ends with the process which started it, however that one ends.

A script of its own, started as `python leash.py FD[,BYTES] COMMAND…` in a session of its own. FD is
the read end of a pipe whose other end the starter alone holds: the kernel closes it when the
starter is gone, also by SIGKILL. Then, or when the command has ended, what is left of the process
group is asked to end and, after a moment, killed. Stdin, stdout and stderr are the command's. With
BYTES no file that the command writes becomes larger.
"""

import os
import select
import signal
import sys
import time

GRACE_S = 0.5  # between asking the group to end and killing it


def main(held: int, command: list[str]) -> int:
    """Run the command to its end or to that of the starter; return its exit code, 127 where it
    cannot be started."""
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: None)  # what the group is asked with
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
    for stream in (0, 1):  # the command's alone: who reads them sees its end
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
    if max_bytes:  # neither this process nor its children write a larger file
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (int(max_bytes), int(max_bytes)))
    sys.exit(main(int(held), sys.argv[2:]))
