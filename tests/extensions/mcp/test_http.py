"""Responses of servers over HTTP, as the SDK reads them. For whole servers see
`e2e/test_mcp_transports.py`.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from ctxagent.agent.extensions.mcp import http as module
from ctxagent.agent.extensions.mcp.config import ServerConfig
from ctxagent.agent.extensions.mcp.http import SESSION_HEADER
from ctxagent.agent.extensions.mcp.transport import ConnectionEnd

CALL = {"jsonrpc": "2.0", "id": 4, "method": "tools/call", "params": {}}
PING = {"jsonrpc": "2.0", "id": 5, "method": "ping"}
NOTICE = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def answered(
    work: Callable[[httpx2.AsyncClient], Awaitable[Any]],
    answer: Callable[[httpx2.Request], httpx2.Response],
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[Any, ConnectionEnd]:
    """Run work with the client of a connection, whose requests get this answer."""
    monkeypatch.setattr(module, "tls_options", lambda: {"transport": httpx2.MockTransport(answer)})
    config = ServerConfig("s", Path("mcp.json"), url="http://127.0.0.1:9/mcp")

    async def run() -> tuple[Any, ConnectionEnd]:
        end = ConnectionEnd()
        async with module._client(config, end, None, None) as client:
            return await work(client), end

    return asyncio.run(run())


def streamed(status: int, text: str) -> httpx2.Response:
    """Return a response whose body is still to be read, as from a network."""

    async def body() -> AsyncIterator[bytes]:
        yield text.encode()

    return httpx2.Response(status, content=body())


def post(message: dict[str, Any], **headers: str) -> Callable[[httpx2.AsyncClient], Any]:
    return lambda client: client.post("http://127.0.0.1:9/mcp", json=message, headers=headers)


@pytest.mark.parametrize(
    ("status", "message", "is_refused", "is_doubted"),
    [
        (404, CALL, True, False),
        (400, CALL, False, True),
        (400, PING, True, False),
        (429, CALL, False, False),
        (500, CALL, False, False),
        (200, CALL, False, False),
    ],
)
def test_the_status_says_whether_the_session_is_lost(
    status: int,
    message: dict[str, Any],
    is_refused: bool,
    is_doubted: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    body = {"jsonrpc": "2.0", "id": 4, "error": {"code": -32000, "message": "no"}}
    work = post(message, **{SESSION_HEADER: "1"})
    _, end = answered(work, lambda _: httpx2.Response(status, json=body), monkeypatch)
    assert (end.is_refused, end.is_doubted, end.ended.is_set()) == (
        is_refused,
        is_doubted,
        is_refused,
    )


def test_without_a_session_no_status_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    response, end = answered(post(CALL), lambda _: streamed(404, "gone"), monkeypatch)
    assert not end.ended.is_set()
    assert json.loads(response.content)["error"]["message"] == "HTTP 404 Not Found: gone"


def test_a_body_that_is_too_large_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_MESSAGE_BYTES", 1_000)
    _, end = answered(post(CALL), lambda _: streamed(200, "x" * 1_001), monkeypatch)
    assert end.ended.is_set()
    assert end.reason == "it sent a message of more than 32 MiB"


def test_only_a_call_may_wait_without_a_limit_for_its_response(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = list[Any]()

    def answer(request: httpx2.Request) -> httpx2.Response:
        limits.append(request.extensions["timeout"]["read"])
        return httpx2.Response(202)

    async def work(client: httpx2.AsyncClient) -> None:
        for message in (CALL, NOTICE):
            await client.post("http://127.0.0.1:9/mcp", json=message)
        await client.delete("http://127.0.0.1:9/mcp")

    answered(work, answer, monkeypatch)
    assert limits == [None, module.ACCEPT_TIMEOUT_S, module.GOODBYE_TIMEOUT_S]
