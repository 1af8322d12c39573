"""Cutting a text to a length."""

from ctxagent.tools.system.shorten import cut_after, one_line, shorten


def test_a_text_that_fits_stays_as_it_is() -> None:
    assert shorten("12345", 5) == cut_after("12345", 5) == one_line("12345", 5) == "12345"


def test_the_mark_of_a_shortened_text_counts() -> None:
    assert shorten("123456", 5) == "1234…"


def test_a_text_is_cut_after_its_length() -> None:
    assert cut_after("123456", 5) == "12345…"
    assert cut_after("123456", 5, " …") == "12345 …"


def test_one_line_holds_single_blanks() -> None:
    assert one_line("a\n\n  b\tc", 3) == "a b…"
