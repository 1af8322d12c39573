"""The terminal's window: the title shows the state, and focus reports are never typed text."""

import re
import signal
from pathlib import Path

import pytest

from ctxagent.agent.ui.terminal.output import output_for
from ctxagent.agent.ui.terminal.window import TerminalWindow

from ..support.command import COMMAND, Place
from ..support.server.loopback import Say, Server
from ..support.terminal.screen import Terminal
from ..support.terminal.seat import Glass

ASKS = Say(tools=[("Bash", {"command": "touch made"})])
FOCUS_IN, FOCUS_OUT = "\x1b[I", "\x1b[O"
EDIT = "\x18\x05"  # Ctrl-X Ctrl-E


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def titled(terminal: Terminal, title: str) -> None:
    terminal.see(lambda _: terminal.screen.title == title)


def switches(terminal: Terminal) -> str:
    """The order of focus report switches (1, 0) and of title saves and restores (s, r)."""
    names = {b"\x1b[?1004h": "1", b"\x1b[?1004l": "0", b"\x1b[22;2t": "s", b"\x1b[23;2t": "r"}
    found = re.findall(rb"\x1b\[\?1004[hl]|\x1b\[2[23];2t", terminal.raw)
    return "".join(names[each] for each in found)


def test_the_title_tells_the_state_and_the_project(place: Place) -> None:
    steps = [ASKS, Say("Half", fault="silence")]
    with Server(steps) as server:
        terminal = Terminal(cwd=place.project, env=place.server(server.url))
        titled(terminal, "project")
        terminal.type("make it\r")
        titled(terminal, "? project")
        terminal.keys()
        terminal.type("y")
        titled(terminal, "● project")
        terminal.see("Half")
        terminal.press("ctrl-c")
        titled(terminal, "project")
        terminal.type("/rename Night\x1b[?25l\r")
        titled(terminal, "Night")
        terminal.press("ctrl-d")
        assert terminal.leave() == 0
    assert switches(terminal) == "1s0r0"


@pytest.mark.parametrize("variable", [{"CTXAGENT_UI_TITLE": "false"}, {"TERM": "linux"}])
def test_no_title_where_there_should_be_none(place: Place, variable: dict[str, str]) -> None:
    with Server([Say("Yes.")]) as server:
        env = place.server(server.url) | variable
        terminal = Terminal(cwd=place.project, env=env)
        terminal.see("% full")
        terminal.type("hello\r")
        terminal.see("Yes.")
        terminal.press("ctrl-d")
        assert terminal.leave() == 0
    assert b"\x1b]2;" not in terminal.raw
    assert switches(terminal) == "100"


def test_a_dumb_terminal_hears_of_nothing(place: Place) -> None:
    with Server([Say("Yes.")]) as server:
        env = place.server(server.url) | {"TERM": "dumb"}
        terminal = Terminal(cwd=place.project, env=env)
        terminal.type("hello\r")
        terminal.see("Yes.")
        terminal.press("ctrl-d")
        terminal.leave()
    assert b"\x1b" not in terminal.raw


def test_focus_reports_are_no_keys(place: Place) -> None:
    with Server([Say("Read.")]) as server:
        terminal = Terminal(cwd=place.project, env=place.server(server.url))
        terminal.see("% full")
        terminal.type(f"a{FOCUS_OUT}b{FOCUS_IN}c \x1b[200~pas{FOCUS_OUT}ted{FOCUS_IN}\x1b[201~")
        terminal.see("❯ abc pasted")
        terminal.child.delaybeforesend = None  # a report that comes in two reads
        terminal.type("\x1b[")
        terminal.type("O")
        terminal.type(f"{FOCUS_IN}!\r")
        terminal.see("Read.")
        terminal.press("ctrl-d")
        assert terminal.leave() == 0
    assert server.requests[0]["messages"][-1]["content"][0]["text"] == "abc pasted!"


def test_other_programs_get_the_window_as_it_was(place: Place) -> None:
    editor = place.root / "editor"
    editor.write_text("#!/bin/sh\nprintf 'IN THE EDITOR'; read key\n")
    editor.chmod(0o755)
    with Server([Say("Read.")]) as server:
        env = {**place.server(server.url), "EDITOR": str(editor), "PS1": "SHELL> "}
        options = ("--norc", "--noprofile", "-i")
        terminal = Terminal(*options, cwd=place.project, env=env, command="bash")
        terminal.see("SHELL>")
        terminal.type(f"{COMMAND}\r")
        terminal.see("% full")
        titled(terminal, "project")
        terminal.press("ctrl-z")
        terminal.see("Stopped")
        assert switches(terminal) == "1s0r"
        terminal.type("printf '\\033]2;of the shell\\a'; fg\r")
        titled(terminal, "project")
        terminal.type(f"words{EDIT}")
        terminal.see("IN THE EDITOR")
        assert switches(terminal) == "1s0r1s0r"
        terminal.type("\r")
        terminal.hear(b"\x1b[22;2t", 3)
        terminal.see("❯ words")
        terminal.type("\x15")
        terminal.press("ctrl-d")
        terminal.see(lambda text: text.rstrip().endswith("SHELL>"))
        terminal.type("exit\r")
        terminal.leave()
    assert switches(terminal) == "1s0r1s0r01s0r0"


def test_stopped_from_outside_the_title_is_saved_once(place: Place) -> None:
    with Server([]) as server:
        terminal = Terminal(cwd=place.project, env=place.server(server.url))
        terminal.see("% full")
        terminal.signal(signal.SIGSTOP)
        terminal.signal(signal.SIGCONT)
        terminal.hear(b"\x1b[?1004h", 2)
        terminal.press("ctrl-d")
        assert terminal.leave() == 0
    assert switches(terminal) == "1s10r0"


def test_a_title_has_no_characters_that_act() -> None:
    glass = Glass()
    project = "a\x1b]0;b\x07\x9cc\nd\u202e" + "x" * 500
    window = TerminalWindow(output_for(glass), project=project, titled=True)
    window.enter()
    window.show("? ")
    window.show("? ")
    assert glass.raw.count("\x1b]2;") == 1
    title = glass.raw.partition("\x1b]2;")[2]
    assert title.startswith("? a]0;bcdxxx")
    assert title.endswith("x\a")
    assert len(title) < 100
