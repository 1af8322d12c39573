"""Transports to a server: its stdin and stdout, or HTTP.

Input from a server is limited: MAX_MESSAGE_BYTES per message, and a maximum rate of unrequested
messages. A server that exceeds a limit is stopped.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....tools.system.tls import tls_options
from ...config.start_gate import ClearedStart
from ..server_process import CHUNK_BYTES, MAX_STDERR_CHARS, ExitInfo, run_server
from .config import ServerConfig
from .login import authentication, login_required

if TYPE_CHECKING:
    import httpx2
    from mcp.client._transport import TransportStreams
    from mcp.shared.message import SessionMessage

MAX_MESSAGE_BYTES = 32 * 1024 * 1024
CONNECT_TIMEOUT_S = 30.0


class BoundedStream:
    """A stream of a server's messages that ends if there are too many unrequested messages.

    It replaces the SDK's `ReadStream`.
    """

    def __init__(self, stream: Any, exit_info: ExitInfo) -> None:
        self._stream, self._exit_info = stream, exit_info

    async def receive(self) -> "SessionMessage | Exception":
        import anyio
        from mcp_types import JSONRPCError, JSONRPCResponse

        try:
            item: SessionMessage | Exception = await self._stream.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            self._exit_info.ended.set()
            raise anyio.EndOfStream from None
        answers = not isinstance(item, Exception) and isinstance(
            item.message, JSONRPCResponse | JSONRPCError
        )
        if not answers and self._exit_info.count_unrequested():
            self._exit_info.ended.set()
            raise anyio.EndOfStream
        return item

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> "BoundedStream":
        return self

    async def __anext__(self) -> "SessionMessage | Exception":
        import anyio

        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> "BoundedStream":
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()


@asynccontextmanager
async def stdio(cleared: ClearedStart, exit_info: ExitInfo) -> AsyncIterator["TransportStreams"]:
    """Start a server and yield streams over its stdin and stdout. At the end of the block, stop the
    server and its child processes. Raises OSError.
    """
    import anyio

    send_in, receive_in = anyio.create_memory_object_stream[Any](0)
    send_out, receive_out = anyio.create_memory_object_stream[Any](0)
    tasks = list[asyncio.Task[None]]()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(_end, tasks)
        server = await stack.enter_async_context(run_server(cleared, exit_info))
        tasks += [
            asyncio.create_task(_read(server.stdout, send_in, exit_info)),
            asyncio.create_task(_write(server.stdin, receive_out, send_in)),
        ]
        try:
            yield receive_in, send_out
        finally:
            for stream in (receive_in, send_out):
                stream.close()


async def _end(tasks: "list[asyncio.Task[None]]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _read(out: asyncio.StreamReader, into: Any, exit_info: ExitInfo) -> None:
    """Forward the server's output, one message per line. Close the stream at the end of
    the output.
    """
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    held = bytearray()
    async with into:
        while chunk := await out.read(CHUNK_BYTES):
            *lines, rest = chunk.split(b"\n")
            for line in lines:
                held += line
                try:
                    message = jsonrpc_message_adapter.validate_json(bytes(held), by_name=False)
                    item: SessionMessage | Exception = SessionMessage(message)
                except ValueError:
                    exit_info.add_stderr(bytes(held[:MAX_STDERR_CHARS]) + b"\n")
                    item = ValueError("a line that is no message")
                held.clear()
                if not await _try_send(into, item):
                    return
            held += rest
            if len(held) > MAX_MESSAGE_BYTES:
                exit_info.reason = f"it sent a message of more than {MAX_MESSAGE_BYTES >> 20} MiB"
                return


async def _try_send(into: Any, item: Any) -> bool:
    """Send an item into a stream. Return False if the stream is closed."""
    import anyio

    try:
        await into.send(item)
    except (anyio.ClosedResourceError, anyio.BrokenResourceError):
        return False
    return True


async def _write(stdin: asyncio.StreamWriter, source: Any, into: Any) -> None:
    async with source:
        async for item in source:
            text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
            try:
                stdin.write(text.encode("utf-8", "replace") + b"\n")
                await stdin.drain()
            except (OSError, RuntimeError):  # the server ended: notify waiting requests
                into.close()
                return


@asynccontextmanager
async def http(
    config: ServerConfig,
    exit_info: ExitInfo,
    tokens: Path | None = None,
    show: Callable[[str], None] | None = None,
) -> AsyncIterator["TransportStreams"]:
    """Yield streams to a server over streamable HTTP. Redirects to another origin are not followed.
    `tokens` is the folder of logins. With `show`, the user logs in now: `show` is called with the
    URL to open.
    """
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    async def bound(response: "httpx2.Response") -> None:
        if response.status_code == 401 and show is None:
            exit_info.reason = login_required(config.name)
        if response.headers.get("content-encoding", "identity") != "identity":
            raise httpx2.DecodingError("it sent compressed data, although none was requested")
        if "event-stream" not in response.headers.get("content-type", ""):
            stream = response.stream
            assert isinstance(stream, httpx2.AsyncByteStream)
            response.stream = _bounded_body(stream, exit_info)

    async with (
        authentication(config, tokens, show) as auth,
        httpx2.AsyncClient(
            auth=auth,
            headers={**config.headers, "accept-encoding": "identity"},
            timeout=httpx2.Timeout(CONNECT_TIMEOUT_S, read=None),
            event_hooks={"response": [bound]},
            **tls_options(),
        ) as client,
    ):
        transport = streamable_http_client(
            config.url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES
        )
        async with transport as streams:
            yield streams


def _bounded_body(
    stream: "httpx2.AsyncByteStream", exit_info: ExitInfo
) -> "httpx2.AsyncByteStream":
    import httpx2

    class Bounded(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            left = MAX_MESSAGE_BYTES
            async for chunk in stream:
                left -= len(chunk)
                if left < 0:
                    exit_info.reason = (
                        f"it sent a message of more than {MAX_MESSAGE_BYTES >> 20} MiB"
                    )
                    return
                yield chunk

        async def aclose(self) -> None:
            await stream.aclose()

    return Bounded()
