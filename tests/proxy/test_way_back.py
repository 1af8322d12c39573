"""The way back of a session, by the tools that its client offers."""

from typing import Any

import pytest

from ctxagent.agent.compaction.policy import PRESETS
from ctxagent.agent.proxy.session_tools import RecallEntryTool
from ctxagent.agent.proxy.way_back import WayBack, policy_with, way_back_of

BASH = {"name": "Bash", "description": "Run.", "input_schema": {"type": "object"}}
ABOUT = RecallEntryTool.description


@pytest.mark.parametrize(
    ("tools", "expected"),
    [
        ([BASH, {"name": "mcp__ctxagent__recall"}], "recall"),
        ([{"type": "function", "function": {"name": "ctxagent_recall"}}], "recall"),
        ([{"type": "function", "name": "recall", "description": ABOUT}], "recall"),
        ([{"type": "namespace", "name": "mcp__ctxagent__", "tools": []}], "recall"),
        ([{"type": "namespace", "name": "n", "tools": [{"name": "r", "description": ABOUT}]}],
         "recall"),
        ([BASH], "files"),
        ([{"type": "local_shell"}], "files"),
        ([{"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"}], "files"),
        ([{"name": "weather"}, {"name": "recall"}], "none"),
        (["odd", {"function": "odd", "tools": 3}], "none"),
        ([], "none"),
        (None, "none"),
    ],
)  # fmt: skip
def test_by_the_tools(tools: list[Any] | None, expected: WayBack) -> None:
    assert way_back_of(tools) == expected


def test_the_policy_keeps_what_has_no_way_back() -> None:
    policy = PRESETS["default"]
    assert policy_with(policy, "recall") == policy
    files = policy_with(policy, "files")
    assert (files.outline, files.truncate, files.clear_when) == (False, "persisted", "pays")
    none = policy_with(policy, "none")
    assert (none.demotes_above("Read"), none.clear_when, none.outline) == (None, "off", False)
    assert none.truncate_at is None
