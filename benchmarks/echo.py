"""Measure typing echo: milliseconds from a key to its character in the terminal output, in the real
command under a pseudo-terminal. `streaming`: while a Markdown reply streams at 200 deltas per
second. `starting`: in the first three seconds, while the SDK is imported.
"""

import fcntl
import multiprocessing
import os
import pty
import select
import statistics
import struct
import sys
import tempfile
import termios
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import measure
from serving import environ

from ctxagent.tests.support.server.loopback import Say, Server

DELTAS = 200  # a second
SIZES: dict[str, dict[str, Any]] = {  # seconds of streaming and after a start
    "full": {"streams": 15.0, "starts": 8, "after": 3.0},
    "quick": {"streams": 8.0, "starts": 1, "after": 3.0},
    "tiny": {"streams": 4.5, "starts": 1, "after": 0.2},
}
PAUSES = (0.03, 0.05)  # alternating pauses between keys, in seconds
FIRST = 0x100  # first code point to type; each is used once and none is in the text
LINE = 40  # keys after which the line is cleared

BLOCK = """\
## Part {n}

A paragraph with **bold** words, `code` in it and a [link](https://example.org/{n}), long enough
to be wrapped in any terminal that people use for their work.

- one item
- another one, with `code`
  - and one below it

```python
def part_{n}(values: list[int]) -> int:
    total = 0
    for value in values:
        total += value * {n}
    return total
```

| name | value |
| --- | --- |
| part | {n} |
| next | {n}1 |

"""


def main(streams: float, starts: int, after: float) -> Iterator[measure.Table]:
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        port, done = context.Queue(), context.Event()
        server = context.Process(target=serve, args=(port, done, streams), daemon=True)
        server.start()
        env = environ(folder, port.get())
        rows = {
            "streaming": figures(streaming(env, Path(folder), streams)),
            "starting": figures(
                [ms for _ in range(starts) for ms in starting(env, Path(folder), after)]
            ),
        }
        done.set()
        server.join()
    yield measure.Table("echo", rows)


def serve(
    port: "multiprocessing.Queue[str]",
    done: "multiprocessing.Event",  # type: ignore[valid-type]
    seconds: float,
) -> None:
    """Serve the model in a separate process, so that its work is not measured."""
    deltas = round(DELTAS * seconds)
    text = "".join(BLOCK.format(n=n) for n in range(deltas * 20 // len(BLOCK)))
    with Server(lambda body: Say(text, deltas=deltas, pace=1 / DELTAS)) as server:
        port.put(server.url)
        done.wait()  # type: ignore[attr-defined]


def figures(taken: list[float]) -> Mapping[str, float]:
    cuts = statistics.quantiles(taken, n=100)
    return {"keys": len(taken), "p50_ms": cuts[49], "p99_ms": cuts[98], "max_ms": max(taken)}


def streaming(env: Mapping[str, str], cwd: Path, seconds: float) -> list[float]:
    with command(env, cwd) as keys:
        keys.until(b"% full")
        os.write(keys.terminal, b"go\r")
        keys.until(b"Part 1")
        return list(keys.typed(seconds - 4.0))


def starting(env: Mapping[str, str], cwd: Path, seconds: float) -> list[float]:
    with command(env, cwd) as keys:
        keys.until("❯".encode())
        return list(keys.typed(seconds))


class Keys:
    def __init__(self, terminal: int) -> None:
        self.terminal = terminal
        self._shown = b""
        self._count = 0

    def until(self, wanted: bytes, seconds: float = 30.0) -> float:
        """Read until `wanted` has arrived; return the time."""
        end = time.perf_counter() + seconds
        while (left := end - time.perf_counter()) > 0:
            if select.select([self.terminal], [], [], left)[0]:
                self._shown += os.read(self.terminal, 65_536)
                if wanted in self._shown:
                    return time.perf_counter()
        raise TimeoutError(f"never seen: {wanted!r} after {self._shown[-500:]!r}")

    def typed(self, seconds: float) -> Iterator[float]:
        """Yield the milliseconds of each key typed in the next `seconds`."""
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            if self._count % LINE == LINE - 1:
                os.write(self.terminal, b"\x15")
            character = chr(FIRST + self._count).encode()
            self._shown = b""
            pressed = time.perf_counter()
            os.write(self.terminal, character)
            yield (self.until(character) - pressed) * 1000
            self._read_on(pressed + PAUSES[self._count % 2])
            self._count += 1

    def _read_on(self, until: float) -> None:
        while (left := until - time.perf_counter()) > 0:
            if select.select([self.terminal], [], [], left)[0]:
                os.read(self.terminal, 65_536)


@contextmanager
def command(env: Mapping[str, str], cwd: Path) -> Iterator[Keys]:
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(cwd)
        os.execve(measure.COMMAND, [measure.COMMAND], {**env, "TERM": "xterm-256color"})
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    try:
        yield Keys(terminal)
    finally:
        os.kill(pid, 15)
        while True:
            try:
                os.read(terminal, 65_536)
            except OSError:  # the other side has ended
                break
        os.waitpid(pid, 0)
        os.close(terminal)


if __name__ == "__main__":
    sys.exit(measure.run(main, SIZES))
