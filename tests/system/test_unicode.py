"""Invisible characters are written out, and no others."""

import pytest

from ctxagent.tools.system.unicode import is_one_visible_line, reveal_invisible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\u202eb", "a\\u202eb"),
        ("a\u200b\x07", "a\\u200b\\x07"),
        ("a\u3164\u2800\u115f", "a\\u3164\\u2800\\u115f"),
        ("rm\ufe0f x", "rm\\ufe0f x"),
        ("\ufe0f", "\\ufe0f"),
        ("a\ufe0e", "a\\ufe0e"),
        ("\u2764\ufe0f\ufe0f", "\u2764\ufe0f\\ufe0f"),
    ],
)
def test_what_cannot_be_seen_is_written_out(text: str, shown: str) -> None:
    assert reveal_invisible(text) == shown
    assert not is_one_visible_line(text)


@pytest.mark.parametrize("text", ["plain", "\u2764\ufe0f now", "1\ufe0f\u20e3", "größer 数", ""])
def test_what_is_seen_stays(text: str) -> None:
    assert reveal_invisible(text) == text
    assert is_one_visible_line(text)


def test_lines_stay_lines() -> None:
    assert reveal_invisible("a\n\tb") == "a\n\tb"
    assert not is_one_visible_line("a\nb")
