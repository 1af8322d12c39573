"""What a model sent for a call: checked, and shown to people in one line."""

from collections.abc import Mapping
from typing import Any

import pytest

from ctxagent.agent.loop.call_arguments import CallRefused, checked_call, title_of
from ctxagent.tools.base import Tool
from ctxagent.tools.bash import BashTool
from ctxagent.tools.todo import TodoTool

TOOLS: Mapping[str, Tool[Any]] = {tool.name: tool for tool in (BashTool(), TodoTool())}


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": "t", "name": name, "input": arguments}


def refused(block: dict[str, Any], raw: str | None = None, *, cut: bool = False) -> str:
    with pytest.raises(CallRefused) as error:
        checked_call(TOOLS, block, raw, cut=cut)
    assert error.value.output.is_error
    return error.value.output.text


def test_a_sound_call() -> None:
    block = call("Bash", command="ls", timeout=5)
    tool, params, shown = checked_call(TOOLS, block, None, cut=False)
    assert tool is TOOLS["Bash"]
    assert params.command == "ls"  # type: ignore[attr-defined]
    assert shown is block["input"]


def test_an_unknown_tool_is_answered_with_those_there_are() -> None:
    assert refused(call("Foo")) == "There is no tool 'Foo'. The tools: Bash, Todo."


def test_wrong_arguments_are_named() -> None:
    text = refused(call("Bash", timeout="soon"))
    assert text.startswith("Bash was not run, its arguments are wrong:\n- ")
    assert "\n- command: Field required" in text
    assert "\n- timeout: " in text
    assert text.splitlines()[-1].startswith("It takes: command, ")


def test_at_most_eight_wrong_arguments_are_named() -> None:
    text = refused(call("Todo", todos=[{} for _ in range(20)]))
    assert text.count("\n- ") == 8
    assert "- todos.0." in text


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        ('{"a": ', "Expecting value"),
        ("[1]", "they are not a JSON object, or one that is nested too deep"),
        ("[" * 100_000, "recursion"),
    ],
)  # fmt: skip
def test_arguments_that_are_no_json(raw: str, error: str) -> None:
    text = refused(call("Bash"), raw)
    assert text.startswith("The arguments of this call are not valid JSON, so nothing was run: ")
    assert error in text
    assert text.endswith(". Write the call again.")


def test_arguments_that_the_output_limit_cut_off() -> None:
    text = refused(call("Bash"), '{"a": ', cut=True)
    assert "the output limit cut them off" in text
    assert text.endswith("Write the call again, in smaller pieces.")


def test_a_refusal_has_details() -> None:
    error = CallRefused("no", denied=True)
    assert (error.output.text, error.output.details) == ("no", {"denied": True})
    assert str(error) == "no"


@pytest.mark.parametrize(
    ("block", "title"),
    [
        (call("Bash", command="ls -l"), "ls -l"), (call("Bash", wrong="a", n=1, other="b"), "a b"),
        (call("Foo", path="p"), "p"),
        ({"name": "Foo", "input": "text"}, ""), ({"name": "Bash", "input": None}, ""),
    ],
)  # fmt: skip
def test_a_call_in_a_line(block: dict[str, Any], title: str) -> None:
    assert title_of(TOOLS, block) == title
