"""Server-sent events."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from ctxagent.agent.extensions.mcp.http import TooLarge, readable_events

STREAM = (
    ": a comment\n\n"
    "event: endpoint\r\ndata: /message\r\n\r\n"
    'id: 1\ndata: {"id": 1,\ndata: "result": null}\n\n'
    "id: 2\ndata:\n\n"
    "data: {broken\n\n"
    'event: message\ndata: {"method": "ping"}'
)


def filtered(stream: str, size: int, id: int | None = 5, max_bytes: int = 1_000) -> str:
    async def chunks() -> AsyncIterator[bytes]:
        data = stream.encode()
        for start in range(0, len(data), size):
            yield data[start : start + size]

    async def read() -> str:
        found = [each async for each in readable_events(chunks(), max_bytes, id)]
        return b"".join(found).decode()

    return asyncio.run(read())


@pytest.mark.parametrize("size", [1, 7, 1_000])
def test_messages_are_corrected_and_other_events_are_kept(size: int) -> None:
    comment, endpoint, answer, empty, broken, ping, _ = filtered(STREAM, size).split("\n\n")
    assert comment == ": a comment"
    assert endpoint == "event: endpoint\ndata: /message"
    assert answer.startswith('id: 1\ndata: {"jsonrpc": "2.0", "id": 1, "result": {')
    assert empty == "id: 2\ndata: "
    message = json.loads(broken.removeprefix("data: "))
    assert (message["id"], message["error"]["message"]) == (5, "its answer cannot be read")
    assert ping == 'event: message\ndata: {"jsonrpc": "2.0", "method": "ping"}'


def test_a_broken_event_of_a_stream_without_a_request_is_left_out() -> None:
    assert "broken" not in filtered(STREAM, 100, None)
    assert "cannot be read" not in filtered(STREAM, 100, None)


@pytest.mark.parametrize("stream", ["data: " + "x" * 2_000, "data: x\n" * 300, "x" * 1_001])
def test_an_event_has_a_limit(stream: str) -> None:
    with pytest.raises(TooLarge):
        filtered(stream, 50)
