"""Events in a stream of bytes, and the time between its chunks."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ctxagent.agent.models.transport import (
    OnlyPings,
    deadline_after,
    limit_silence,
    parse_arguments,
    parse_events,
)

DEEP = b'data: {"a": ' + b"[" * 10**5 + b"\n\n"


async def _chunks(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_events_are_found_wherever_the_bytes_are_cut(size: int) -> None:
    text = (
        ': hello\n\nevent: a\ndata: {"n": "ä\\ud83d"}\n\nid: 3\r\ndata: {"n":\r\ndata: 2}\r\n\r\n'
        '\n\ndata:{"n": 3}\n\ndata: {"n": 4}\n'
    )
    data = text.encode()
    pieces = [data[n : n + size] for n in range(0, len(data), size)]

    async def gather() -> list[Any]:
        return [event["n"] async for event in parse_events(_chunks(*pieces))]

    assert asyncio.run(gather()) == ["ä\ud83d", 2, 3]


def test_an_error_by_its_name_alone_is_one() -> None:
    """As llama.cpp sends it."""
    error = {"code": 500, "message": "no such format", "type": "server_error"}
    data = f'event: error\ndata: {json.dumps(error)}\n\ndata: {{"type": "error", "n": 1}}\n\n'

    async def gather() -> list[Any]:
        return [event async for event in parse_events(_chunks(data.encode()))]

    assert asyncio.run(gather()) == [{"type": "error", "error": error}, {"type": "error", "n": 1}]


@pytest.mark.parametrize("data", [b"data: [1]\n\n", b"data: nope\n\n", b'data: "\xff"\n\n', DEEP])
def test_data_that_is_no_object_is_an_error(data: bytes) -> None:
    async def gather() -> None:
        [event async for event in parse_events(_chunks(data))]

    with pytest.raises(ValueError, match=r"an event that is|Expecting value|utf-8|deep"):
        asyncio.run(gather())


@pytest.mark.slow
def test_every_chunk_is_a_sign_of_life() -> None:
    async def pinging() -> AsyncIterator[bytes]:
        yield b"first"
        await asyncio.sleep(0.1)
        yield b": ping"

    async def gather() -> list[bytes]:
        deadline = asyncio.get_running_loop().time() + 0.05
        return [chunk async for chunk in limit_silence(pinging(), deadline=deadline, between=30)]

    assert asyncio.run(gather()) == [b"first", b": ping"]


@pytest.mark.parametrize("is_late", [False, True])
def test_pings_alone_are_no_progress(is_late: bool) -> None:
    async def gather() -> list[bytes]:
        by = deadline_after(-1 if is_late else 1_000)
        limited = limit_silence(
            _chunks(b": ping"), deadline=deadline_after(100), between=30, progress_by=lambda: by
        )
        return [chunk async for chunk in limited]

    if is_late:
        with pytest.raises(OnlyPings):
            asyncio.run(gather())
    else:
        assert asyncio.run(gather()) == [b": ping"]


def test_arguments_keep_what_json_can_say() -> None:
    given = {"text": "ä\n\u0000", "n": 12345678901234567890, "deep": [{"x": None}]}
    assert parse_arguments(json.dumps(given)) == given
    assert parse_arguments('{"n": Infinity}') is None
