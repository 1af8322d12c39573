"""Starting known clients with the proxy's address."""

import json
import shlex
import sys
import tomllib
from pathlib import Path
from string import Template
from typing import Any

import pytest

from ctxagent.addons.proxy import mcp_stub
from ctxagent.addons.proxy.clients import CLIENTS, MCP_PATH, ClientStart, upstreams_for
from ctxagent.addons.proxy.forward import UPSTREAMS
from ctxagent.agent.session.archive import SERVER


def test_the_address_of_a_client_with_a_server_of_its_own_is_where_requests_go() -> None:
    kimi = CLIENTS["kimi-cli"]
    assert upstreams_for(kimi, {}) == {"openai": "https://api.kimi.com/coding/v1"}
    given = {"KIMI_BASE_URL": "https://here/v1", "OPENAI_BASE_URL": "https://there/v1"}
    assert upstreams_for(kimi, given) == {"openai": "https://here/v1"}
    kimi_code = CLIENTS["kimi"]
    assert upstreams_for(kimi_code, {}) == {"openai": "https://api.moonshot.ai/v1"}
    assert upstreams_for(kimi_code, given) == {"openai": "https://here/v1"}


def test_texts_for_clients_are_whole_json_and_toml(tmp_path: Path) -> None:
    """Also for a folder with special characters of JSON and shells in its name."""
    folder = tmp_path / 'a "b" $c'
    start = ClientStart("http://127.0.0.1:1", folder)
    mcp = "http://127.0.0.1:1/.ctxagent/mcp"
    stub = str(Path(mcp_stub.__file__))
    expected: dict[str, dict[str, Any]] = {
        "claude": {"type": "http", "url": mcp, "alwaysLoad": True},
        "kimi-cli": {
            "command": sys.executable,
            "args": ["-E", "-P", "-S", stub, "127.0.0.1", "1", "/.ctxagent/mcp"],
        },
        "qwen": {"httpUrl": mcp, "trust": True, "alwaysLoadTools": True},
        "copilot": {"type": "http", "url": mcp, "tools": ["*"]},
    }
    for name in expected:
        config = next(flag for flag in start.flags(CLIENTS[name]) if "mcpServers" in flag)
        found = json.loads(config[config.index("{") :])["mcpServers"]["ctxagent"]
        assert found == expected[name]
    settings = [flag for flag in start.flags(CLIENTS["codex"]) if "=" in flag]
    codex = tomllib.loads("\n".join(settings))
    assert codex["openai_base_url"] == "http://127.0.0.1:1"
    assert codex["mcp_servers"]["ctxagent"]["url"] == mcp
    told = start.environ(CLIENTS["opencode"], {})["OPENCODE_CONFIG_CONTENT"]
    assert json.loads(told)["mcp"]["ctxagent"] == {"type": "remote", "url": mcp}
    assert Path(start.flags(CLIENTS["pi"])[1]).is_file()
    assert shlex.split(shlex.join(settings)) == settings


def test_gemini_finds_the_server_in_a_file_of_the_package(tmp_path: Path) -> None:
    """Gemini CLI fills environment variables into its settings."""
    environ = ClientStart("http://127.0.0.1:1", tmp_path).environ(CLIENTS["gemini"], {})
    text = Path(environ["GEMINI_CLI_SYSTEM_DEFAULTS_PATH"]).read_text()
    found = json.loads(Template(text).substitute(environ))["mcpServers"]
    mcp = f"http://127.0.0.1:1{MCP_PATH}"
    assert found == {SERVER: {"httpUrl": mcp, "trust": True}}


@pytest.mark.parametrize("name", ["copilot", "crush", "goose", "aider"])
def test_requests_go_where_the_variables_of_the_client_say(name: str) -> None:
    client = CLIENTS[name]
    variables = {each for names, _ in client.upstreams.values() for each in names}
    assert variables
    assert {*client.environ} >= variables
    assert {*upstreams_for(client, dict.fromkeys(variables, "https://a")).values()} == {"https://a"}
    public = {upstream: UPSTREAMS[upstream].url for upstream in client.upstreams}
    assert upstreams_for(client, {}) == public
