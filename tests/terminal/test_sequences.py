"""Escape sequences from terminals: every encoding of a key is recognised, and a report is not a
key.
"""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prompt_toolkit.input.ansi_escape_sequences import ANSI_SEQUENCES

from ctxagent.agent.ui.terminal.input_filter import AnswerFilter, normalize_sequences

from ..support.command import Place
from ..support.server.loopback import Say, Server
from ..support.terminal.screen import Terminal

NEWLINE, ALT_ENTER = "\n", "\x1b\r"


@pytest.mark.parametrize(
    ("sent", "meant"),
    [
        ("\x1b[13;2u", NEWLINE),  # Shift-Enter
        ("\x1b[13;5u", ALT_ENTER),  # Ctrl-Enter
        ("\x1b[13;3u", ALT_ENTER),
        ("\x1b[13;129u", "\r"),  # with Num Lock
        ("\x1b[32;5u", "\x00"),
        ("\x1b[47;5u", "\x1f"),
        ("\x1b[127;5u", "\x08"),
        ("\x1b[127u", "\x7f"),
        ("\x1b[1089::99;5u", "\x03"),  # Ctrl-C on a Russian keyboard
        ("\x1b[1080::98;3u", "\x1bb"),
        ("\x1b[49:33;4u", "\x1b!"),  # Alt-Shift-1
        ("\x1b[57402u", "3"),  # of the keypad
        ("\x1b[57414u", "\r"),
        ("\x1b[57419u", "\x1b[A"),
        ("\x1b[1;129A", "\x1b[A"),
        ("\x1b[1;133D", "\x1b[1;5D"),
        ("\x1b[3;129~", "\x1b[3~"),
        ("\x1b[13;2:1u", NEWLINE),
        ("\x1b[27;2;13~", NEWLINE),  # Shift-Enter, as xterm says it
        ("\x1b[13u", "\r"),
        ("\x1b[9;2u", "\x1b[Z"),
        ("\x1b[27u", "\x1b"),
        ("\x1b[99;5u", "\x03"),
        ("\x1b[98;3u", "\x1bb"),
        ("\x1b[228u", "ä"),
        ("\x1b[97;2u", "A"),
        ("\x1b[57358u", ""),  # Caps Lock
        ("\x1b[99999999u", ""),
        ("\x1b[I", ""),  # the window got the focus
        ("\x1b[O", ""),
        ("\x1b[5n", ""),
        ("\x1b[1;2;3;4q", ""),
        ("\x1b[<64;85;12M", "\x1b[<64;85;12M"),
        ("\x1b[24;80R", "\x1b[24;80R"),
        ("\x1b[[A", "\x1b[[A"),
        ("a\x1b[Ib", "ab"),
    ],
)
def test_sequences_are_normalized(sent: str, meant: str) -> None:
    assert normalize_sequences(sent) == meant


def test_known_sequences_are_unchanged() -> None:
    known = [s for s in ANSI_SEQUENCES if s.startswith("\x1b[") and not s.endswith(";13~")]
    assert len(known) > 100
    assert [s for s in known if normalize_sequences(s) != s] == []


PASTED = "\x1b[200~red: \x1b[31m, \x1b[13;2u\x1b[201~"


@given(st.lists(st.integers(0, 80), max_size=6))
def test_in_pieces_and_around_pastes(cuts: list[int]) -> None:
    sent = PASTED.replace("red", "r\x1b[Oed\x1b[I")
    text = f"a\x1b[I{sent}b\x1b[O\x1b[13;2uc"
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    sieve, told = AnswerFilter(), list[bool]()
    sieve.on_focus = told.append
    assert "".join(sieve.feed(text[a:b]) for a, b in pairwise(edges)) == f"a{PASTED}b{NEWLINE}c"
    assert sieve.flush() == ""
    assert told == [True, False, True, False]


def test_keys_that_begin_like_a_report_are_typed() -> None:
    sieve, told = AnswerFilter(), list[bool]()
    sieve.on_focus = told.append
    assert sieve.feed("\x1b") + sieve.flush() == "\x1b"
    assert sieve.feed("[I") == "[I"
    assert sieve.feed("\x1b[") + sieve.flush() == "\x1b["  # Alt-[
    assert told == []


def test_escape_sequences_do_not_interrupt_a_turn(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with Server([Say("half a word", fault="silence")]) as server:
        terminal = Terminal(cwd=place.project, env=place.server(server.url))
        terminal.see("❯")
        terminal.type("one\x1b[13;2utwo\r")
        terminal.see("half")
        assert server.requests[0]["messages"][-1]["content"][0]["text"] == "one\ntwo"
        terminal.type("\x1b[I\x1b[O\x1b[5n\x1b[13;2uand then")
        text = terminal.see("and then")
        assert "nterrupted" not in text
        assert "[I" not in text
        terminal.press("ctrl-c")
        terminal.press("ctrl-c")
        terminal.see("nterrupted")
        terminal.type("\x15/quit\r")
        terminal.leave()
    assert server.rejected == []
