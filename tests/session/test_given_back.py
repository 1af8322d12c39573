"""Calls that give back recorded text are recognized by path, ref and server name."""

from typing import Any

import pytest

from ctxagent.agent.session.archive import recorded_sources

FILE = "/home/me/.local/state/ctxagent/projects/p/sessions/20260101-a1/offloaded/result_4.md"


@pytest.mark.parametrize(
    ("tool", "given", "text", "sources"),
    [
        ("Read", {"file_path": FILE}, "", [FILE]),
        ("read_text", {"nested": [{"at": FILE}], "offset": 3}, "", [FILE]),
        ("exec_command", {"cmd": f"sed -n 1,90p '{FILE}' | head"}, "", [FILE]),
        ("shell", {"command": ["bash", "-lc", f"cat {FILE}"]}, "", [FILE]),
        ("Bash", {"command": "cd /s/sessions/a1 && cat offloaded/result_4.md"}, "",
         ["offloaded/result_4.md"]),
        ("mcp__ctxagent__recall", {"ref": "a1#4", "offset": 30000}, "", ["a1#4"]),
        ("ctxagent_recall", {"ref": "4"}, "", ["4"]),
        ("ctxagent.search", {"query": "whale"}, "", ["ctxagent.search"]),
        ("recall", {"ref": "#4"}, "", ["#4"]),
        ("give", {"ref": "a1/agents/b2#4"}, "", ["a1/agents/b2#4"]),
        ("give", {"number": 4}, "[a1#4]\nthe text", ["a1#4"]),
        ("Read", {"file_path": "/home/me/sessions/notes.md"}, "", []),
        ("Read", {"file_path": "src/offloaded/result.md"}, "", []),
        ("Bash", {"command": "gh issue view #12"}, "[main]\nok", []),
        ("paint", {"color": "#123456"}, "", []),
        ("checkout", {"ref": "main"}, "", []),
        ("click", {"ref": "12"}, "", []),
        ("my_ctxagents_tool", {"ref": "12"}, "", []),
    ],
)  # fmt: skip
def test_sources(tool: str, given: dict[str, Any], text: str, sources: list[str]) -> None:
    assert recorded_sources(tool, given, text) == sources
