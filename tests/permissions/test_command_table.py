"""The table of commands is consistent, and command lines are read by it correctly."""

import tomllib
from pathlib import Path

import pytest

from ctxagent.agent.permissions.shell import command_table
from ctxagent.agent.permissions.shell.command_table import (
    keeps_history,
    known_command,
    plainly_inside,
    read_arguments,
    stray_word,
)
from ctxagent.agent.permissions.shell.parser import SimpleCommand, parse

RAW = tomllib.loads(Path(command_table.__file__).with_name("commands.toml").read_text())


def part(text: str) -> SimpleCommand:
    return parse(text).parts[0]


@pytest.mark.parametrize("name", RAW)
def test_each_option_has_one_form(name: str) -> None:
    """An option either takes a value or none. Only an optional value may be listed twice."""
    table = RAW[name]
    sets = {key: table[key].split() for key in ("flags", "values", "files") if key in table}
    for key, options in sets.items():
        assert len(options) == len(set(options)), key
        assert all(option.startswith("-") for option in options), key
    named = [option for options in sets.values() for option in options]
    assert len(named) == len(set(named))


def test_names_are_told_apart() -> None:
    aliases = [alias for keys in RAW.values() for alias in keys.get("alias", ())]
    names = [*RAW, *aliases]
    assert len(names) == len(set(names))
    assert all(used in RAW for keys in RAW.values() for used in keys.get("use", "").split())


@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
        ("ls -la a", "ls", ["-la", "a"]), ("egrep x", "grep", ["x"]), ("mytool x", None, []),
        ("git log -1", "git log", ["-1"]), ("git -C a log -1", "git log", ["-1"]),
        ("git stash list -1", "git stash list", ["-1"]), ("git stash x", "git stash", ["x"]),
        ("git stash pop", "git stash push", []), ("git unknown x", "git", ["unknown", "x"]),
        ("git --no-pager show a", "git log", ["a"]), ("python -m pytest -q", "pytest", ["-q"]),
        ("python -V", "python", ["-V"]), ("uv run python -m pytest", "pytest", []),
        ("npm test -- -t a", "jest", ["--", "-t", "a"]), ("npm run a", None, []),
        ("$x a", None, []), ("l? a", None, []),
    ],
)  # fmt: skip
def test_the_table_for_a_command(text: str, name: str | None, words: list[str]) -> None:
    known = known_command(part(text))
    assert (known and known.table.name) == name
    assert [word.text for word in (known.words if known else ())] == words


@pytest.mark.parametrize(
    ("text", "options", "operands", "unlisted"),
    [
        ("ls -la x", [("-l", None), ("-a", None)], ["x"], ""),
        ("head -5 x", [("-5", None)], ["x"], ""), ("head -n5 x", [("-n", "5")], ["x"], ""),
        ("head -n 5 x", [("-n", "5")], ["x"], ""), ("head -qn 5", [("-q", None),
        ("-n", "5")], [], ""),
        ("head --lines=5", [("--lines", "5")], [], ""), ("head --line=5", [], [], "--line=5"),
        ("head --lines", [], [], "--lines"), ("head -n", [], [], "-n"), ("ls -lj", [], [], "-lj"),
        ("ls --color", [("--color", None)], [], ""),
        ("ls --color=never", [("--color", "never")], [], ""),
        ("git diff -U3", [("-U", "3")], [], ""), ("git diff -U 3", [("-U", None)], ["3"], ""),
        ("cat -- -x", [], ["-x"], ""), ("cat -", [], ["-"], ""),
        ("find . -name x", [("-name", "x")], ["."], ""),
        ("find . -nam x", [], ["."], "-nam"), ("find . -name * x", [], ["."], "-name"),
        ("grep --include *.py x", [("--include", "*.py")], ["x"], ""),
        ("find . -Pd", [], ["."], "-Pd"),
        ("ls --sort=size", [("--sort", "size")], [], ""), ("ls '--sort=a b'", [], [], "--sort=a b"),
        ("rg -g '*.py' x", [("-g", "*.py")], ["x"], ""),
        ("rg -g *.py x", [], [], "-g"),
        ("rg -g src/*.py x", [], [], "-g"), ("rg *", [], [], "*"), ("cat *", [], ["*"], ""),
        ("rg -f * x", [], [], "-f"), ('rg "$x"', [], [], '"$x"'), ('rg "a$x"', [], ['"a$x"'], ""),
        ("rg a$x", [], [], "a$x"), ('rg -e "$x"', [("-e", '"$x"')], [], ""),
        ("rg -e $x", [], [], "-e"),
        ('rg -e "$@"', [], [], "-e"),
    ],
)  # fmt: skip
def test_the_words_of_a_command(
    text: str, options: list[tuple[str, str | None]], operands: list[str], unlisted: str
) -> None:
    known = known_command(part(text))
    assert known is not None
    found = read_arguments(known.table, known.words)
    assert [(name, value and value.text) for name, value in found.options] == options
    assert [word.text for word in found.operands] == operands
    assert found.unlisted == unlisted


def test_words_that_a_rule_has_itself_count_as_listed() -> None:
    command = part("git log --output=x --ext-diff")
    assert stray_word(command, 2, "", plainly_inside) == "--output=x"
    assert stray_word(command, 3, "", plainly_inside) == "--ext-diff"
    assert stray_word(command, 2, "git log --output=x --ext-diff", plainly_inside) == ""


def test_the_caller_decides_which_paths_are_in_the_project() -> None:
    command = part("git add /a/b")
    assert stray_word(command, 1, "", plainly_inside) == "/a/b"
    assert stray_word(command, 1, "", lambda path: path == "/a/b") == ""
    assert plainly_inside("a/..b")
    assert not plainly_inside("a/../b")
    assert not plainly_inside("~/a")


@pytest.mark.parametrize(
    ("text", "keeps"),
    [
        ("git commit -am x", True), ("git show main:$f", False), ('git show "main:$f"', True),
        ("git branch -d x", True), ("git branch -D x", False), ("git branch -df x", False),
        ("git stash", True), ("git stash clear", False), ("git -C a stash clear", False),
        ("git reflog", True), ("git reflog expire --all", False), ("git gc", True),
        ("git gc --prune=now", False), ("git update-ref -d x", False), ("git", False),
        ("ls", False),
        ("git -c a.b=c commit -m x", False), ("/usr/bin/git stash drop", False),
        ('git commit -m "$(cat <<\'E\'\nit\'s "x"\nE\n)"', True),
    ],
)  # fmt: skip
def test_git_that_keeps_all_commits(text: str, keeps: bool) -> None:
    assert keeps_history(part(text)) is keeps
