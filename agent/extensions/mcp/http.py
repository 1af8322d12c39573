"""Transports to a server over HTTP: streamable HTTP, and server-sent events of deprecated servers.

The SDK sends the requests of streamable HTTP. The bodies of the responses pass a filter before the
SDK reads them. It limits their size and corrects messages. The status of a response says whether a
session is lost, never an error in its body.
"""

import asyncio
import json
from collections.abc import AsyncIterable, AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from ....tools.system.tls import tls_options
from ...lazy import dataclass
from ..server_process import ExitInfo
from .config import ServerConfig
from .login import authentication, login_required
from .messages import UNREADABLE, answer_in_body, error_message, read_messages
from .transport import MAX_MESSAGE_BYTES, TOO_LARGE, ConnectionEnd, end_tasks, try_send_all

if TYPE_CHECKING:
    import httpx2
    from mcp.client._transport import TransportStreams


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


CONNECT_TIMEOUT_S = 30.0
ACCEPT_TIMEOUT_S = 30.0  # for the response to a notification, which has no content
GOODBYE_TIMEOUT_S = 5.0  # for the response to the end of a session
SESSION_HEADER = "mcp-session-id"
LOGIN_STATUS = 401
GONE_STATUS = 404  # of a request in a session: the session has ended
# Statuses that say something of the request or of the moment, not of the session.
OTHER_STATUSES = (LOGIN_STATUS, 403, 408, 413, 429)
NO_SSE_REPLACEMENT = (400, 404, 405)  # for `initialize`: the server may be a deprecated one
REFUSED = "it no longer knows this session"


@asynccontextmanager
async def http(
    config: ServerConfig,
    exit_info: ConnectionEnd,
    tokens: Path | None = None,
    show: Callable[[str], None] | None = None,
) -> AsyncIterator["TransportStreams"]:
    """Yield streams to a server over streamable HTTP. Redirects to another origin are not followed.
    `tokens` is the folder of logins. With `show`, the user logs in now: `show` is called with the
    URL to open.
    """
    from mcp.client.streamable_http import streamable_http_client

    async with (
        _client(config, exit_info, tokens, show) as client,
        # The filter of the bodies limits the size of events.
        streamable_http_client(config.url, http_client=client, max_sse_event_size=None) as streams,
    ):
        yield streams


@asynccontextmanager
async def sse(
    config: ServerConfig,
    exit_info: ConnectionEnd,
    tokens: Path | None = None,
    show: Callable[[str], None] | None = None,
) -> AsyncIterator["TransportStreams"]:
    """Yield streams to a server over server-sent events, as the protocol had them until 2025. The
    SDK's own transport cannot receive more than 1 MiB. Raises OSError.
    """
    import anyio
    from mcp.shared._httpx_utils import stream_within_origin

    send_in, receive_in = anyio.create_memory_object_stream[Any](0)
    send_out, receive_out = anyio.create_memory_object_stream[Any](0)
    tasks = list[asyncio.Task[None]]()
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(_client(config, exit_info, tokens, show))
        headers = {"accept": "text/event-stream", "cache-control": "no-store"}
        asking = stream_within_origin(client, "GET", config.url, headers=headers)
        response = await stack.enter_async_context(asking)
        if "event-stream" not in response.headers.get("content-type", ""):
            raise OSError(f"it sends no events: HTTP {response.status_code}")
        found = events_in(response.aiter_raw(), MAX_MESSAGE_BYTES)
        endpoint = ""
        async for event in found:
            if event.name == b"endpoint":
                endpoint = urljoin(config.url, (event.data or b"").decode("utf-8", "replace"))
                break
        if urlsplit(endpoint)[:2] != urlsplit(config.url)[:2]:
            raise OSError("it names no address of its own for messages")
        stack.push_async_callback(end_tasks, tasks)
        tasks += [
            asyncio.create_task(_read_events(found, send_in, exit_info)),
            asyncio.create_task(_post(client, endpoint, receive_out, send_in, exit_info)),
        ]
        try:
            yield receive_in, send_out
        finally:
            for stream in (receive_in, send_out):
                stream.close()


async def _read_events(events: AsyncIterator[Any], into: Any, exit_info: ConnectionEnd) -> None:
    import httpx2

    async with into:
        try:
            async for event in events:
                if event.data and not await try_send_all(into, event.data, exit_info):
                    return
        except TooLarge:
            exit_info.reason = TOO_LARGE
        except httpx2.HTTPError as error:
            exit_info.reason = str(error) or type(error).__name__


async def _post(
    client: "httpx2.AsyncClient", url: str, source: Any, into: Any, exit_info: ConnectionEnd
) -> None:
    """Send messages. A server that refuses one is lost: no answer can come."""
    import httpx2
    from mcp.shared._httpx_utils import request_within_origin

    async with source:
        async for item in source:
            sent = item.message.model_dump(by_alias=True, mode="json", exclude_unset=True)
            try:
                response = await request_within_origin(client, "POST", url, json=sent)
                failure = f"HTTP {response.status_code}" if response.status_code >= 300 else ""
            except httpx2.HTTPError as error:
                failure = str(error) or type(error).__name__
            if failure:
                exit_info.reason = exit_info.reason or f"it refuses messages: {failure}"
                into.close()
                return


@asynccontextmanager
async def _client(
    config: ServerConfig,
    exit_info: ConnectionEnd,
    tokens: Path | None,
    show: Callable[[str], None] | None,
) -> AsyncIterator["httpx2.AsyncClient"]:
    """Yield a client whose responses are judged and filtered."""
    import httpx2

    async def limited(request: "httpx2.Request") -> None:
        seconds = None
        if request.method == "DELETE":
            seconds = GOODBYE_TIMEOUT_S
        elif request.method == "POST" and _request_id(request) is None:
            seconds = ACCEPT_TIMEOUT_S
        if seconds is not None:
            limits = {**request.extensions.get("timeout", {}), "read": seconds}
            request.extensions = {**request.extensions, "timeout": limits}

    async def judged(response: "httpx2.Response") -> None:
        if response.status_code == LOGIN_STATUS and show is None:
            exit_info.reason = login_required(config.name)
        if response.headers.get("content-encoding", "identity") != "identity":
            raise httpx2.DecodingError("it sent compressed data, although none was requested")
        _judge_status(response, exit_info)
        _filter_body(response, exit_info)

    async with (
        authentication(config, tokens, show) as auth,
        httpx2.AsyncClient(
            auth=auth,
            headers={**config.headers, "accept-encoding": "identity"},
            timeout=httpx2.Timeout(CONNECT_TIMEOUT_S, read=None),
            event_hooks={"request": [limited], "response": [judged]},
            **tls_options(),
        ) as client,
    ):
        yield client


def _judge_status(response: "httpx2.Response", exit_info: ConnectionEnd) -> None:
    """Note what the status of a response to a message says of the connection."""
    request, status = response.request, response.status_code
    sent = _sent_message(request)
    if sent is None:
        return
    if sent.get("method") == "initialize":
        exit_info.is_deprecated = status in NO_SSE_REPLACEMENT
    if SESSION_HEADER not in request.headers:
        return
    is_refused = 400 <= status < 500 and status not in OTHER_STATUSES
    if status == GONE_STATUS or (is_refused and sent.get("method") == "ping"):
        exit_info.reason, exit_info.is_refused = REFUSED, True
        exit_info.ended.set()
    elif is_refused:
        exit_info.is_doubted = True


def _filter_body(response: "httpx2.Response", exit_info: ConnectionEnd) -> None:
    """Replace the body of a response by what the SDK can read of it."""
    import httpx2

    stream, status, id = response.stream, response.status_code, _request_id(response.request)
    assert isinstance(stream, httpx2.AsyncByteStream)
    if "event-stream" in response.headers.get("content-type", ""):
        if response.request.method == "POST" or SESSION_HEADER in response.request.headers:
            chunks = readable_events(stream, MAX_MESSAGE_BYTES, id)
            response.stream = _body(chunks, stream, exit_info)
        return
    is_answer = id is not None and status != LOGIN_STATUS and status != 202
    if is_answer and not response.has_redirect_location:
        failure = f"HTTP {status} {response.reason_phrase}".rstrip() if status >= 400 else ""
        response.headers["content-type"] = "application/json"
        assert id is not None
        response.stream = _body(_answer(stream, id, failure), stream, exit_info)
    else:
        response.stream = _body(_bounded(stream), stream, exit_info)


async def _answer(
    stream: "httpx2.AsyncByteStream", id: int | str, failure: str
) -> AsyncIterator[bytes]:
    body = b"".join([chunk async for chunk in _bounded(stream)])
    yield json.dumps(answer_in_body(body, id, failure), ensure_ascii=False).encode()


async def _bounded(stream: "httpx2.AsyncByteStream") -> AsyncIterator[bytes]:
    left = MAX_MESSAGE_BYTES
    async for chunk in stream:
        left -= len(chunk)
        if left < 0:
            raise TooLarge
        yield chunk


def _body(
    chunks: AsyncIterator[bytes], stream: "httpx2.AsyncByteStream", exit_info: ExitInfo
) -> "httpx2.AsyncByteStream":
    """Return a body of these chunks. A body that is too large ends the connection."""
    import httpx2

    class Body(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            try:
                async for chunk in chunks:
                    yield chunk
            except TooLarge:
                exit_info.reason = TOO_LARGE
                exit_info.ended.set()

        async def aclose(self) -> None:
            await stream.aclose()

    return Body()


def _sent_message(request: "httpx2.Request") -> dict[str, Any] | None:
    """Return the message in a request, None for a request without one."""
    if request.method != "POST" or "json" not in request.headers.get("content-type", ""):
        return None
    try:
        sent = json.loads(request.content)
    except ValueError:
        return None
    return sent if isinstance(sent, dict) and "jsonrpc" in sent else None


def _request_id(request: "httpx2.Request") -> int | str | None:
    """Return the ID of the call in a request, None for other messages."""
    sent = _sent_message(request)
    return sent.get("id") if sent is not None and "method" in sent else None
