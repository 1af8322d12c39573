"""MCP servers converted from the settings of other agents."""

import pytest

from ctxagent.agent.extensions.mcp.config import (
    codex_server,
    gemini_server,
    opencode_server,
)


def test_servers_of_codex() -> None:
    given = {"command": "npx", "args": ["a"], "env": {"K": "v"}, "env_vars": ["T"], "cwd": "/x",
             "tool_timeout_sec": 2.5, "startup_timeout_sec": 3}  # fmt: skip
    assert codex_server(given) == {
        "command": "npx", "args": ["a"], "env": {"T": "${T}", "K": "v"}, "cwd": "/x",
        "timeout": 2_500,
    }  # fmt: skip
    given = {"url": "https://x", "bearer_token_env_var": "T", "http_headers": {"A": "b"},
             "env_http_headers": {"C": "D"}, "enabled": False}  # fmt: skip
    assert codex_server(given) == {
        "type": "http",
        "url": "https://x",
        "enabled": False,
        "headers": {"A": "b", "C": "${D}", "Authorization": "Bearer ${T}"},
    }


def test_servers_of_opencode() -> None:
    given = {"type": "local", "command": ["bun", "x"], "environment": {"T": "a{env:T}"}}
    assert opencode_server(given) == {"command": "bun", "args": ["x"], "env": {"T": "a${T}"}}
    given = {"type": "remote", "url": "https://x", "headers": {"A": "{env:B}"}, "enabled": True}
    assert opencode_server(given) == {
        "type": "http", "url": "https://x", "enabled": True, "headers": {"A": "${B}"},
    }  # fmt: skip
    with pytest.raises(ValueError, match="value from a file"):
        opencode_server({"type": "remote", "url": "https://x", "headers": {"A": "{file:x}"}})


def test_servers_of_gemini() -> None:
    given = {"command": "x", "env": {"A": "$B", "C": "${D}"}, "timeout": 5, "trust": True}
    assert gemini_server(given) == {
        "command": "x", "env": {"A": "${B}", "C": "${D}"}, "timeout": 5,
    }  # fmt: skip
    assert gemini_server({"httpUrl": "https://x"}) == {"type": "http", "url": "https://x"}
    assert gemini_server({"url": "https://x"}) == {"type": "sse", "url": "https://x"}
    assert gemini_server({"url": "https://x", "type": "http"})["type"] == "http"
