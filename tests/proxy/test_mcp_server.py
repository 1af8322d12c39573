"""The MCP server in a running proxy, by HTTP and by the stub for clients that start a program."""

import ast
import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from mcp.client.session import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from ctxagent.addons.proxy import mcp_stub
from ctxagent.addons.proxy.clients import CLIENTS, MCP_PATH, ClientStart
from ctxagent.agent.session.entries import Session, User
from ctxagent.agent.session.log import Log
from ctxagent.tests.support.proxy.running import RunningProxy, running_proxy

UPSTREAM = "http://127.0.0.1:9"  # nothing listens there


def record(proxy: RunningProxy) -> None:
    log = Log(proxy.project.folder / "sessions" / "one" / "log.jsonl")
    log.append(Session(id="one", cwd=str(proxy.project.cwd), version="0", model="m"))
    log.append(User(content="Count the whales. 🐋"))
    log.close()


def stub_of(proxy: RunningProxy) -> tuple[str, list[str]]:
    """Return the command that kimi-cli starts."""
    _, config = ClientStart(proxy.url, proxy.project.folder).flags(CLIENTS["kimi-cli"])
    server = json.loads(config)["mcpServers"]["ctxagent"]
    return server["command"], server["args"]


@pytest.mark.slow
@pytest.mark.parametrize("way", ["http", "stub"])
def test_recall_by_the_client_of_the_sdk(way: str, tmp_path: Path) -> None:
    with running_proxy(tmp_path, UPSTREAM) as proxy:
        record(proxy)
        command, arguments = stub_of(proxy)
        program = StdioServerParameters(command=command, args=arguments)
        address = f"{proxy.url}{MCP_PATH}"

        async def ask() -> tuple[list[str], Any]:
            connected = streamable_http_client(address) if way == "http" else stdio_client(program)
            async with connected as streams, ClientSession(streams[0], streams[1]) as session:
                await session.initialize()
                tools = (await session.list_tools()).tools
                await session.send_ping()
                return [tool.name for tool in tools], await session.call_tool(
                    "recall", {"ref": "one#2"}
                )

        names, result = asyncio.run(ask())
    assert names == ["recall", "search", "session_intent"]
    assert result.content[0].text == "[one#2]\nCount the whales. 🐋"


@pytest.mark.parametrize(
    ("data", "status", "code"),
    [
        (b"no message", 200, -32700),
        (b"[]", 200, -32600),
        (b'{"id": 1, "method": 3}', 200, -32600),
        (b'{"id": 1, "method": "resources/list"}', 200, -32601),
        (b'{"id": 1, "method": "tools/call", "params": {}}', 200, -32602),
        (b'{"method": "notifications/initialized"}', 202, None),
        (b'{"id": 1, "result": {}}', 202, None),
        (b" " * ((1 << 20) + 1), 413, None),
    ],
)
def test_odd_messages(data: bytes, status: int, code: int | None, tmp_path: Path) -> None:
    with running_proxy(tmp_path, UPSTREAM) as proxy:
        got = proxy.post(MCP_PATH, data)
    assert got.status == status
    if code is not None:
        assert json.loads(got.raw)["error"]["code"] == code


def test_other_methods_and_web_pages_are_refused(tmp_path: Path) -> None:
    with running_proxy(tmp_path, UPSTREAM) as proxy:
        assert proxy.send("GET", MCP_PATH).status == 405
        assert proxy.send("DELETE", MCP_PATH).status == 405
        got = proxy.send("POST", MCP_PATH, b"{}", {"origin": "https://example.org"})
    assert got.status == 403


def test_the_stub_imports_only_what_starts_fast() -> None:
    tree = ast.parse(Path(mcp_stub.__file__).read_text())
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert [ast.unparse(node) for node in found] == ["import socket", "import sys"]
