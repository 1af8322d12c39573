"""The way back of a session, by the tools that its client offers."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ctxagent.addons.proxy.session_tools import RecallEntryTool
from ctxagent.addons.proxy.way_back import WayBack, policy_with, way_back_of
from ctxagent.agent.compaction.policy import PRESETS
from ctxagent.tests.support.proxy.clients import session_of
from ctxagent.tests.support.proxy.recorder import Answer, recorder
from ctxagent.tests.support.proxy.running import running_proxy

EVENTS = {"content-type": "text/event-stream"}
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
    assert (none.moves_above("Read"), none.clear_when, none.outline) == (None, "off", False)
    assert none.truncate_at is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("agent", "tool", "is_named"),
    [
        ("GeminiCLI-tui/0.61.0/gemini-2.5-pro (linux)", "mcp_ctxagent_recall", False),
        ("GeminiCLI-tui/0.61.0/gemini-2.5-pro (linux)", "run_shell_command", True),
        ("OtherCLI/1.0", "mcp_ctxagent_recall", True),
    ],
)
def test_a_file_that_the_client_cannot_read_is_not_named(
    agent: str, tool: str, is_named: bool, tmp_path: Path
) -> None:
    """Neither for large nor for cleared outputs, also after a restart of the proxy."""
    offered = {"tools": [{"functionDeclarations": [{"name": tool}]}]}
    client = replace(session_of("gemini", 4, lines=400), extra=offered)
    policy = replace(PRESETS["lean"], clear_when="every-call", clear_keep=0)
    answers = [Answer((client.answer(turn, n),), 200, EVENTS) for n, turn in
               enumerate(client.turns)]  # fmt: skip
    sent = b""
    with recorder() as server:
        for number, body in enumerate(client.bodies()):
            server.answer = lambda received, number=number: answers[number]
            with running_proxy(tmp_path, server.url, policy) as proxy:
                proxy.send("POST", client.path, json.dumps(body).encode(), {"user-agent": agent})
        sent = server.requests[-1].body
    (log,) = proxy.logs()
    assert f"{log.parent.name}#".encode() in sent
    assert b"tokens compacted" in sent
    assert b"Offloaded Content Reference" in sent
    assert (b"/offloaded/" in sent) == is_named
