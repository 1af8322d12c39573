"""What a tool call does, read from its arguments."""

from typing import Any

import pytest

from ctxagent.agent.compaction.drift.scope import (
    call_line,
    call_subject,
    path_argument,
    simple_commands,
    written_paths,
    written_text,
)


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "name": name, "input": arguments}


def bash(command: str) -> dict[str, Any]:
    return call("Bash", command=command)


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("a b; c && d | e", ["a b", "c", "d", "e"]), ("sudo A=1 time a b", ["a b"]),
        ("if x; then y; fi", ["if x", "y", "fi"]),
        ("a 'b c' d", ["a _ d"]), ("a 'b' \"c\"", ["a b c"]),
        ("cat <<E > f\nrm x\nE", ["cat <<E > f"]), ("", []), ("(a)\nb", ["a", "b"]),
        ("a <<< x\nb", ["a <<< x", "b"]), ("env X=1 a", ["a"]), ("! a", ["a"]),
        ("a \"b \\\" c\" d", ["a _ d"]),
    ],
)  # fmt: skip
def test_simple_commands(command: str, found: list[str]) -> None:
    assert [" ".join(words) for words in simple_commands(command)] == found


@pytest.mark.parametrize(
    ("command", "paths"),
    [
        ("echo x > a", ["a"]), ("echo x >> a 2>&1", ["a"]), ("echo x >| a", ["a"]),
        ("x > /dev/null", []), ("a -> b", []), ("rm -rf a b", ["a", "b"]),
        ("cp a b", ["b"]), ("ln -s a b", ["b"]), ("mv a b", ["a", "b"]), ("tee -a a", ["a"]),
        ("sed -i s/x/y/ a", ["s/x/y/", "a"]), ("sed s/x/y/ a", []),
        ("perl -pi -e x a", ["x", "a"]), ("git rm a", ["a"]), ("git checkout -- a", ["a"]),
        ("git status", []), ("git", []), ("/bin/rm a", ["a"]),
        ("cat a", []), ("touch a; chmod +x b", ["a", "+x", "b"]), ("echo 'x > y'", []),
        ("x >= 3", ["="]), ("git restore a", ["a"]), ("git add a", []),
    ],
)  # fmt: skip
def test_paths_that_a_command_writes(command: str, paths: list[str]) -> None:
    assert written_paths(bash(command)) == paths


def test_paths_that_other_calls_write() -> None:
    assert written_paths(call("Edit", path="a", old_string="x")) == ["a"]
    assert written_paths(call("Write", file_path="b")) == ["b"]
    assert written_paths(call("Write")) == written_paths(call("Read", path="a")) == []
    assert path_argument({"name": "Read", "input": "garbled"}) == ""


@pytest.mark.parametrize(
    ("made", "subject"),
    [
        (bash("npm run build -- x"), "build x"), (bash("pytest -q tests/a.py"), "tests/a.py"),
        (bash("ls"), ""), (bash("make all"), ""),
        (bash("grep -rn 'a b' src | sort"), "_ src\n"), (bash("cat Readme"), "Readme"),
        (call("Grep", pattern="x", path="src"), "x\nsrc"),
        (call("Edit", path="a", old_string="b", new_string="c"), "a"),
        (call("Write", path="a", content="b"), "a"), (call("Todo", todos=[1]), ""),
        (call("Grep", pattern="x" * 400), "x" * 300), (bash("a B " + "c" * 400), "B " + "c" * 296),
    ],
)  # fmt: skip
def test_what_a_call_is_about(made: dict[str, Any], subject: str) -> None:
    assert call_subject(made) == subject


def test_a_call_in_one_line() -> None:
    assert call_line(bash("ls\n -l")) == "Bash ls -l"
    assert call_line(call("Read", path="a")) == "Read a"
    assert call_line(call("Grep", pattern="x")) == "Grep x"
    assert len(call_line(bash("x" * 500))) == 160


def test_the_text_that_a_call_writes() -> None:
    assert written_text(call("Write", content="a")) == "a"
    assert written_text(call("Edit", old_string="a", new_string="b")) == "b"
    assert written_text(call("Read", path="a")) == ""
    assert len(written_text(call("Write", content="x" * 30_000))) == 20_000
