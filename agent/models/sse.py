"""Reads a stream of server-sent events: bytes become JSON objects, within bounds.

`limit_silence` bounds the silence between chunks of bytes, and `parse_events` makes JSON objects of
them. `parse_arguments` parses the whole arguments of a tool. What a server sends is bounded.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, NoReturn

from ..context.request import MAX_JSON_DEPTH, is_too_deep

_END = b"[DONE]"  # that some protocols end a stream with
MAX_REPLY_BYTES = 64 * 1024 * 1024  # bytes of a streamed reply; the longest real ones have a fifth


async def limit_silence(
    chunks: AsyncIterator[bytes], *, deadline: float, between: float
) -> AsyncGenerator[bytes, None]:
    """Yield the same chunks. Raises TimeoutError when the first has not come by `deadline` (on the
    loop's clock), or a later one within `between` seconds of the one before it."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            async with asyncio.timeout_at(deadline):
                chunk = await anext(chunks)
        except StopAsyncIteration:
            return
        yield chunk
        deadline = loop.time() + between


async def parse_events(chunks: AsyncIterator[bytes]) -> AsyncGenerator[dict[str, Any], None]:
    """Yield the events of a `text/event-stream`, each as its JSON object, up to a `[DONE]`;
    skip pings and comments. One that is an error by its name alone is given the API's form. Raises
    ValueError for data that is not a JSON object in UTF-8, or that could not be written down again,
    and for a stream that is too large."""
    data: list[bytes] = []
    name = b""
    async with aclosing(_lines(chunks)) as lines:
        async for line in lines:
            if line.startswith(b"data:"):
                data.append(line[5:].removeprefix(b" "))
            elif line.startswith(b"event:"):
                name = line[6:].strip()
            elif not line and data:
                if data == [_END]:
                    return
                event = _event(b"\n".join(data))
                if not isinstance(event, dict):
                    raise ValueError(f"an event that is {event!r:.80}, not an object")
                yield {"type": "error", "error": event} if _is_bare(event, name) else event
                data, name = [], b""


def _is_bare(event: dict[str, Any], name: bytes) -> bool:
    """Return True if an event is an error without its envelope, as llama.cpp sends it."""
    return name == b"error" and event.get("type") != "error"


def _event(data: bytes) -> Any:
    try:
        event = json.loads(data.decode(), parse_constant=_refuse_constant)
        too_deep = is_too_deep(event, 2 * MAX_JSON_DEPTH)
    except RecursionError:
        too_deep = True
    if too_deep:
        raise ValueError("an event that is nested too deep")
    return event


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    rest: list[bytes] = []  # a line in pieces, joined once
    size = 0
    async for chunk in chunks:
        size += len(chunk)
        if size > MAX_REPLY_BYTES:
            raise ValueError(f"a reply of more than {MAX_REPLY_BYTES >> 20} MB")
        head, *more = chunk.split(b"\n")
        rest.append(head)
        for tail in more:
            yield b"".join(rest).removesuffix(b"\r")
            rest = [tail]


def parse_arguments(raw: str) -> dict[str, Any] | None:
    """Return a tool's arguments, or None when they are not one whole JSON object. NaN and Infinity,
    which Python would read, and deep nesting are refused: they could not be sent back."""
    try:
        value = json.loads(raw, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and not is_too_deep(value) else None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
