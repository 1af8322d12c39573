"""The arguments of a call: checked, repaired, or refused with a helpful answer."""

import copy
import json
import os
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.errors import ToolError
from ctxagent.agent.loop.call_arguments import CallRefused, checked_call, title_of
from ctxagent.agent.models.scripted import Step
from ctxagent.agent.session.entries import Block, ToolResult
from ctxagent.tools.base import Context, Output, Tool
from ctxagent.tools.bash import BashTool
from ctxagent.tools.edit import EditTool
from ctxagent.tools.grep import GrepTool
from ctxagent.tools.read import ReadParams, ReadTool
from ctxagent.tools.todo import TodoTool
from ctxagent.tools.write import WriteTool

from ..support.sessions.conversation import Conversation

TOOLS = {
    tool.name: tool
    for tool in (BashTool(), ReadTool(), EditTool(), GrepTool(), TodoTool(), WriteTool())
}
NAMES = ", ".join(TOOLS)


def call(name: str, given: object) -> Block:
    return {"type": "tool_use", "id": "c1", "name": name, "input": given}


def refused(block: Block, raw: str | None = None, *, cut: bool = False) -> str:
    with pytest.raises(CallRefused) as refusal:
        checked_call(TOOLS, block, raw, cut=cut)
    assert refusal.value.output.is_error
    return refusal.value.output.text


def test_good_arguments_are_read() -> None:
    given = {"path": "a.txt", "offset": 3}
    checked = checked_call(TOOLS, call("Read", given), None, cut=False)
    assert checked.tool is TOOLS["Read"]
    assert checked.params == ReadParams(path="a.txt", offset=3)
    assert checked.arguments is given
    assert not checked.is_repaired


DONE = [{"content": "a", "status": "completed"}]


@pytest.mark.parametrize(
    ("name", "given", "read"),
    [
        ("Read", {"path": "a", "offset": "3"}, {"path": "a", "offset": "3"}),  # by pydantic
        ("Read", {"file_path": "a", "limit": 5}, {"path": "a", "limit": 5}),
        ("Read", {"filePath": "a"}, {"path": "a"}),
        ("Read", {"path": "a", "offset": None}, {"path": "a"}),
        ("Grep", {"regex_pattern": "a", "file_path": "b"}, {"pattern": "a", "path": "b"}),
        ("Grep", {"pattern": "a", "ignoreCase": True}, {"pattern": "a", "ignore_case": True}),
        ("Edit", {"path": "a", "old_str": "b", "new_str": "c"},
         {"path": "a", "old_string": "b", "new_string": "c"}),
        ("Todo", {"todos": json.dumps(DONE)}, {"todos": DONE}),
        ("Todo", {"todo": f"```json\n{json.dumps(DONE)}\n```"}, {"todos": DONE}),
    ],
)  # fmt: skip
def test_arguments_with_one_meaning_are_repaired(name: str, given: Any, read: Any) -> None:
    sent = copy.deepcopy(given)
    checked = checked_call(TOOLS, call(name, given), None, cut=False)
    assert checked.arguments == read
    assert checked.is_repaired is (given != read)
    assert given == sent, "what the model sent stays as it is"


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("Read", {"file_path": "a", "path_name": "b"}),  # which of them?
        ("Read", {"path": "a", "file_path": "b"}),
        ("Read", {"file_path": 7}),
        ("Read", {"path": None}),
        ("Bash", {"command": "ls", "timeout_ms": 5_000}),  # another unit
        ("Edit", {"path": "a", "string": "b"}),
        ("Todo", {"todo_list": DONE}),
        ("Todo", {"todos": "write the tests"}),
        ("Todo", {"todos": '{"content": "a"}'}),
        ("Todo", {"todos": "[" * 100_000}),
    ],
)
def test_arguments_that_could_mean_more_are_refused(name: str, given: Any) -> None:
    assert refused(call(name, given)).startswith(f"{name} was not run, its arguments are wrong")


@pytest.mark.parametrize(
    "raw", ['```json\n{"path": "a"}\n```', '```\n{"path": "a"}```\n', '"{\\"path\\": \\"a\\"}"']
)
def test_an_object_in_a_fence_or_in_a_text_is_read(raw: str) -> None:
    checked = checked_call(TOOLS, call("Read", {}), raw, cut=False)
    assert checked.params == ReadParams(path="a")
    assert checked.is_repaired
    refused(call("Read", {}), raw, cut=True)


def test_an_unknown_tool_is_answered_with_the_known_ones() -> None:
    assert refused(call("Nope", {})) == f"There is no tool 'Nope'. The tools: {NAMES}."


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
    checked = checked_call(tools, call("Other", {"path": "a"}), None, cut=False)
    assert (checked.tool, checked.params) == (TOOLS["Read"], ReadParams(path="a", offset=2))
    assert checked.arguments == checked.params.model_dump()
    with pytest.raises(CallRefused) as refusal:
        checked_call(tools, call("Other", {"path": ""}), None, cut=False)
    output = refusal.value.output
    assert (output.text, output.is_error) == ("There is no such file.", True)
    assert output.details["missing"]


COMPOSED, DECOMPOSED = "caf\u00e9.txt", "cafe\u0301.txt"


def test_a_file_is_found_by_the_look_of_its_name_before_the_permission_check(
    project: Path,
) -> None:
    (project / DECOMPOSED).write_text("secret\n")
    bad = Path(os.fsdecode(os.fsencode(project) + b"/bad\xff.txt"))
    bad.write_text("other\n")
    steps = [
        Step(tools=[("Read", {"path": name}) for name in (COMPOSED, "bad\ufffd.txt")]),
        Step(text="done"),
    ]
    talk = Conversation(project, steps, deny=[f"Read({DECOMPOSED})"])
    talk.say("read them")
    denied, read = talk.of(ToolResult)
    assert denied.is_error
    assert "Not allowed" in denied.content
    assert read.content == "1\tother"
    assert read.details["repairs"] == ["file name: bad\ufffd.txt"]
