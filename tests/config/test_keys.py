"""Types of settings: accepted values in TOML and flags, and values that loosen."""

import re
from collections.abc import Callable
from typing import Any, Literal

import pytest

from ctxagent.agent.config import keys
from ctxagent.agent.config.keys import Setting, ValueType, value_text

WORDS = keys.one_of(Literal["strict", "lax"])
NUMBER = keys.whole_number("lines", 2)
LIST = keys.list_of(WORDS)
NAME = keys.text_matching("a name", r"[a-z]+")
TYPES: dict[str, ValueType] = {
    "words": WORDS,
    "number": NUMBER,
    "list": LIST,
    "name": NAME,
    "pages": keys.text_matching("a page", r"\d+", int),
    "spelt": keys.with_spelling(str.lower, WORDS),
    "including": keys.list_including("strict", LIST),
    "none": keys.or_none("unlimited", NUMBER),
    "preset": keys.or_preset(NUMBER),
    "switch": keys.SWITCH,
    "switch or": keys.switch_or(NUMBER),
    "threshold": keys.THRESHOLD,
    "plain": keys.PLAIN_VALUE,
}


def is_refused(take: Callable[[Any], Any], value: Any) -> bool:
    try:
        take(value)
    except ValueError:
        return True
    return False


@pytest.mark.parametrize(
    ("kind", "value", "read"),
    [
        ("words", "lax", "lax"),
        ("number", 2, 2),
        ("number", keys.MAX_WHOLE_NUMBER, keys.MAX_WHOLE_NUMBER),
        ("list", ["lax", "strict"], ("lax", "strict")),
        ("list", [], ()),
        ("name", "abc", "abc"),
        ("pages", "12", 12),
        ("spelt", "LAX", "lax"),
        ("including", ["lax", "strict"], ("lax", "strict")),
        ("none", "unlimited", None),
        ("none", 3, 3),
        ("preset", "preset", "preset"),
        ("switch", False, False),
        ("switch or", True, True),
        ("switch or", 7, 7),
        ("threshold", "93%", 0.93),
        ("threshold", "0.5 %", 0.005),
        ("threshold", 0.25, 0.25),
        ("threshold", 1, 1.0),
        ("threshold", 2, 2),
        ("threshold", keys.MAX_WHOLE_NUMBER, keys.MAX_WHOLE_NUMBER),
        ("plain", ["a", 1], ("a", 1)),
        ("plain", 1.5, 1.5),
        ("plain", True, True),
    ],
)
def test_a_value_that_fits_is_read(kind: str, value: Any, read: Any) -> None:
    found = TYPES[kind].read(value)
    assert (found, type(found)) == (read, type(read))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("words", "other"), ("words", ["lax"]), ("number", 1), ("number", 2.0), ("number", True),
        ("number", keys.MAX_WHOLE_NUMBER + 1), ("number", "2"), ("list", "lax"),
        ("list", ["lax", "other"]), ("name", "a1"), ("name", "abc\n"), ("name", 7),
        ("spelt", "OTHER"), ("spelt", 7), ("including", ["lax"]), ("none", "preset"),
        ("preset", "unlimited"), ("switch", 1), ("switch", "true"), ("switch or", 1),
        ("threshold", 0), ("threshold", -1), ("threshold", 1.5), ("threshold", "93"),
        ("threshold", "0%"), ("threshold", "101%"), ("threshold", "%"), ("threshold", True),
        ("threshold", keys.MAX_WHOLE_NUMBER + 1), ("plain", {"a": 1}), ("plain", [{"a": 1}]),
        ("plain", None),
    ],
)  # fmt: skip
def test_a_value_that_does_not_fit_is_refused(kind: str, value: Any) -> None:
    assert is_refused(TYPES[kind].read, value)


@pytest.mark.parametrize(
    ("kind", "text", "literal"),
    [
        ("words", "lax", "lax"),
        ("number", "12", 12),
        ("list", "lax", ["lax"]),
        ("list", '["lax", "strict"]', ["lax", "strict"]),
        ("none", "unlimited", "unlimited"),
        ("none", "12", 12),
        ("preset", "preset", "preset"),
        ("switch", "TRUE", True),
        ("switch", "1", True),
        ("switch", "false", False),
        ("switch", "0", False),
        ("switch or", "False", False),
        ("switch or", "12", 12),
        ("threshold", "93%", "93%"),
        ("threshold", "5000", 5000),
        ("threshold", "0.5", 0.5),
        ("plain", "12", 12),
        ("plain", "[1, 2]", [1, 2]),
        ("plain", "some words", "some words"),
    ],
)
def test_the_text_of_a_flag_becomes_a_value(kind: str, text: str, literal: Any) -> None:
    found = TYPES[kind].literal(text)
    assert (found, type(found)) == (literal, type(literal))


@pytest.mark.parametrize(
    ("kind", "text"), [("number", "x"), ("switch", "yes"), ("threshold", "x"), ("list", "[")]
)
def test_a_text_that_is_no_such_value_is_refused(kind: str, text: str) -> None:
    assert is_refused(TYPES[kind].literal, text)


def test_types_say_what_they_take() -> None:
    assert NUMBER.wanted == "a whole number of lines, 2 to 1_000_000_000"
    assert LIST.wanted == 'a list, each item one of "strict", "lax"'
    assert TYPES["including"].wanted == f'{LIST.wanted}, and "strict" among them'
    assert TYPES["none"].wanted == f'{NUMBER.wanted}, or "unlimited"'
    assert TYPES["switch or"].wanted == f"true, false, or {NUMBER.wanted}"
    assert (TYPES["none"].none, TYPES["preset"].none) == ("unlimited", "")
    assert keys.or_preset(TYPES["none"]).none == "unlimited"
    assert LIST.words == keys.or_none("x", WORDS).words == ("strict", "lax")
    assert keys.one_of(("a", "b")).words == ("a", "b")


LATER = keys.loosens_if_later(Literal["strict", "usual", "lax"])


@pytest.mark.parametrize(
    ("loosens", "new", "current", "expected"),
    [
        (keys.loosens_never, 1, 2, False),
        (keys.loosens_if_different, 1, 2, True),
        (keys.loosens_if_different, 1, 1, False),
        (keys.loosens_if_shorter, ("a",), ("a", "b"), True),
        (keys.loosens_if_shorter, ("b", "a", "c"), ("a", "b"), False),
        (keys.loosens_if_longer, ("a", "b"), ("a",), True),
        (keys.loosens_if_longer, ("a",), ("b", "a"), False),
        (keys.loosens_if_larger, 3, 2, True),
        (keys.loosens_if_larger, 2, 2, False),
        (keys.loosens_if_turned(True), True, False, True),
        (keys.loosens_if_turned(True), True, True, False),
        (keys.loosens_if_turned(True), False, True, False),
        (keys.loosens_if_turned(False), False, True, True),
        (keys.loosens_if_turned(False), (), ("a",), True),
        (LATER, "lax", "usual", True),
        (LATER, "usual", "usual", False),
        (LATER, "strict", "usual", False),
        (LATER, None, "strict", True),
        (LATER, None, None, False),
    ],
)
def test_what_gives_the_agent_more_freedom(
    loosens: Any, new: Any, current: Any, expected: bool
) -> None:
    assert loosens(new, current) is expected


@pytest.mark.parametrize(
    ("key", "new", "expected"),
    [
        (Setting(None, "", WORDS, keys.loosens_never), "lax", False),
        (Setting(None, "", WORDS, keys.loosens_if_different), "lax", True),
        (Setting(None, "", LIST, keys.loosens_if_different), (), True),
        (Setting(None, "", LIST, keys.loosens_if_different, adds=True), (), False),
        (Setting(None, "", LIST, keys.loosens_if_different, adds=True), ("lax",), True),
        (Setting(None, "", LIST, keys.loosens_if_longer), ("lax",), True),
        (Setting(None, "", LIST, keys.loosens_if_longer), (), False),
        (Setting(None, "", LIST, keys.loosens_if_shorter), ("lax",), True),
        (Setting(None, "", LIST, keys.loosens_if_shorter), ("strict", "lax"), False),
        (Setting(None, "", keys.SWITCH, keys.loosens_if_turned(False)), False, True),
        (Setting(None, "", keys.SWITCH, keys.loosens_if_turned(False)), True, False),
        (Setting(5, "", NUMBER, keys.loosens_if_larger), 6, True),
        (Setting(5, "", NUMBER, keys.loosens_if_larger), 5, False),
    ],
)
def test_when_a_project_file_needs_trust(key: Setting, new: Any, expected: bool) -> None:
    assert key.may_loosen(new) is expected


def test_a_key_has_a_variable() -> None:
    assert (
        Setting(None, "", WORDS, keys.loosens_never, name="compact.at_most").env
        == "CTXAGENT_COMPACT_AT_MOST"
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, '"unlimited"'),
        (True, "true"),
        (False, "false"),
        (1_000_000, "1_000_000"),
        (0.93, "0.93"),
        (("a", "ä"), '["a", "ä"]'),
        ('say "x"', '"say \\"x\\""'),
        ("https://me:word@host/", '"https://…@host/"'),
        (("https://me:word@host/",), '["https://…@host/"]'),
    ],
)
def test_values_are_shown_as_a_file_has_them_without_credentials(value: Any, text: str) -> None:
    assert value_text(Setting(None, "", TYPES["none"], keys.loosens_never), value) == text


@pytest.mark.parametrize(
    ("declared", "right", "wrong", "wanted"),
    [
        (Setting("words", ""), "lines", 5, "a value like 'words'"),
        (Setting(3, ""), 4, True, "a value like 3"),
        (Setting(("a",), ""), ("b", "c"), "b", "a value like ('a',)"),
        (Setting("a", "", keys.one_of(("a", "b"))), "b", "c", 'one of "a", "b"'),
        (Setting((), "", keys.list_of(keys.SWITCH)), (True,), "x", "each item true or false"),
        (Setting(None, ""), 5, {}, "text, a number"),
    ],
)
def test_a_setting_has_the_type_of_its_default_or_its_own(
    declared: Setting, right: Any, wrong: Any, wanted: str
) -> None:
    assert declared.read(right) == right
    assert wanted in declared.wanted
    with pytest.raises(ValueError, match=re.escape(str(wrong))):
        declared.read(wrong)
