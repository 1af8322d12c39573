"""How bash reads quotes, escapes and tests, and the guessed commands in doubtful text."""

import pytest

from ctxagent.agent.permissions.shell.parser import (
    decode_ansi_c,
    guess_commands,
    has_quoted_bracket,
    may_name_shell_folder,
)
from ctxagent.agent.permissions.shell.parser import test_evaluates_operands as evaluates_operands


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("", ""), ("rm x", "rm x"), ("a\\nb\\tc", "a\nb\tc"), ("\\x72\\x6d", "rm"),
        ("\\162m", "rm"),
        ("\\u0072m", "rm"), ("\\U00000072m!", "rm!"), ("\\'\\\"\\\\\\?", "'\"\\?"),
        ("\\a\\b\\e\\E\\f\\r\\v", "\a\b\x1b\x1b\f\r\v"), ("\\x41-", "A-"), ("\\7", "\x07"),
        ("\\x7f", "\x7f"), ("\\x80", None), ("\\x0", None), ("\\0", None), ("\\u00e9", None),
        ("\\q", None), ("\\c", None), ("a\\xff", None),
    ],
)  # fmt: skip
def test_escapes_in_dollar_quotes(body: str, text: str | None) -> None:
    assert decode_ansi_c(body) == text


@pytest.mark.parametrize(
    "test",
    ["[[ x -eq y ]]", "[[ x -ne 1 ]]", "[[ a -lt b ]]", "[[ a -le b ]]", "[[ a -gt b ]]",
     "[[ a -ge b ]]", "[[ -v x ]]", "[[ -R x ]]", "[[ !-v x ]]", "[[ (-v x) ]]", "[ $x ]",
     "[ -f a* ]", "[ -f a? ]", "[ -f [a] ]", "[ \"a\" = $x ]"],
)  # fmt: skip
def test_tests_that_evaluate_what_they_compare(test: str) -> None:
    assert evaluates_operands(test)


@pytest.mark.parametrize(
    "test",
    ["[[ -f x ]]", "[[ $x == a* ]]", "[ -f x ]", "[ \"$x\" = a ]", "[ 'a*' = \"b?\" ]",
     "[ a = \\* ]", "[[ a == b-eq ]]", "[ -n \"\\\"$x\" ]"],
)  # fmt: skip
def test_tests_that_do_not(test: str) -> None:
    assert not evaluates_operands(test)


@pytest.mark.parametrize("word", ["~+", "~-", "~1/x", "a=~+/x", "a:~-", "~+/../x"])
def test_folders_that_only_the_shell_knows(word: str) -> None:
    assert may_name_shell_folder(word)


@pytest.mark.parametrize("word", ["~", "~/x", "~root/x", "a~+", "HEAD~1", "x", "a=~", "a:~/x"])
def test_folders_that_everybody_knows(word: str) -> None:
    assert not may_name_shell_folder(word)


def test_brackets_that_quotes_may_make_literal() -> None:
    assert has_quoted_bracket("a'['b]")
    assert has_quoted_bracket('"["b]')
    assert has_quoted_bracket("\\[b]")
    assert not has_quoted_bracket("[ab]")
    assert not has_quoted_bracket("'ab'")


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("ls; rm x", [["ls"], ["rm", "x"]]), ("a && b || c | d & e", [*map(list, "abcde")]),
        ("(ls\nrm x)", [["ls"], ["rm", "x"]]), ("echo `rm x`", [["echo"], ["rm", "x"]]),
        ("r\\m x", [["rm", "x"]]), ("'rm' \"x\"", [["rm", "x"]]), ("$'rm' $\"x\"", [["rm", "x"]]),
        ("r\\\nm x", [["rm", "x"]]), ("if ! rm x; then ls; fi", [["rm", "x"], ["ls"], ["fi"]]),
        ("while time do rm x", [["rm", "x"]]), ("else rm x", [["rm", "x"]]),
        ("{rm,x}", [["rm", "x"]]), ("rm x;rm x", [["rm", "x"]]), ("", []), (" ; ", []),
        ("do", []), ("$x a", [["$x", "a"]]),
    ],
)  # fmt: skip
def test_guessed_commands(text: str, commands: list[list[str]]) -> None:
    assert [words for words, _ in guess_commands(text)] == commands


def test_a_guessed_command_comes_with_its_source() -> None:
    assert list(guess_commands(" r'm' x ; ls")) == [(["rm", "x"], "r'm' x"), (["ls"], "ls")]


def test_a_long_command_is_guessed_by_its_first_words() -> None:
    ((words, _),) = guess_commands("a " * 5_000)
    assert words == ["a"] * 4_000


def test_the_same_text_is_guessed_once() -> None:
    assert len(list(guess_commands("a;" * 100_000))) == 1
