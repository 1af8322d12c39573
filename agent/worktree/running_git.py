"""A command of git that runs on: it reads questions from stdin, a line each, and answers them. Many
questions then cost one start.

Git repeats a line that is no question and writes out at once what it has said until then; so one
that nobody can guess, behind each question, tells where the answer ends. The process ends when its
stdin is closed, and so with ours, however that ends.
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
    """A git that was started to be asked. Raises OSError where it cannot be started."""

    def __init__(self, command: Sequence[str], folder: str, env: Mapping[str, str]) -> None:
        self.asked = 0  # questions
        self._process = subprocess.Popen(
            command, cwd=folder, env=env, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        self._end = f"end {secrets.token_hex(8)}\n".encode()
        weakref.finalize(self, _end, self._process, os.getpid())

    def ask(self, line: str, seconds: float) -> bytes:
        """Return the answer to a question. Raises OSError where there is none within `seconds`; it
        is not to be asked again then."""
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
    """Kill git without waiting for it: this runs wherever garbage is collected, in any thread.

    `subprocess` reaps the process when it starts another. A forked child leaves its parent's git
    alone.
    """
    if os.getpid() != owner:
        return
    process.kill()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
