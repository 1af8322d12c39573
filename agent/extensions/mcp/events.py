"""Server-sent events of a server: read with a limit, and with messages that the SDK accepts."""

import json
from collections.abc import AsyncIterable, AsyncIterator

from ...lazy import dataclass
from .messages import UNREADABLE, error_message, read_messages

MESSAGE_EVENTS = (b"", b"message")


class TooLarge(Exception):
    """A server sent more than one message may have."""


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event."""

    name: bytes
    data: bytes | None  # None for an event without data
    other: tuple[bytes, ...]  # its other lines


async def events_in(chunks: AsyncIterable[bytes], max_bytes: int) -> AsyncIterator[ServerEvent]:
    """Yield the events of a stream. Raises TooLarge for an event of more than `max_bytes`."""
    name, data, other, size = b"", list[bytes](), list[bytes](), 0
    async for line in _lines(chunks, max_bytes):
        size += len(line)
        if size > max_bytes:
            raise TooLarge
        field, _, value = line.partition(b":")
        if line and field == b"data":
            data.append(value.removeprefix(b" "))
        elif line:
            other.append(line)
            name = value.removeprefix(b" ") if field == b"event" else name
        elif data or other:
            yield ServerEvent(name, b"\n".join(data) if data else None, tuple(other))
            name, data, other, size = b"", [], [], 0
    if data:  # the last event of a stream that was cut
        yield ServerEvent(name, b"\n".join(data), tuple(other))


async def readable_events(
    chunks: AsyncIterable[bytes], max_bytes: int, id: int | str | None
) -> AsyncIterator[bytes]:
    """Yield a stream whose messages the SDK accepts. `id` is the request that the stream answers.
    An event of it that cannot be read becomes an error. Raises TooLarge.
    """
    async for event in events_in(chunks, max_bytes):
        head = b"".join(line + b"\n" for line in event.other)
        if event.data is None or not event.data or event.name not in MESSAGE_EVENTS:
            yield head + (b"" if event.data is None else _data_lines(event.data)) + b"\n"
            continue
        try:
            messages = read_messages(event.data)
        except ValueError:
            messages = [] if id is None else [error_message(id, UNREADABLE)]
        for message in messages:
            yield head + _data_lines(json.dumps(message, ensure_ascii=False).encode()) + b"\n"


def _data_lines(data: bytes) -> bytes:
    return b"".join(b"data: " + line + b"\n" for line in data.split(b"\n"))


async def _lines(chunks: AsyncIterable[bytes], max_bytes: int) -> AsyncIterator[bytes]:
    held = bytearray()
    async for chunk in chunks:
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            held += line
            yield bytes(held).removesuffix(b"\r")
            held.clear()
        held += rest
        if len(held) > max_bytes:
            raise TooLarge
    if held:
        yield bytes(held).removesuffix(b"\r")
