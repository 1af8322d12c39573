"""A terminal with a user: the real command in a pseudo-terminal, with its screen in pyte."""

import termios
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import pexpect
import ptyprocess
import pyte

from .. import starter
from ..command import COMMAND

HISTORY = 20_000  # lines
SECONDS = 120.0  # timeout, not a measurement
KEYS = {
    "enter": "\r", "esc": "\x1b", "ctrl-c": "\x03", "ctrl-d": "\x04", "ctrl-z": "\x1a",
}  # fmt: skip


class Child(pexpect.spawn):
    """A program in a terminal."""

    def _spawnpty(self, args: list[str], **options: Any) -> ptyprocess.PtyProcess:
        cwd, env, size = Path(options["cwd"] or "."), options["env"], options["dimensions"]
        if args[0] == COMMAND and starter.can_start(env):
            return starter.in_terminal(args, cwd, env, size)
        return starter.program_in_terminal(args, cwd, env, size)


class Terminal:
    """A terminal. `see` waits until the screen shows something; `type` and `press` send keys."""

    def __init__(
        self, *arguments: str, cwd: Path, env: Mapping[str, str], columns: int = 100,
        rows: int = 40, command: str = COMMAND,
    ) -> None:  # fmt: skip
        self.screen = pyte.HistoryScreen(columns, rows, history=HISTORY)
        self._above: list[str] = []  # text of the history, as far as it was read
        self._first: Any = None  # first line of the history at that time
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self._fed = 0  # bytes fed to the screen
        self.left: list[Any] = []  # modes of the terminal after the program ended
        self.child = Child(
            command, list(arguments), cwd=str(cwd), env={"TERM": "xterm-256color", **env},
            dimensions=(rows, columns), timeout=SECONDS,
        )  # fmt: skip

    def text(self) -> str:
        """Return the text of the screen, after the text that has scrolled out of it."""
        self._feed()
        history = self.screen.history.top
        if not 0 < len(self._above) <= len(history) < HISTORY or history[0] is not self._first:
            self._above, self._first = [], history[0] if history else None
        for line in islice(history, len(self._above), None):
            cells = (line[x].data for x in range(max(line, default=0) + 1))
            self._above.append("".join(cells).rstrip())
        return "\n".join([*self._above, *(line.rstrip() for line in self.screen.display)])

    def type(self, text: str) -> None:
        self.child.send(text)

    def press(self, key: str) -> None:
        self.child.send(KEYS[key])

    def resize(self, columns: int, rows: int) -> None:
        """Resize like a terminal that does not rewrap lines: rows without room move to the history,
        so that the cursor keeps its position in the text.
        """
        self._feed()
        screen = self.screen
        for _ in range(screen.cursor.y + 1 - rows):
            at, screen.cursor.y = screen.cursor.y, screen.lines - 1
            screen.index()
            screen.cursor.y = at - 1
        for row in range(rows, screen.lines):
            screen.buffer.pop(row, None)
        screen.lines = rows
        screen.resize(rows, columns)
        screen.set_margins()
        self.child.setwinsize(rows, columns)

    def modes(self) -> list[Any]:
        return termios.tcgetattr(self.child.child_fd)

    def see(self, wanted: str | Callable[[str], bool]) -> str:
        """Read until the screen shows `wanted`; return the whole text."""
        until, looked = time.monotonic() + SECONDS, -1
        while time.monotonic() < until:
            if looked != len(self.raw) or callable(wanted):
                looked, text = len(self.raw), self.text()
                if wanted(text) if callable(wanted) else wanted in text:
                    return text
            self._read()
        raise AssertionError(f"never seen: {wanted!r}\n{self.text()}")

    def rest(self) -> None:
        """Read until no output has come for a fifth of a second."""
        until, before = time.monotonic() + SECONDS, -1
        while len(self.raw) != before and time.monotonic() < until:
            before = len(self.raw)
            self._read()

    def keys(self, choices: str = "[y]es") -> str:
        """Wait until a question accepts keys: its choices are then no longer dim."""

        def bold(_: str) -> bool:
            for y, row in enumerate(self.screen.display):
                if choices in row:
                    return bool(self.screen.buffer[y][row.index(choices)].bold)
            return False

        return self.see(bold)

    def hear(self, wanted: bytes, times: int = 1) -> None:
        """Read until `wanted` has come `times` times; faster than `see`."""
        until = time.monotonic() + SECONDS
        while self.raw.count(wanted) < times:
            assert time.monotonic() < until, f"never heard: {wanted!r}\n{self.text()}"
            self._read()

    def _feed(self) -> None:
        self._stream.feed(self.raw[self._fed :])
        self._fed = len(self.raw)

    def _read(self) -> None:
        try:
            data = self.child.read_nonblocking(65_536, timeout=0.2)
        except pexpect.TIMEOUT:
            return
        except pexpect.EOF as error:
            raise AssertionError(f"the program ended\n{self.text()}") from error
        self.raw += data

    def signal(self, number: int) -> None:
        self.child.kill(number)

    def hang_up(self) -> None:
        """Close the terminal, and wait for the program to end."""
        self.child.ptyproc.fileobj.close()
        self.child.wait()

    def leave(self) -> int:
        """Read the remaining output and wait for the end of the program; return its exit code."""
        until = time.monotonic() + SECONDS
        with suppress(pexpect.EOF):
            while True:
                assert time.monotonic() < until, f"it does not end\n{self.text()}"
                with suppress(pexpect.TIMEOUT):
                    self.raw += self.child.read_nonblocking(65_536, timeout=0.2)
        while self.child.isalive():  # it closes the terminal shortly before it ends
            assert time.monotonic() < until, f"it does not end\n{self.text()}"
            time.sleep(0.01)
        self.left = self.modes()
        self.child.close()
        return int(self.child.exitstatus if self.child.exitstatus is not None else -1)
