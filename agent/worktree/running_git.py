"""A git command that keeps running: it reads questions from stdin, one per line, and answers them.
Many questions then need only one start.

Git repeats a line that is not a question and then flushes its output. An unguessable line after
each question therefore marks the end of the answer. The process ends when its stdin is closed, and
so at the latest with our own process.
"""

import os
import secrets
import select
import subprocess
import time
import weakref
from collections.abc import Mapping, Sequence

_READ_BYTES = 65_536


class RunningGit:
    """A running git process that answers questions. Raises OSError if it cannot be started."""

    def __init__(self, command: Sequence[str], folder: str, env: Mapping[str, str]) -> None:
        self.asked = 0  # number of questions
        self._process = subprocess.Popen(
            command, cwd=folder, env=env, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        self._end = f"end {secrets.token_hex(8)}\n".encode()
        weakref.finalize(self, _end, self._process, os.getpid())

    def ask(self, line: str, seconds: float) -> bytes:
        """Return the answer to a question. Raises OSError if there is none within `seconds`; do not
        use the process after that.
        """
        asked, said = self._process.stdin, self._process.stdout
        assert asked is not None
        assert said is not None
        self.asked += 1
        asked.write(f"{line}\n".encode() + self._end)
        ready, until, answer = select.poll(), time.monotonic() + seconds, bytearray()
        ready.register(said, select.POLLIN)
        while not answer.endswith(self._end):
            if not ready.poll(max(0, until - time.monotonic()) * 1e3):
                raise TimeoutError
            data = os.read(said.fileno(), _READ_BYTES)
            if not data:
                raise BrokenPipeError
            answer += data
        return bytes(answer[: -len(self._end)])


def _end(process: "subprocess.Popen[bytes]", owner: int) -> None:
    """Kill git without waiting: this runs in any thread during garbage collection.

    `subprocess` reaps the process when it starts another. A forked child leaves its parent's git
    alone.
    """
    if os.getpid() != owner:
        return
    process.kill()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
