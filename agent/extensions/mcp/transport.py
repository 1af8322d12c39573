"""The transport to a server over its stdin and stdout. `http.py` has the transports over HTTP.

Input from a server is limited: MAX_MESSAGE_BYTES per message, and a maximum rate of unrequested
messages. A server that exceeds a limit is stopped.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from ...config.start_gate import ClearedStart
from ..server_process import CHUNK_BYTES, ExitInfo, run_server
from .messages import UNREADABLE, broken_answer_id, error_message, read_messages

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams
    from mcp.shared.message import SessionMessage

MAX_MESSAGE_BYTES = 32 * 1024 * 1024
MAX_SHOWN_BYTES = 2_000  # of a line that is no message
TOO_LARGE = f"it sent a message of more than {MAX_MESSAGE_BYTES >> 20} MiB"


class ConnectionEnd(ExitInfo):
    """Why a connection ended, and what the statuses of HTTP responses say of it."""

    is_refused = False  # the server does not know the session: it executed nothing
    is_doubted = False  # it refused a request, and may not know the session
    is_deprecated = False  # it refused the handshake of streamable HTTP
    unaddressed = ""  # the newest error that answers no request


class BoundedStream:
    """A stream of a server's messages that ends if there are too many unrequested messages.

    It replaces the SDK's `ReadStream`.
    """

    def __init__(self, stream: Any, exit_info: ConnectionEnd) -> None:
        self._stream, self._exit_info = stream, exit_info

    async def receive(self) -> "SessionMessage | Exception":
        import anyio

        from .answers import unaddressed_error, with_plain_answer

        try:
            item: SessionMessage | Exception = await self._stream.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            self._exit_info.ended.set()
            raise anyio.EndOfStream from None
        answers = not isinstance(item, Exception) and not hasattr(item.message, "method")
        if not answers and self._exit_info.count_unrequested():
            self._exit_info.ended.set()
            raise anyio.EndOfStream
        self._exit_info.unaddressed = unaddressed_error(item) or self._exit_info.unaddressed
        return with_plain_answer(item)

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
async def stdio(
    cleared: ClearedStart, exit_info: ConnectionEnd
) -> AsyncIterator["TransportStreams"]:
    """Start a server and yield streams over its stdin and stdout. At the end of the block, stop the
    server and its child processes. Raises OSError.
    """
    import anyio

    send_in, receive_in = anyio.create_memory_object_stream[Any](0)
    send_out, receive_out = anyio.create_memory_object_stream[Any](0)
    tasks = list[asyncio.Task[None]]()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(end_tasks, tasks)
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


async def end_tasks(tasks: "list[asyncio.Task[None]]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _read(out: asyncio.StreamReader, into: Any, exit_info: ConnectionEnd) -> None:
    """Forward the server's output, one message per line. Close the stream at the end of
    the output.
    """
    held = bytearray()
    async with into:
        while chunk := await out.read(CHUNK_BYTES):
            *lines, rest = chunk.split(b"\n")
            for line in lines:
                held += line
                if not await try_send_all(into, bytes(held), exit_info):
                    return
                held.clear()
            held += rest
            if len(held) > MAX_MESSAGE_BYTES:
                exit_info.reason = TOO_LARGE
                return


async def try_send_all(into: Any, data: bytes, exit_info: ConnectionEnd) -> bool:
    """Send the messages in a line into a stream. A broken answer becomes an error. Return False if
    the stream is closed.
    """
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    try:
        messages = read_messages(data)
    except ValueError:
        exit_info.add_stderr(data[:MAX_SHOWN_BYTES] + b"\n")
        if (id := broken_answer_id(data)) is None:
            return await _try_send(into, ValueError("a line that is no message"))
        messages = [error_message(id, UNREADABLE)]
    for message in messages:
        read = jsonrpc_message_adapter.validate_python(message, by_name=False)
        if not await _try_send(into, SessionMessage(read)):
            return False
    return True


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
