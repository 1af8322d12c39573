"""The published names of tools and of their arguments."""

from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.features.hook_runs import (
    changed_arguments,
    published_arguments,
    subagent_names,
    tool_names,
    tool_response,
)
from ctxagent.agent.loop.interface import ToolCall
from ctxagent.tools.base import Output

CWD = Path("/project")
PAIRS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("Read", {"path": "a", "offset": 3}, {"file_path": "/project/a", "offset": 3}),
    ("Edit", {"path": "/b", "old_string": "x"}, {"file_path": "/b", "old_string": "x"}),
    ("Bash", {"command": "ls", "timeout": 5}, {"command": "ls", "timeout": 5000}),
    ("Grep", {"pattern": "x", "output_mode": "files", "ignore_case": True},
     {"pattern": "x", "output_mode": "files_with_matches", "-i": True}),
    ("Task", {"type": "explore", "prompt": "x"}, {"subagent_type": "Explore", "prompt": "x"}),
    ("Task", {"type": "mine"}, {"subagent_type": "mine"}),
    ("Skill", {"name": "x"}, {"skill": "x"}),
    ("mcp__a__b", {"path": "x"}, {"path": "x"}),
]  # fmt: skip


@pytest.mark.parametrize(("tool", "ours", "theirs"), PAIRS)
def test_arguments_are_translated_in_both_directions(
    tool: str, ours: dict[str, Any], theirs: dict[str, Any]
) -> None:
    assert published_arguments(tool, ours, CWD) == theirs
    assert changed_arguments(tool, ours, theirs, CWD) is ours
    assert published_arguments(tool, changed_arguments(tool, {}, theirs, CWD), CWD) == theirs


def test_only_what_is_changed_is_other() -> None:
    ours = {"path": "a", "content": "x"}
    changed = {"file_path": "/project/a", "content": "y"}
    assert changed_arguments("Write", ours, changed, CWD) == {"path": "a", "content": "y"}
    moved = {"file_path": "b", "content": "x"}
    assert changed_arguments("Write", ours, moved, CWD) == {"path": "b", "content": "x"}
    assert changed_arguments("Bash", {"command": "ls", "timeout": 5}, {"command": "ls"}, CWD) == {
        "command": "ls"
    }


def test_names() -> None:
    assert tool_names("Bash") == ("Bash",)
    assert tool_names("Task") == ("Task", "Agent", "Task")
    assert tool_names("Todo") == ("TodoWrite", "Todo")
    assert subagent_names("general") == ("general-purpose", "general")
    assert subagent_names("mine") == ("mine",)


def test_responses() -> None:
    said = Output("on")
    bash = ToolCall("1", "Bash", "t", {"command": "echo on"}, CWD)
    assert tool_response(bash, said, "on")["stdout"] == "on"
    write = ToolCall("1", "Write", "t", {"path": "a"}, CWD)
    assert tool_response(write, said, "on")["filePath"] == "/project/a"
    other = ToolCall("1", "mcp__a__b", "t", {"path": "a"}, CWD)
    assert tool_response(other, said, "on") == {"output": "on", "is_error": False}
