"""Signs of errors and success in an output: the same result as with the plain patterns."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxagent.agent.session.command_output import (
    LAST_LINES_DIVISOR,
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
def test_the_last_lines_and_the_last_ones_with_a_sign_are_told(lines: list[str]) -> None:
    shown = [line for line in lines if re.search(r"\w", line)]
    told = telling_lines(lines)
    assert len(told) == min(MAX_ERROR_LINES, len(shown))
    last = shown[-(MAX_ERROR_LINES // LAST_LINES_DIVISOR) :]
    assert [*told[len(told) - len(last) :]] == last
    before = shown[: len(shown) - len(last)]
    signed = [line for line in before if _ERROR.search(line)]
    newest = signed[-(MAX_ERROR_LINES - len(last)) :] if signed else []
    assert all(line in told for line in newest)


@pytest.mark.parametrize(
    ("lines", "code", "told"),
    [
        (["expected 4 but got 3", "[exit 1]"], 1, ["expected 4 but got 3"]),
        (["合計が一致しません", "", "[exit 2]"], 2, ["合計が一致しません"]),
        (["a", "[exit 139 (128 + SIGSEGV)]", "[the sandbox: no]"], 139, ["a"]),
        (["[1, 2]", "[exit 1]", "[job-1: running]"], 1, ["[1, 2]"]),
        (["a", "[killed by SIGKILL]"], -9, ["a"]),
        (["[1, 2]"], 1, ["[1, 2]"]),
        (["Exit code 3", "a"], 3, ["a"]),
        (["Exit code 3", "a", "Failed with exit code 3"], 3, ["a", "Failed with exit code 3"]),
        (["a", "Command exited with code 1"], 1, ["a"]),
        (["a", "Befehl endete mit Code: 1."], 1, ["a"]),
        (
            ["a", 'error: script "lint" exited with code 1'],
            1,
            ["a", 'error: script "lint" exited with code 1'],
        ),
        (["a", "3 of 4 failed"], 4, ["a", "3 of 4 failed"]),
        (["a", "======", "   "], 1, ["a"]),
        (["[exit 1]"], 1, []),
        ([], 1, []),
    ],
)
def test_only_lines_of_the_program_are_told(lines: list[str], code: int, told: list[str]) -> None:
    assert [*telling_lines(lines, code)] == told


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("rg -n sum src/a src/b", "rg: src/a: Datei oder Verzeichnis nicht gefunden"),
        ("cd lib && make -j2 all", "make: *** [Makefile:3: all] エラー 2"),
        ("/usr/bin/git-lfs pull", "git-lfs: kein Zugriff"),
    ],
)
def test_a_line_that_begins_with_a_program_of_the_command_is_told(command: str, named: str) -> None:
    rows = [f"src/b/{n}.py: raise ValueError(total)" for n in range(20)]
    lines = ["note: x", named, *rows]
    assert named in telling_lines(lines, 2, command)
    assert named not in telling_lines(lines, 2, "sed -n 1p src/b/1.py")
    assert telling_lines(lines, 2, command)[-2:] == (*rows[-2:],)


def test_few_lines_that_begin_with_a_program_are_told() -> None:
    lines = ["Error: one", *(f"go: downloading {n}" for n in range(20)), "FAIL", "FAIL a", "b"]
    told = telling_lines(lines, 1, "go test ./...")
    assert told == ("Error: one", *lines[-5:])


@pytest.mark.parametrize("count", [1, 3, 4, 6])
def test_a_limit_keeps_the_sign_of_an_error_and_the_end(count: int) -> None:
    lines = ["Error: one", *(f"line {n}" for n in range(20))]
    told = [*telling_lines(lines, 1, count=count)]
    assert told == ["Error: one", *lines[len(lines) - count + 1 :]]


def test_a_line_is_cut_at_the_limit() -> None:
    assert telling_lines(["x" * 2 * MAX_ERROR_LINE_CHARS]) == ("x" * MAX_ERROR_LINE_CHARS,)


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
