"""Parse server-sent events into JSON objects, within limits of size and of time between chunks."""

import asyncio
import json
import math
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, NoReturn

from ..border.values import MAX_JSON_DEPTH, is_too_deep

_END = b"[DONE]"  # end of a stream in some protocols
MAX_REPLY_BYTES = 64 * 1024 * 1024  # of a streamed reply; 5 times the longest real one


def deadline_after(seconds: float) -> float:
    """Return the loop time in some seconds."""
    return asyncio.get_running_loop().time() + seconds


class OnlyPings(TimeoutError):
    """The server has sent only signs of life for too long."""


async def limit_silence(
    chunks: AsyncIterator[bytes],
    *,
    deadline: float,
    between: float,
    progress_by: Callable[[], float] = lambda: math.inf,
) -> AsyncGenerator[bytes, None]:
    """Yield the chunks unchanged. Raises TimeoutError if the first chunk is not there by `deadline`
    (loop time), or a later one within `between` seconds after the previous one. Raises OnlyPings if
    a chunk comes after `progress_by()`.
    """
    while True:
        try:
            async with asyncio.timeout_at(deadline):
                chunk = await anext(chunks)
        except StopAsyncIteration:
            return
        if deadline_after(0) > progress_by():
            raise OnlyPings
        yield chunk
        deadline = deadline_after(between)


async def parse_events(chunks: AsyncIterator[bytes]) -> AsyncGenerator[dict[str, Any], None]:
    """Yield each event of a `text/event-stream` as its JSON object, up to `[DONE]`. Skip pings and
    comments. Wrap an error without an envelope in the API's form. Raises ValueError for data that
    is not a JSON object in UTF-8 or cannot be serialized again, and for a stream that is too large.
    """
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
    """Return True if an event is an error without an envelope, as llama.cpp sends it."""
    return name == b"error" and event.get("type") != "error"


def _event(data: bytes) -> Any:
    try:
        event = json.loads(data.decode(), parse_constant=_refuse_constant)
        too_deep = is_too_deep(event, 2 * MAX_JSON_DEPTH)
    except RecursionError:
        too_deep = True
    if too_deep:
        raise ValueError("an event that is nested too deeply")
    return event


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    rest: list[bytes] = []  # pieces of an incomplete line
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
    """Return a tool's arguments, None if they are not one complete JSON object. Refuse NaN,
    Infinity (which Python accepts) and deep nesting, because they cannot be sent back.
    """
    try:
        value = json.loads(raw, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and not is_too_deep(value) else None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
