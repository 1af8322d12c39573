"""Shortening texts."""

import pytest

from ctxagent.tools.system.phrasing import (
    as_sentences,
    cut_after,
    cut_at_word,
    one_line,
    shorten,
)


def test_a_text_that_fits_stays_as_it_is() -> None:
    assert shorten("12345", 5) == cut_after("12345", 5) == one_line("12345", 5) == "12345"


def test_the_mark_of_a_shortened_text_counts() -> None:
    assert shorten("123456", 5) == "1234…"


def test_a_text_is_cut_after_its_length() -> None:
    assert cut_after("123456", 5) == "12345…"
    assert cut_after("123456", 5, " …") == "12345 …"


def test_one_line_holds_single_blanks() -> None:
    assert one_line("a\n\n  b\tc", 3) == "a b…"


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("short", "short"),
        ("exactly ten", "exactly…"),
        ("the quick, brown fox", "the quick…"),
        ("/a/path/without/blanks", "/a/path/w…"),
        ("a /path/without/blanks", "a /path/w…"),
    ],
)
def test_a_text_is_cut_behind_a_word(text: str, cut: str) -> None:
    assert cut_at_word(text, 10) == cut


def test_lines_become_sentences() -> None:
    assert as_sentences("no commit\n  Make one.\n\n- first:\nnow\n") == (
        "no commit. Make one. - first: now"
    )
    assert as_sentences(" \n") == ""
