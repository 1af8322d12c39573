"""The ways to a server: its stdin and stdout, or HTTP; with bounds on what comes from it.

What a server sends is read within limits: a message of at most MAX_MESSAGE_BYTES, and at most
MAX_UNASKED_MESSAGES a minute that answer nothing. A server beyond them is let go of.
"""

import asyncio
import os
import secrets
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....tools.system import leash, orphans
from ....tools.system.process import named
from ....tools.system.spawn import Spawned, spawn
from ....tools.system.tasks import finish_despite_cancel
from ....tools.system.unicode import clean
from ...lazy import dataclass
from .config import ServerConfig
from .login import authentication, wants_login

if TYPE_CHECKING:
    import httpx2
    from mcp.client._transport import TransportStreams
    from mcp.shared.message import SessionMessage

MAX_MESSAGE_BYTES = 32 * 1024 * 1024
MAX_UNASKED_MESSAGES = 10_000  # in a minute: notifications, requests, lines that are no message
MAX_STDERR_CHARS = 2_000  # that are kept, the newest
CHUNK_BYTES = 1 << 16
END_TIMEOUT_S = 1.0  # for a server whose stdin was closed
CONNECT_TIMEOUT_S = 30.0


class Complaint:
    """Why a server is let go of, and what it said on stderr. `ended` is set when no more can come
    from it."""

    def __init__(self) -> None:
        self.reason = ""
        self.ended = asyncio.Event()
        self._said = ""
        self._unasked = 0
        self._since = time.monotonic()

    def hear(self, data: bytes) -> None:
        """Keep what the server said on stderr, the newest of it."""
        self._said = (self._said + data.decode("utf-8", "replace"))[-MAX_STDERR_CHARS:]

    @property
    def last_words(self) -> str:
        """The last line on stderr, "" where there is none."""
        lines = [line.strip() for line in self._said.splitlines()]
        return clean(next((line for line in reversed(lines) if line), ""))[:300]

    def count_unasked(self) -> bool:
        """Count a message that answers nothing; return whether they are too many."""
        now = time.monotonic()
        if now - self._since > 60:
            self._unasked, self._since = 0, now
        self._unasked += 1
        if self._unasked > MAX_UNASKED_MESSAGES:
            self.reason = f"it sent more than {MAX_UNASKED_MESSAGES:,} messages in a minute"
            return True
        return False


class BoundedStream:
    """A stream of a server's messages that ends where they become too many.

    It stands in for the SDK's `ReadStream`.
    """

    def __init__(self, stream: Any, complaint: Complaint) -> None:
        self._stream, self._complaint = stream, complaint

    async def receive(self) -> "SessionMessage | Exception":
        import anyio
        from mcp_types import JSONRPCError, JSONRPCResponse

        try:
            item: SessionMessage | Exception = await self._stream.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            self._complaint.ended.set()
            raise anyio.EndOfStream from None
        answers = not isinstance(item, Exception) and isinstance(
            item.message, JSONRPCResponse | JSONRPCError
        )
        if not answers and self._complaint.count_unasked():
            self._complaint.ended.set()
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
async def stdio(
    config: ServerConfig, env: Mapping[str, str], cwd: Path, complaint: Complaint
) -> AsyncIterator["TransportStreams"]:
    """Start a server and speak with it through its stdin and stdout for the length of a block; at
    its end the server and all that it has started are ended. Raises OSError."""
    import anyio

    mark = f"mcp-{secrets.token_hex(8)}"
    send_in, receive_in = anyio.create_memory_object_stream[Any](0)
    send_out, receive_out = anyio.create_memory_object_stream[Any](0)
    async with AsyncExitStack() as stack:
        server = await _start(stack, config, named({**env, **config.env}, mark), cwd)
        tasks = [
            asyncio.create_task(_read(server.out, send_in, complaint)),
            asyncio.create_task(_write(server.into, receive_out, send_in)),
            asyncio.create_task(_hear(server.err, complaint)),
        ]
        try:
            yield receive_in, send_out
        finally:
            for stream in (receive_in, send_out):
                stream.close()
            server.into.close()
            await finish_despite_cancel(_end(server, mark, tasks))


async def _end(server: "_Server", mark: str, tasks: "list[asyncio.Task[None]]") -> None:
    """End a server: it may end by itself for a moment, then its group and all that bears its mark
    are ended."""
    with suppress(TimeoutError):
        await asyncio.wait_for(server.process.wait(), END_TIMEOUT_S)
    os.close(server.held)
    await asyncio.to_thread(orphans.end, mark)
    await server.process.wait()
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


@dataclass(frozen=True, slots=True)
class _Server:
    """A server that was started on a leash."""

    process: Spawned
    into: asyncio.StreamWriter
    out: asyncio.StreamReader
    err: asyncio.StreamReader
    held: int  # the end of a pipe: the server ends when it is closed


async def _start(
    stack: AsyncExitStack, config: ServerConfig, env: Mapping[str, str], cwd: Path
) -> _Server:
    """Start a server on a leash; what it is read by is closed with the stack. Raises OSError."""
    loop = asyncio.get_running_loop()
    ends = [os.pipe() for _ in range(4)]  # stdin, stdout, stderr, the leash
    (stdin, into), (out, stdout), (err, stderr), (leashed, held) = ends
    try:
        process = await spawn(
            (sys.executable, "-I", "-S", leash.__file__, str(leashed), *config.command),
            stdin=stdin, stdout=stdout, stderr=stderr, cwd=config.cwd or cwd, env=env,
            pass_fds=(leashed,), start_new_session=True,
        )  # fmt: skip
    except (OSError, ValueError) as error:
        for end in (into, out, err, held):
            os.close(end)
        raise OSError(f"it cannot be started: {error}") from None
    finally:
        for end in (stdin, stdout, stderr, leashed):
            os.close(end)
    from_out, from_err = asyncio.StreamReader(), asyncio.StreamReader()
    for reader, end in ((from_out, out), (from_err, err)):
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await loop.connect_read_pipe(lambda p=protocol: p, os.fdopen(end, "rb", 0))  # type: ignore[misc]
        stack.callback(transport.close)
    writing, flow = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(into, "wb", 0)
    )
    writer = asyncio.StreamWriter(writing, flow, None, loop)
    return _Server(process, writer, from_out, from_err, held)


async def _read(out: asyncio.StreamReader, into: Any, complaint: Complaint) -> None:
    """Hand on what the server writes, a message a line; at its end the stream is closed."""
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
                    complaint.hear(bytes(held[:MAX_STDERR_CHARS]) + b"\n")
                    item = ValueError("a line that is no message")
                held.clear()
                if not await _handed(into, item):
                    return
            held += rest
            if len(held) > MAX_MESSAGE_BYTES:
                complaint.reason = f"it sent a message of more than {MAX_MESSAGE_BYTES >> 20} MiB"
                return


async def _handed(into: Any, item: Any) -> bool:
    """Hand on an item; return whether anybody still takes them."""
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
            except (OSError, RuntimeError):  # it has ended: what waits for it is told so
                into.close()
                return


async def _hear(err: asyncio.StreamReader, complaint: Complaint) -> None:
    while chunk := await err.read(CHUNK_BYTES):
        complaint.hear(chunk)


@asynccontextmanager
async def http(
    config: ServerConfig,
    complaint: Complaint,
    tokens: Path | None = None,
    show: Callable[[str], None] | None = None,
) -> AsyncIterator["TransportStreams"]:
    """Speak with a server over streamable HTTP for the length of a block. Redirects to another
    origin are not followed. `tokens` is the folder of logins; with `show` the person logs in now,
    at the address that it gets."""
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    async def bound(response: "httpx2.Response") -> None:
        if response.status_code == 401 and show is None:
            complaint.reason = wants_login(config.name)
        if response.headers.get("content-encoding", "identity") != "identity":
            raise httpx2.DecodingError("it sent packed data that was not asked for")
        if "event-stream" not in response.headers.get("content-type", ""):
            stream = response.stream
            assert isinstance(stream, httpx2.AsyncByteStream)
            response.stream = _bounded_body(stream, complaint)

    async with (
        authentication(config, tokens, show) as auth,
        httpx2.AsyncClient(
            auth=auth,
            headers={**config.headers, "accept-encoding": "identity"},
            timeout=httpx2.Timeout(CONNECT_TIMEOUT_S, read=None),
            event_hooks={"response": [bound]},
        ) as client,
    ):
        transport = streamable_http_client(
            config.url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES
        )
        async with transport as streams:
            yield streams


def _bounded_body(
    stream: "httpx2.AsyncByteStream", complaint: Complaint
) -> "httpx2.AsyncByteStream":
    import httpx2

    class Bounded(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            left = MAX_MESSAGE_BYTES
            async for chunk in stream:
                left -= len(chunk)
                if left < 0:
                    complaint.reason = (
                        f"it sent a message of more than {MAX_MESSAGE_BYTES >> 20} MiB"
                    )
                    return
                yield chunk

        async def aclose(self) -> None:
            await stream.aclose()

    return Bounded()
