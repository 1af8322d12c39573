"""A terminal with a person at it: the real command in a pseudo-terminal, its screen in pyte."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pexpect
import pyte

from .command import COMMAND

SECONDS = 30.0  # a bound for what never comes; nothing is measured with it


class Terminal:
    """`see` waits until the screen shows something; `type` and `press` send keys."""

    def __init__(
        self, *arguments: str, cwd: Path, env: Mapping[str, str], columns: int = 100, rows: int = 40
    ) -> None:
        self.screen = pyte.HistoryScreen(columns, rows, history=5_000)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self.child = pexpect.spawn(
            COMMAND, list(arguments), cwd=str(cwd), env={**env, "TERM": "xterm-256color"},
            dimensions=(rows, columns), timeout=SECONDS,
        )  # fmt: skip

    def text(self) -> str:
        """What the screen shows, and above it what has scrolled out of it."""
        above = [
            "".join(line[x].data for x in range(self.screen.columns)).rstrip()
            for line in self.screen.history.top
        ]
        return "\n".join([*above, *(line.rstrip() for line in self.screen.display)])

    def type(self, text: str) -> None:
        self.child.send(text)

    def press(self, key: str) -> None:
        self.child.send({"enter": "\r", "esc": "\x1b", "ctrl-c": "\x03", "ctrl-d": "\x04"}[key])

    def see(self, wanted: str | Callable[[str], bool]) -> str:
        """Read until the screen shows `wanted`; the whole text then."""
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            text = self.text()
            if wanted(text) if callable(wanted) else wanted in text:
                return text
            self._read()
        raise AssertionError(f"never seen: {wanted!r}\n{self.text()}")

    def _read(self) -> None:
        try:
            data = self.child.read_nonblocking(65_536, timeout=0.2)
        except pexpect.TIMEOUT:
            return
        except pexpect.EOF as error:
            raise AssertionError(f"the program ended\n{self.text()}") from error
        self.raw += data
        self._stream.feed(data)

    def signal(self, number: int) -> None:
        self.child.kill(number)

    def hang_up(self) -> None:
        """Close the window, and wait for the program to end."""
        self.child.ptyproc.fileobj.close()
        self.child.wait()

    def leave(self) -> int:
        """Wait for the program to end; its exit code."""
        while self.child.isalive():
            try:
                data = self.child.read_nonblocking(65_536, timeout=SECONDS)
            except pexpect.EOF:
                break
            self.raw += data
            self._stream.feed(data)
        self.child.close()
        return int(self.child.exitstatus if self.child.exitstatus is not None else -1)
