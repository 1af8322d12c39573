"""Why a text was not found: line numbers, whitespace, a few words, or no similar text."""

import time

from ctxagent.tools import edit
from ctxagent.tools.edit import explain

FILE = "def one():\n    return 1\n\n\ndef two():\n    value = compute(2)\n    return value\n"


def hint(old: str, text: str = FILE) -> str:
    told = explain("x.py", text, old)
    lost = "old_string is not in x.py. "
    assert told.startswith(lost)
    return told.removeprefix(lost)


def test_line_numbers_of_read_are_named() -> None:
    advice = "It holds the line numbers that Read shows (`12<tab>`)."
    rest = " Leave the numbers and the tab out."
    assert hint("     1\tdef one():\n2\t    return 1") == (
        f"{advice} Without them it is there.{rest}"
    )
    assert hint("1\tdef three():") == advice + rest
    assert "line numbers" not in hint("1\tdef one():\n    return 1")
    assert "line numbers" not in hint("")


def test_a_text_with_other_whitespace_is_shown_as_it_is() -> None:
    assert hint("\ndef  two():\n\tvalue = compute(2)\n") == (
        "It is there with other whitespace. From line 5 on:\n"
        "def two():\n    value = compute(2)\n"
        "Copy the text to replace from these lines."
    )


def test_several_places_with_other_whitespace_are_named_up_to_a_bound() -> None:
    text = "a = 1\n" * 2
    told = hint("a  = 1", text)
    assert "From line 1 on:\na = 1\nFrom line 2 on:\na = 1\n" in told
    told = hint("a  = 1", "a = 1\n" * 9)
    assert told.count("on:\na = 1\n") == edit.MAX_PLACES


def test_the_most_similar_text_is_shown() -> None:
    told = hint("def two():\n    value = calculate(2)\n    return value")
    assert told.startswith("Most like it: From line 5 on:\ndef two():\n    value = compute(2)")
    assert "\n    return value\n" in told
    assert hint("def one():\n    return 2").startswith("Most like it: From line 1 on:\ndef one")
    assert hint("valeu = compute(22)").startswith("Most like it: From line 6 on:\n    value =")
    assert hint("x\n    value = compute(3)\ny", "a\nb\n    value = compute(2)\nc\n").startswith(
        "Most like it: From line 2 on:\nb\n    value"
    )


def test_the_place_with_most_lines_in_order_wins() -> None:
    block = "start\nmiddle\nend\n"
    text = f"middle\nother\n{block}middle\n"
    assert hint("start\nmiddle\nends", text).startswith("Most like it: From line 3 on:\nstart")


def test_a_text_without_a_similar_one_gets_a_short_file_or_advice() -> None:
    shown = (
        "Nothing in the file is like it. From line 1 on:\na\nb\n"
        "Copy the text to replace from these lines."
    )
    assert hint("@@@@ ???? §§§§", "a\nb\n") == shown
    assert hint(" \n ", "a\nb\n") == shown
    advice = "Nothing in the file is like it: Read it, or Grep for a word of it."
    assert hint("@@@@ ???? §§§§", "a\n" * (edit.MAX_LINES_SHOWN + 1)) == advice
    assert hint("@@@@ ???? §§§§", "a" * (edit.MAX_CHARS_SHOWN + 1)) == advice
    assert hint("anything", "") == advice


def test_what_is_shown_is_bounded() -> None:
    lines = [f"    line number {number} of it" for number in range(100)]
    told = hint("\n".join(line.replace("    ", "  ") for line in lines), "\n".join(lines))
    assert told.count("\n") == edit.MAX_LINES_SHOWN + 1
    assert "    line number 19 of it\nCopy" in told


def test_a_large_file_takes_bounded_time() -> None:
    text = "".join(f"some line {number} of a large file\n" for number in range(100_000))
    began = time.process_time()
    hint("some other words that are not there at all\n" * 30, text)
    hint("z" * 5_000, text)
    assert time.process_time() - began < 20  # about 1, and minutes if all were compared
