"""Kitty's keyboard protocol: enabled if the terminal supports it, and disabled whenever another
program gets the terminal. Also the appearance of the completion menu and of a cleared screen.
"""

import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

from ctxagent.agent.ui.terminal.picker import completions_menu

from ..support.command import Place
from ..support.server.loopback import Say, Server
from ..support.terminal.screen import Terminal

ASKED, ON, OFF = b"\x1b[?u", b"\x1b[>5u", b"\x1b[<u"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_keys_are_told_apart_only_while_the_terminal_is_ours(place: Place) -> None:
    with Server([Say("Yes.")]) as server:
        env = {**place.server(server.url), "EDITOR": "true"}
        terminal = Terminal(cwd=place.project, env=env)
        terminal.hear(ASKED)
        terminal.see("sonnet-5-5")
        assert ON not in terminal.raw
        terminal.type("\x1b[?0u\x1b[?62c")
        terminal.hear(ON)
        terminal.type("one\x1b[13;2utwo\x1b[120;5u\x1b[101;5u")  # Ctrl-X Ctrl-E
        terminal.hear(OFF)
        terminal.hear(ON, 2)
        terminal.type("\r")
        terminal.see("Yes.")
        terminal.type("/exit\r")
        assert terminal.leave() == 0
        assert server.requests[0]["messages"][-1]["content"][0]["text"] == "one\ntwo"
    assert terminal.raw.count(ON) == terminal.raw.count(OFF) == 2
    assert terminal.raw.rindex(OFF) > terminal.raw.rindex(ON)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP])
def test_a_signal_that_ends_it_gives_the_keyboard_back(place: Place, number: int) -> None:
    terminal = Terminal(cwd=place.project, env=place.server("http://127.0.0.1:9"))
    terminal.see("sonnet-5-5")
    before = terminal.modes()
    terminal.type("\x1b[?0u\x1b[?62c")
    terminal.hear(ON)
    terminal.signal(number)
    terminal.leave()
    assert terminal.raw.count(ON) == terminal.raw.count(OFF) == 1
    assert terminal.raw.rindex(OFF) > terminal.raw.rindex(ON)
    assert terminal.left[3] != before[3], "the modes for lines are back"


@pytest.mark.parametrize(("reported", "offs"), [("0", 1), ("5", 2), ("1", 1)])
def test_a_start_resets_the_keyboard_protocol_after_a_kill(
    place: Place, reported: str, offs: int
) -> None:
    terminal = Terminal(cwd=place.project, env=place.server("http://127.0.0.1:9"))
    terminal.see("sonnet-5-5")
    terminal.type(f"\x1b[?{reported}u\x1b[?62c")
    terminal.hear(ON)
    terminal.type("/exit\r")
    assert terminal.leave() == 0
    assert (terminal.raw.count(ON), terminal.raw.count(OFF)) == (1, offs)


def test_a_terminal_that_does_not_answer_is_left_as_it_is(place: Place) -> None:
    terminal = Terminal(cwd=place.project, env=place.server("http://127.0.0.1:9"))
    terminal.see("sonnet-5-5")
    terminal.type("\x1b[?62c/exit\r")
    assert terminal.leave() == 0
    assert ON not in terminal.raw
    assert OFF not in terminal.raw


@pytest.mark.parametrize(("options", "has_bar"), [(8, False), (9, True)])
def test_a_menu_has_a_scrollbar_where_it_scrolls(options: int, has_bar: bool) -> None:
    margin = completions_menu().content.right_margins[0]  # type: ignore[attr-defined]
    shown = SimpleNamespace(content_height=options, window_height=8, vertical_scroll=0)
    shown.displayed_lines = [*range(8)]
    assert bool(margin.create_margin(shown, 1, 8)) == has_bar


def test_a_cleared_screen_is_clean_and_the_scrollback_has_the_rest(place: Place) -> None:
    with Server([Say("The answer.")]) as server:
        terminal = Terminal(cwd=place.project, env=place.server(server.url), rows=24)
        terminal.see("sonnet-5-5")
        terminal.type("a question\r")
        terminal.see("The answer.")
        terminal.see("context 0%")
        terminal.type("/clear --keep\r")
        text = terminal.see("Ctrl-O shows the hand-over")
        assert "The answer." in text
        shown = "\n".join(terminal.screen.display)
        assert "The answer." not in shown
        assert terminal.screen.display[0].startswith("❯ /clear --keep") or "new session" in shown
        terminal.type("\x0f")
        terminal.see("Intent: a question")
        terminal.type("/exit\r")
        assert terminal.leave() == 0
