"""Signs of errors and success in an output: the same result as with the plain patterns."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxagent.agent.session.command_output import (
    MAX_ERROR_LINE_CHARS,
    MAX_ERROR_LINES,
    CommandOutput,
    telling_lines,
)
from ctxagent.agent.session.entries import ToolResult

_ERROR = re.compile(
    r"error|\berr!|exception|traceback|\bfail|\bfatal|\bpanic|assert|denied|refused|undefined"
    r"|not found|no such|timed out",
    re.IGNORECASE,
)
_NO_ERRORS = re.compile(r"\b(?:0|no) (?:errors?|failures?|failed|failing)\b", re.IGNORECASE)
_SUCCESS = re.compile(
    r"\b(?:done|ok|pass|passed|success|successful|successfully|succeeded|built|compiled|complete"
    r"|completed|finished)\b|✓|✔|\b(?:0|no) (?:errors?|failures?)\b",
    re.IGNORECASE,
)
_WORDS = """error ERR! err! Exception fail Fatal panic unfail denied 0 no errors failures done ok
token PASSED passed ✓ a b timed out found not such"""
_PARTS = st.sampled_from(_WORDS.split())
_LINES = st.lists(st.lists(_PARTS, max_size=4).map(" ".join), max_size=9)


@pytest.mark.slow
@settings(max_examples=300)
@given(_LINES)
def test_error_lines_are_the_last_ones_with_a_sign(lines: list[str]) -> None:
    shown = [line for line in lines if line.strip()]
    telling = [line for line in shown if _ERROR.search(line)] or shown[-1:]
    assert telling_lines(lines) == tuple(
        line[:MAX_ERROR_LINE_CHARS] for line in telling[-MAX_ERROR_LINES:]
    )


@pytest.mark.slow
@settings(max_examples=300)
@given(_LINES)
def test_success_is_a_sign_of_it_and_none_of_an_error(lines: list[str]) -> None:
    text = "\n".join(lines)
    said = bool(_SUCCESS.search(text)) and not _ERROR.search(_NO_ERRORS.sub("", text))
    assert CommandOutput(lines).has_success_sign() == said


def test_the_lines_of_an_offloaded_result_are_those_of_its_preview() -> None:
    result = ToolResult(tool_use_id="c", content="Saved:\n> one \n> two", offloaded="offloaded/x")
    assert [*CommandOutput(result).lines] == ["one", "two"]
    assert CommandOutput(result).text == "one\ntwo"
