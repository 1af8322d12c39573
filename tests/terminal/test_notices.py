"""Notifications after long turns and for questions while the terminal has no focus."""

import re
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.ui.terminal.output import output_for
from ctxagent.agent.ui.terminal.window import Notices, TerminalWindow, notice_sequence, notice_style

from ..support.command import Place
from ..support.server.loopback import Say, Server
from ..support.terminal.screen import Terminal
from ..support.terminal.seat import Glass

ASKS = Say(tools=[("Bash", {"command": "touch made"})])
FOCUS_IN, FOCUS_OUT = "\x1b[I", "\x1b[O"
QUESTION = b"\x1b]9;ctxagent: project: a question is waiting for your answer\a"
ENDED = b"\x1b]9;ctxagent: project: the turn has ended after "


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def env_of(place: Place, server: Server, **settings: str) -> dict[str, str]:
    given = {"notify": "osc9", "notify_after": "0", **settings}
    return place.server(server.url) | {f"CTXAGENT_UI_{k.upper()}": v for k, v in given.items()}


def without_titles(raw: bytes) -> bytes:
    """The output without window titles, which end with a bell too."""
    return re.sub(rb"\x1b\]2;[^\a]*\a", b"", raw)


@pytest.mark.parametrize(
    ("environ", "style"),
    [
        ({"TERM": "xterm-256color"}, "bell"),
        ({}, "bell"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app"}, "osc9"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "WezTerm"}, "osc9"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "Apple_Terminal"}, "bell"),
        ({"TERM": "xterm-ghostty"}, "osc9"),
        ({"TERM": "xterm-kitty", "TERM_PROGRAM": "WezTerm"}, "osc99"),
        ({"TERM": "rxvt-unicode-256color"}, "osc777"),
        ({"TERM": "foot"}, "osc777"),
        ({"TERM": "xterm-kitty", "TMUX": "/tmp/tmux-0/default,1,0"}, "bell"),
        ({"TERM": "xterm-kitty", "STY": "1.pts-0"}, "bell"),
    ],
)
def test_the_form_of_notices_goes_by_the_terminal(environ: dict[str, str], style: str) -> None:
    assert notice_style("auto", environ) == style
    assert notice_style("osc777", environ) == "osc777"
    assert notice_style("off", environ) == "off"


@pytest.mark.parametrize(
    ("style", "sent"),
    [
        ("bell", "\a"),
        ("off", ""),
        ("osc9", "\x1b]9;ctxagent: 4;3: done\a"),
        ("osc777", "\x1b]777;notify;4,3;done\x1b\\"),
        ("osc99", "\x1b]99;i=ctxagent:d=0:p=title;4;3\x1b\\\x1b]99;i=ctxagent:p=body;done\x1b\\"),
    ],
)
def test_what_is_sent(style: Any, sent: str) -> None:
    assert notice_sequence(style, "4;3", "done") == sent


@pytest.mark.parametrize("style", ["bell", "osc9", "osc777", "osc99", "off"])
def test_nothing_in_a_notice_acts_on_the_terminal(style: Any) -> None:
    evil = "\x1b]52;c;AAAA\a\x9b2J\x1b\\\u202e\r\n" + "x" * 5000
    plain = notice_sequence(style, "t", "x")
    sent = notice_sequence(style, evil, evil)
    assert [c for c in sent if not c.isprintable()] == [c for c in plain if not c.isprintable()]
    assert len(sent) < 400


def called(focused: bool | None, after_s: float = 10) -> tuple[Notices, TerminalWindow, list[str]]:
    window, given = TerminalWindow(output_for(Glass()), project="project"), list[str]()
    window.focused = focused
    return Notices(window, given.append, after_s=after_s), window, given


@pytest.mark.parametrize(
    ("focused", "seconds", "text"),
    [
        (False, 10.1, ["the turn has ended after 10 s"]),
        (False, 10.0, []),
        (True, 3600.0, []),
        (None, 75.0, ["the turn has ended after 1 min 15 s"]),
    ],
)
def test_when_the_end_of_a_turn_is_told(
    focused: bool | None, seconds: float, text: list[str]
) -> None:
    notices, _, given = called(focused)
    notices.turn_ended(seconds)
    assert given == text


def test_when_a_question_is_told() -> None:
    notices, window, given = called(True)
    notices.question_waits()
    assert given == []
    window.take_focus(False)
    window.take_focus(True)
    window.take_focus(False)
    assert len(given) == 1, "once for a question"
    notices.question_is_over()
    notices.question_waits()
    assert len(given) == 2, "at once where the focus is away"
    notices.question_is_over()
    window.take_focus(True)
    window.take_focus(False)
    assert len(given) == 2, "none waits"
    notices, _, given = called(None)
    notices.question_waits()
    assert given == [], "the focus is not known"


def test_a_question_and_the_end_of_a_turn_elsewhere(place: Place) -> None:
    with Server([ASKS, Say("Made."), Say("Seen."), ASKS]) as server:
        terminal = Terminal(cwd=place.project, env=env_of(place, server))
        terminal.see("% full")
        terminal.type(f"make it\r{FOCUS_OUT}")
        terminal.keys()
        terminal.hear(QUESTION)
        terminal.type(FOCUS_IN)
        terminal.type("y")
        terminal.see("Made.")
        terminal.type(f"look\r{FOCUS_OUT}")
        terminal.see("Seen.")
        terminal.hear(ENDED)
        terminal.type(f"{FOCUS_IN}again\r")
        terminal.keys("[y]es")
        assert (terminal.raw.count(QUESTION), terminal.raw.count(ENDED)) == (1, 1)
        terminal.type(FOCUS_OUT)
        terminal.hear(QUESTION, 2)
        terminal.type(f"{FOCUS_IN}{FOCUS_OUT}\x03")
        terminal.see("nterrupted")
        terminal.press("ctrl-d")
        assert terminal.leave() == 0
    assert (terminal.raw.count(QUESTION), terminal.raw.count(ENDED)) == (2, 1)


def test_where_the_focus_is_not_known_long_turns_alone_are_told(place: Place) -> None:
    with Server([ASKS, Say("Made.")]) as server:
        terminal = Terminal(cwd=place.project, env=env_of(place, server, notify="bell"))
        terminal.see("% full")
        terminal.type("make it\r")
        terminal.keys()
        assert b"\a" not in without_titles(terminal.raw)
        terminal.type("y")
        terminal.see("Made.")
        terminal.see(lambda _: without_titles(terminal.raw).count(b"\a") == 1)
        terminal.press("ctrl-d")
        assert terminal.leave() == 0


@pytest.mark.parametrize("settings", [{"notify": "off"}, {"notify_after": "600"}])
def test_no_notice_where_none_is_wanted(place: Place, settings: dict[str, str]) -> None:
    with Server([Say("Yes.")]) as server:
        terminal = Terminal(cwd=place.project, env=env_of(place, server, **settings))
        terminal.see("% full")
        terminal.type(f"hello\r{FOCUS_OUT}")
        terminal.see("Yes.")
        terminal.see(lambda _: terminal.screen.title == "project")
        terminal.press("ctrl-d")
        assert terminal.leave() == 0
    assert b"\x1b]9;" not in terminal.raw
    assert b"\a" not in without_titles(terminal.raw)
