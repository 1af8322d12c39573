"""A terminal with a user: the real command in tmux, which rewraps lines at each new width and keeps
the scrollback. The tmux server is separate and has no user configuration.
"""

import shlex
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from ..command import COMMAND
from ..machine import program

SECONDS = 120.0  # timeout, not a measurement
PAUSE = 0.02  # seconds between polls
KEYS = {
    "enter": "Enter", "esc": "Escape", "ctrl-c": "C-c", "ctrl-d": "C-d", "ctrl-z": "C-z",
    "up": "Up", "down": "Down", "tab": "Tab",
}  # fmt: skip


class Pane:
    """A tmux pane. `see` waits until the pane shows something; `type` and `press` send keys."""

    def __init__(self, tmux: Callable[..., str], code: Path) -> None:
        self._tmux = tmux
        self._code = code  # file with the exit code, because tmux loses some

    def text(self) -> str:
        """Return the text of the pane, after the text that has scrolled out of it. Wrapped lines
        are joined.
        """
        return self._tmux("capture-pane", "-pJ", "-S", "-")

    def rows(self) -> list[str]:
        """Return the visible rows of the pane."""
        return self._tmux("capture-pane", "-p").split("\n")

    def tell(self, what: str) -> str:
        """Return a variable of tmux, such as `cursor_y` or `alternate_on`."""
        return self._tmux("display-message", "-p", f"#{{{what}}}").strip()

    def type(self, text: str) -> None:
        self._tmux("send-keys", "-l", "--", text)

    def press(self, key: str) -> None:
        self.key(KEYS[key])

    def key(self, name: str) -> None:
        """Press a key by its name in tmux."""
        self._tmux("send-keys", name)

    def paste(self, text: str) -> None:
        self._tmux("set-buffer", "--", text)
        self._tmux("paste-buffer", "-p")

    def resize(self, columns: int, rows: int) -> None:
        self._tmux("resize-window", "-x", str(columns), "-y", str(rows))

    def see(self, wanted: str | Callable[[str], bool]) -> str:
        """Wait until the pane shows `wanted`; return the whole text."""
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            text = self.text()
            if wanted(text) if callable(wanted) else wanted in text:
                return text
            time.sleep(PAUSE)
        raise AssertionError(f"never seen: {wanted!r}\n{self.text()}")

    def still(self, holds: Callable[[str], None] = lambda text: None) -> str:
        """Return the text once it is unchanged for a second and `holds` passes. Retry otherwise,
        because a busy machine can suspend the program for longer than that.
        """
        until = time.monotonic() + SECONDS
        while True:
            text = self._unchanged()
            try:
                holds(text)
            except AssertionError:
                if time.monotonic() >= until:
                    raise
            else:
                return text

    def rest(self) -> None:
        """Wait until no painted output is pending and the program is idle, rather than suspended by
        a busy machine.
        """
        while True:
            text = self._unchanged(0.3)
            if not self._is_at_work() and self.text() == text:
                return

    def _is_at_work(self) -> bool:
        """Return True if a thread of the program is running or could run."""
        shell = self.tell("pane_pid")
        for child in Path(f"/proc/{shell}/task/{shell}/children").read_text().split():
            for thread in Path(f"/proc/{child}/task").glob("*/stat"):
                with suppress(OSError):  # it has ended meanwhile
                    if thread.read_text().rpartition(")")[2].split()[0] in "RD":
                        return True
        return False

    def _unchanged(self, seconds: float = 1.0) -> str:
        text, since = self.text(), time.monotonic()
        while time.monotonic() - since < seconds:
            time.sleep(PAUSE)
            if (now := self.text()) != text:
                text, since = now, time.monotonic()
        return text

    def leave(self) -> int:
        """Wait for the program to end; return its exit code."""
        until = time.monotonic() + SECONDS
        while not (self._code.exists() and self._code.read_text()):
            assert time.monotonic() < until, f"it does not end\n{self.text()}"
            time.sleep(PAUSE)
        return int(self._code.read_text())


@contextmanager
def pane(
    *arguments: str, cwd: Path, env: Mapping[str, str], columns: int = 80, rows: int = 24,
    command: str = COMMAND,
) -> Iterator[Pane]:  # fmt: skip
    """Run the command in a pane of a tmux server that ends with the block."""
    socket = ["-S", str(cwd.parent / "tmux")]

    def tmux(*words: str) -> str:
        done = subprocess.run(
            [str(program("tmux")), *socket, *words],
            env=dict(env), capture_output=True, text=True, timeout=SECONDS,
        )  # fmt: skip
        assert done.returncode == 0, f"tmux {words}: {done.stderr}"
        return done.stdout

    inside = {**env, "TERM": "tmux-256color"}
    line = shlex.join([command, *arguments])
    given = " ".join(f"{key}={shlex.quote(value)}" for key, value in inside.items())
    code, config = cwd.parent / "code", cwd.parent / "tmux.conf"
    config.write_text(
        "set -g remain-on-exit on\nset -g history-limit 20000\nset -g status off\n"
        "set -g default-terminal tmux-256color\n"
    )
    tmux(
        "-f", str(config), "new-session", "-d", "-x", str(columns), "-y", str(rows),
        "-c", str(cwd), f"env {given} {line}; echo $? > {code}",
    )  # fmt: skip
    try:
        yield Pane(tmux, code)
    finally:
        tmux("kill-server")
