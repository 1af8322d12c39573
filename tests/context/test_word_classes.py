"""The count of word classes equals the matches of the regular expression that defines it."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxagent.agent.context.tokens import count_word_classes

_DEFINITION = re.compile(
    r"[A-Z]{1,4}[a-z]{0,9}|[a-z]{1,10}"
    r"|[0-9]{1,3}"
    r"|\n[ \t]*"
    r"|[ \t]{3,}"
    r"|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"
    r"|[!-/:-@\[-`{-~]{1,3}"
    r"|[^\x00-\x7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{1,2}"
)
_RUNS = st.tuples(st.sampled_from("aZ0. \t\n\r\0_é中ü한😀\ud800"), st.integers(1, 24))
_TEXTS = st.lists(_RUNS).map(lambda runs: "".join(sign * count for sign, count in runs))


@pytest.mark.slow
@settings(max_examples=500)
@given(st.one_of(_TEXTS, st.text()))
def test_the_count_is_that_of_the_definition(text: str) -> None:
    assert count_word_classes(text) == len(_DEFINITION.findall(text))


@pytest.mark.parametrize("text", ["", "   ", "\n   x", "AAAAA", "AAAAbbbbbbbbbbbbb", "x   \n   "])
def test_runs_at_the_limits_of_a_match(text: str) -> None:
    assert count_word_classes(text) == len(_DEFINITION.findall(text))


def test_runs_of_each_ascii_character() -> None:
    for character in map(chr, range(128)):
        for text in (character, character * 12, f"a{character * 3}"):
            assert count_word_classes(text) == len(_DEFINITION.findall(text)), repr(text)


def test_source_code() -> None:
    text = Path(__file__).read_text()
    assert count_word_classes(text) == len(_DEFINITION.findall(text))
