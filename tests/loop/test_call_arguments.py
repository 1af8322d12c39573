"""What a model sent for a call: checked, and answered so that it can do better."""

from typing import Any

import pytest

from ctxagent.agent.errors import ToolError
from ctxagent.agent.loop.call_arguments import CallRefused, checked_call, title_of
from ctxagent.agent.session.entries import Block
from ctxagent.tools.base import Context, Output, Tool
from ctxagent.tools.bash import BashTool
from ctxagent.tools.read import ReadParams, ReadTool

TOOLS = {"Bash": BashTool(), "Read": ReadTool()}


def call(name: str, given: object) -> Block:
    return {"type": "tool_use", "id": "c1", "name": name, "input": given}


def refused(block: Block, raw: str | None = None, *, cut: bool = False) -> str:
    with pytest.raises(CallRefused) as refusal:
        checked_call(TOOLS, block, raw, cut=cut)
    assert refusal.value.output.is_error
    return refusal.value.output.text


def test_good_arguments_are_read() -> None:
    given = {"path": "a.txt", "offset": 3}
    tool, params, shown = checked_call(TOOLS, call("Read", given), None, cut=False)
    assert tool is TOOLS["Read"]
    assert params == ReadParams(path="a.txt", offset=3)
    assert shown is given


def test_a_tool_that_is_not_there_is_answered_with_those_that_are() -> None:
    assert refused(call("Nope", {})) == "There is no tool 'Nope'. The tools: Bash, Read."


@pytest.mark.parametrize(
    ("raw", "cut", "told"),
    [
        ('{"path": "a', False, "Unterminated string"),
        ("[1]", False, "they are not a JSON object, or one that is nested too deep"),
        ('{"a":' * 100_000, False, "recursion"),
        ('{"path": "a', True, "the output limit cut them off. Write the call again, in smaller"),
    ],
)
def test_arguments_that_are_no_json_say_why(raw: str, cut: bool, told: str) -> None:
    text = refused(call("Read", {}), raw, cut=cut)
    assert text.startswith("The arguments of this call are not valid JSON, so nothing was run: ")
    assert told in text


def test_wrong_arguments_are_listed_with_the_right_names() -> None:
    text = refused(call("Read", {"lines": 3, "offset": "x"}))
    lines = text.splitlines()
    assert lines[0] == "Read was not run, its arguments are wrong:"
    assert lines[1:4] == [
        "- path: Field required",
        "- offset: Input should be a valid integer, unable to parse string as an integer",
        "- lines: Extra inputs are not permitted",
    ]
    assert lines[4].startswith("It takes: path, offset")
    many = refused(call("Read", {f"x{n}": n for n in range(30)}))
    assert len(many.splitlines()) == 10


@pytest.mark.parametrize(
    ("block", "title"),
    [
        (call("Bash", {"command": "ls"}), "ls"),
        (call("Nope", {"a": "one", "b": 2, "c": "two"}), "one two"),
        (call("Read", {"lines": "3"}), "3"),
        (call("Nope", "text"), ""),
    ],
)
def test_each_call_has_a_line_for_people(block: Block, title: str) -> None:
    assert title_of(TOOLS, block) == title


class Other(Tool[ReadParams]):
    """Runs as the tool Read, or fails without a path."""

    name, description, effect, Params = "Other", "Reads.", "read", ReadParams

    def resolve(self, params: ReadParams) -> tuple[Tool[Any], Any]:
        if not params.path:
            raise ToolError("There is no such file.", missing=True)
        return TOOLS["Read"], ReadParams(path=params.path, offset=2)

    async def run(self, params: ReadParams, context: Context) -> Output:
        raise AssertionError("the other tool runs")


def test_a_tool_may_stand_for_another() -> None:
    tools = {**TOOLS, "Other": Other()}
    tool, params, shown = checked_call(tools, call("Other", {"path": "a"}), None, cut=False)
    assert (tool, params) == (TOOLS["Read"], ReadParams(path="a", offset=2))
    assert shown == params.model_dump()
    with pytest.raises(CallRefused) as refusal:
        checked_call(tools, call("Other", {"path": ""}), None, cut=False)
    output = refusal.value.output
    assert (output.text, output.is_error) == ("There is no such file.", True)
    assert output.details["missing"]
