"""Repairs of names and values, and the names of the repairs in the log."""

from typing import Any

import pytest
from pydantic import ValidationError

from ctxagent.agent.loop.call_arguments import MAX_DETAIL_CHARS, REPAIRS, read_arguments, tool_name
from ctxagent.tools.base import Tool
from ctxagent.tools.grep import GrepTool
from ctxagent.tools.read import ReadTool
from ctxagent.tools.todo import TodoTool

STEP = {"content": "a", "status": "pending"}


@pytest.mark.parametrize(
    ("tool", "given", "read", "repairs"),
    [
        (GrepTool(), {"pattern": "a", "limit": 3}, {"pattern": "a", "limit": 3}, ()),
        (
            GrepTool(),
            {"pattern": "a", "-i": True, "-n": True, "head_limit": 3, "-C": 2, "include": "*.py"},
            {"pattern": "a", "ignore_case": True, "limit": 3, "context": 2, "glob": "*.py"},
            ("argument name: -i", "argument name: -n", "argument name: head_limit",
             "argument name: -C", "argument name: include"),
        ),
        (
            GrepTool(),
            {"pattern": "a", "output_mode": "files_with_matches", "head_limit": 0},
            {"pattern": "a", "output_mode": "files"},
            ("argument value: files_with_matches", "argument name: head_limit",
             "argument value: 0"),
        ),
        (ReadTool(), {"file_path": "a", "offset": None}, {"path": "a"},
         ("argument name: file_path", "null value: offset")),
        (TodoTool(), {"todos": '[{"content": "a", "status": "pending"}]'}, {"todos": [STEP]},
         ("encoded value: todos",)),
    ],
)  # fmt: skip
def test_each_repair_is_named(
    tool: Tool[Any], given: dict[str, Any], read: dict[str, Any], repairs: tuple[str, ...]
) -> None:
    found = read_arguments(tool, given)
    assert found.arguments == read
    assert found.repairs == repairs
    assert {name.partition(":")[0] for name in repairs} <= {*REPAIRS}


def test_the_name_of_a_repair_has_a_short_line_of_the_models_text() -> None:
    (name,) = read_arguments(ReadTool(), {"path" + "_\n" * 100: "a"}).repairs
    assert len(name) < MAX_DETAIL_CHARS + 20
    assert "\n" not in name


@pytest.mark.parametrize(
    "given",
    [
        {"pattern": "a", "-i": True, "ignore_case": False},  # which of them?
        {"pattern": "a", "head_limit": 3, "limit": 4},
        {"pattern": "a", "output_mode": "lines_with_matches"},
        {"pattern": "a", "-o": True},
    ],
)
def test_other_arguments_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        read_arguments(GrepTool(), given)


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("Bash", "Bash"),
        ("bash", "Bash"),
        ("functions.Bash", "Bash"),
        ("web_fetch", "WebFetch"),
        ("read", "read"),  # also the name of another tool
        ("READ", "READ"),
        ("shell", "shell"),
        ("", ""),
        ("-", "-"),
    ],
)
def test_a_tool_is_found_by_the_letters_of_its_name(name: str, known: str) -> None:
    assert tool_name(["Bash", "WebFetch", "Read", "read"], name) == known
