"""Terminal modes: restored however the program ends, and set again after a stop or a change by
another program. A terminal that accepts no output blocks nothing.
"""

import asyncio
import os
import pty
import re
import select
import signal
import subprocess
import termios
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from prompt_toolkit.input import create_input

from ctxagent.agent.config.keyboard import KeyboardSettings
from ctxagent.agent.errors import CtxagentError
from ctxagent.agent.ui.status import Fragment
from ctxagent.agent.ui.terminal.output import output_for
from ctxagent.agent.ui.terminal.terminal import Terminal as Inline
from ctxagent.agent.ui.terminal.window import TerminalWindow

from ..support.command import COMMAND, PATIENCE, Place
from ..support.server.loopback import Say, Server
from ..support.terminal.screen import Terminal

PHASES = {
    "tool": (Say(tools=[("Bash", {"command": "echo under way; sleep 300"})]), "under way"),
    "question": (Say(tools=[("Bash", {"command": "touch made"})]), "[y]es"),
    "stream": (Say("Half", fault="silence"), "Half"),
}
WORDS = "The quick brown fox jumps over the lazy dog and back again, as foxes do all day long."


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def untouched() -> list[object]:
    """The modes of a new terminal."""
    master, slave = pty.openpty()
    try:
        return termios.tcgetattr(slave)
    finally:
        os.close(master)
        os.close(slave)


def given_back(terminal: Terminal) -> None:
    assert terminal.left == untouched()
    raw = terminal.raw
    for switch, final in (
        (rb"\?2004", b"l"), (rb"\?1004", b"l"), (rb"\?25", b"h"), (rb"\?7", b"h"),
    ):  # fmt: skip
        *_, last = re.finditer(rb"\x1b\[" + switch + rb"([hl])", raw)
        assert last[1] == final, switch
    *_, colour = re.finditer(rb"\x1b\[([\d;]*)m", raw)
    assert colour[1] in (b"", b"0"), "a colour is left"
    assert "% full" not in terminal.text(), "the status line is left on the screen"
    assert "❯ \n" not in terminal.text()


def kill(number: int) -> Callable[[Terminal], None]:
    return lambda terminal: terminal.signal(number)


WAYS: dict[str, Callable[[Terminal], None]] = {
    "quit": lambda terminal: terminal.type("/quit\r"),
    "ctrl-d": lambda terminal: terminal.press("ctrl-d"),
    "ctrl-c twice": lambda terminal: terminal.type("\x03\x03"),
    "TERM": kill(signal.SIGTERM),
    "HUP": kill(signal.SIGHUP),
}


@pytest.mark.variants
@pytest.mark.parametrize("way", WAYS)
def test_leaving_at_rest(place: Place, way: str) -> None:
    with Server([Say("Yes.")]) as server:
        terminal = Terminal(cwd=place.project, env=place.server(server.url))
        terminal.see("% full")
        terminal.type("go\r")
        terminal.see(" out · ")
        WAYS[way](terminal)
        terminal.leave()
    given_back(terminal)
    assert terminal.text().count("Resume with: ctxagent --resume") == 1


@pytest.mark.variants
@pytest.mark.parametrize("way", ["TERM", "HUP"])
@pytest.mark.parametrize("phase", PHASES)
def test_leaving_while_it_works(place: Place, phase: str, way: str) -> None:
    mode = "ask" if phase == "question" else "bypass"
    step, shown = PHASES[phase]
    with Server([step]) as server:
        terminal = Terminal(
            "--permission-mode", mode, cwd=place.project, env=place.server(server.url)
        )
        terminal.see("% full")
        terminal.type("go\r")
        terminal.see(shown)
        WAYS[way](terminal)
        assert terminal.leave() == 130
    given_back(terminal)
    assert place.entries()[-1]["status"] == "interrupted"


class Faulty:
    """A host that raises an internal error after a key press."""

    working = False

    def __init__(self) -> None:
        self.broken = False

    def status(self, width: int) -> list[Fragment]:
        if self.broken:
            raise ZeroDivisionError("a fault in the status line")
        return [("", "fine")]

    def status_command_line(self, width: int) -> list[Fragment]:
        return []

    def live(self) -> Sequence[object]:
        return []

    def show_error(self, error: CtxagentError) -> None:
        raise error

    def cycle_mode(self) -> None:
        self.broken = True


def test_a_fault_while_it_paints(tmp_path: Path) -> None:
    master, slave = pty.openpty()
    found = termios.tcgetattr(slave)
    host = Faulty()

    async def run() -> None:
        with os.fdopen(slave, "r", closefd=False) as keys, os.fdopen(slave, "w") as stream:
            terminal = Inline(
                host, input=create_input(keys), output=(output := output_for(stream)),  # type: ignore[arg-type]
                cwd=tmp_path, history=None, keys=KeyboardSettings(), vi=False,
                window=TerminalWindow(output, project="project"),
            )  # fmt: skip
            os.write(master, b"\x1b[Z")
            try:
                await terminal.run(lambda: None)
            finally:
                assert termios.tcgetattr(slave) == found
                terminal.output.drain()

    with pytest.raises(ZeroDivisionError, match="status line"):
        asyncio.run(run())
    shown = b""
    while select.select([master], [], [], 1.0)[0] and (data := _read(master)):
        shown += data
    os.close(master)
    assert shown.rindex(b"?2004l") > shown.rindex(b"?2004h")


def _read(master: int) -> bytes:
    try:
        return os.read(master, 65_536)
    except OSError:  # the other side is closed
        return b""


def shell(place: Place, server: Server) -> Terminal:
    """A terminal with a shell, in which the command runs."""
    env = {**place.server(server.url), "PS1": "SHELL> "}
    terminal = Terminal("--norc", "--noprofile", "-i", cwd=place.project, env=env, command="bash")
    terminal.see("SHELL>")
    terminal.type(f"{COMMAND}\r")
    terminal.see("% full")
    return terminal


def test_suspend_and_resume(place: Place) -> None:
    with Server([Say("I am here.")]) as server:
        terminal = shell(place, server)
        terminal.type("half a sen")
        terminal.see("half a sen")
        terminal.press("ctrl-z")
        terminal.see("Stopped")
        terminal.type("echo it is $((40 + 2))\r")
        shown = terminal.see("it is 42")
        assert "half a sen" not in shown
        terminal.type("fg\r")
        terminal.see("half a sen")
        terminal.type("tence\r")
        terminal.see("I am here.")
        assert terminal.text().count("❯ half a sentence") == 1
        terminal.press("ctrl-d")
        terminal.see("Resume with")
        terminal.type("exit\r")
        terminal.leave()


def test_suspend_during_a_turn(place: Place) -> None:
    text = "\n\n".join(f"Paragraph {n:02d}. {WORDS}" for n in range(20))
    with Server([Say(text, deltas=200, pace=0.01)]) as server:
        terminal = shell(place, server)
        terminal.type("talk\r")
        terminal.see("Paragraph 02")
        terminal.press("ctrl-z")
        terminal.see("Stopped")
        terminal.type("echo it is $((40 + 2))\r")
        terminal.see("it is 42")
        terminal.type("fg\r")
        text = terminal.see(" out · ")
        terminal.press("ctrl-d")
        terminal.see("Resume with")
        terminal.type("exit\r")
        terminal.leave()
    assert [text.count(f"Paragraph {n:02d}.") for n in range(20)] == [1] * 20


def test_suspend_by_a_signal(place: Place) -> None:
    with Server([Say("I am here.")]) as server:
        terminal = Terminal(cwd=place.project, env=place.server(server.url))
        terminal.see("% full")
        terminal.type("half")
        terminal.see("❯ half")
        needed = terminal.modes()
        terminal.signal(signal.SIGSTOP)
        termios.tcsetattr(terminal.child.child_fd, termios.TCSANOW, untouched())
        terminal.signal(signal.SIGCONT)
        terminal.see(lambda _: terminal.modes() == needed)
        terminal.type(" of it\r")
        terminal.see("I am here.")
        terminal.press("ctrl-d")
        terminal.leave()
    given_back(terminal)


@pytest.mark.skipif(os.geteuid() != 0, reason="the agent's /proc is closed to ordinary users")
def test_modes_that_a_command_has_changed(place: Place) -> None:
    # What it has changed may be mended before it could be looked at.
    mess = ("Bash", {"command": "stty sane -F /proc/$PPID/fd/0 && echo it is changed"})
    with Server([Say(tools=[mess]), Say("One."), Say("Two.")]) as server:
        terminal = Terminal(
            "--permission-mode", "bypass", "-c", "sandbox.mode=off", cwd=place.project,
            env=place.server(server.url),
        )  # fmt: skip
        terminal.see("% full")
        needed = terminal.modes()
        terminal.type("go\r")
        terminal.see("One.")
        terminal.see("  it is changed")
        assert terminal.modes() == needed
        terminal.type("go on\r")
        terminal.see("Two.")
        terminal.press("ctrl-d")
        assert terminal.leave() == 0
    given_back(terminal)


LONG = "\n\n".join(f"Paragraph {n:04d}. {WORDS}" for n in range(1_500))


class Steps:
    """A long text, then a tool call; `went_on` is set when the tool result has arrived."""

    def __init__(self) -> None:
        self.went_on = threading.Event()

    def __call__(self, body: dict[str, Any]) -> Say:
        if body["messages"][-1]["content"][0]["type"] == "tool_result":
            self.went_on.set()
            return Say("The end.")
        return Say(LONG, deltas=500, tools=[("Bash", {"command": "echo on"})])


def all_there(text: str) -> None:
    assert [text.count(f"Paragraph {n:04d}.") for n in range(1_500)] == [1] * 1_500
    assert text.count("The end.") == 1


@pytest.mark.full
def test_a_paused_terminal_blocks_nothing(place: Place) -> None:
    steps = Steps()
    with Server(steps) as server:
        terminal = Terminal(
            "--permission-mode", "bypass", cwd=place.project, env=place.server(server.url)
        )
        terminal.see("% full")
        terminal.type("go\r")
        assert steps.went_on.wait(PATIENCE)
        all_there(terminal.see(" out · "))
        terminal.press("ctrl-d")
        assert terminal.leave() == 0


def test_a_full_pipe_blocks_nothing(place: Place) -> None:
    steps = Steps()
    master, slave = pty.openpty()
    with Server(steps) as server:
        process = place.start(
            "--permission-mode", "bypass", env=place.server(server.url),
            stdin=slave, stdout=subprocess.PIPE,
        )  # fmt: skip
        os.write(master, b"go\n")
        assert steps.went_on.wait(PATIENCE)
        os.write(master, b"\x04")  # the end of the input
        text, _ = process.communicate()
        assert process.returncode == 0
    os.close(master)
    os.close(slave)
    all_there(text)


def test_leaving_with_a_paused_terminal(place: Place) -> None:
    steps = Steps()
    with Server(steps) as server:
        terminal = Terminal(
            "--permission-mode", "bypass", cwd=place.project, env=place.server(server.url)
        )
        terminal.see("% full")
        terminal.type("go\r")
        assert steps.went_on.wait(PATIENCE)
        terminal.signal(signal.SIGTERM)
        assert os.waitpid(terminal.child.pid, 0)[1] == 130 << 8
