"""JSON-RPC messages, one per line, over two file descriptors.

Threads read and write, so that a slow editor or a long line does not block the sessions. An invalid
line is answered with its JSON-RPC error, and has no other effect.
"""

import asyncio
import json
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

from acp.exceptions import RequestError

from ..stream_input import MAX_LINE_BYTES, bounded_lines

MAX_UNREAD_BYTES = 256 << 20  # unread output at which the editor counts as gone
OPENING_METHODS = ("session/new", "session/load")  # mcpServers is optional in these

Message = dict[str, Any]


class LineTransport:
    """A transport for the package `acp`. `send` queues a message without waiting. `receive` returns
    None once the input has ended or the output has no reader.
    """

    def __init__(self, source: int, sink: int) -> None:
        self.sent: Callable[[Message], None] = lambda message: None  # called with each message sent
        self._sink = sink
        self._incoming: asyncio.Queue[Message | RequestError | None] = asyncio.Queue()
        self._outgoing: SimpleQueue[bytes | None] = SimpleQueue()
        self._unread = 0  # bytes not written yet
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, args=(loop, source), daemon=True, name="stdin").start()
        self._writer = threading.Thread(target=self._write, args=(loop,), daemon=True)
        self._writer.start()

    def put(self, message: Message) -> None:
        """Queue a message for sending. End the transport if too much is unread."""
        text = json.dumps(message, ensure_ascii=False, default=str)
        data = text.encode("utf-8", "replace") + b"\n"
        self._unread += len(data)
        if self._unread > MAX_UNREAD_BYTES:
            self.end()
            return
        self._outgoing.put(data)

    async def send(self, message: Message) -> None:
        self.put(message)
        self.sent(message)

    async def receive(self) -> Message | None:
        while isinstance(found := await self._incoming.get(), RequestError):
            self.put({"jsonrpc": "2.0", "id": None, "error": found.to_error_obj()})
        return found

    def end(self) -> None:
        """Make `receive` return None after the messages already received."""
        self._incoming.put_nowait(None)

    async def close(self) -> None:
        """Write the queued messages, for at most one second."""
        self._outgoing.put(None)
        await asyncio.to_thread(self._writer.join, 1.0)

    def _read(self, loop: asyncio.AbstractEventLoop, source: int) -> None:
        with suppress(RuntimeError):  # the loop has ended
            for number, line in bounded_lines(source):
                loop.call_soon_threadsafe(self._incoming.put_nowait, _message(number, line))
            loop.call_soon_threadsafe(self._incoming.put_nowait, None)

    def _write(self, loop: asyncio.AbstractEventLoop) -> None:
        while (data := self._outgoing.get()) is not None:
            rest = memoryview(data)
            try:
                while rest:
                    rest = rest[os.write(self._sink, rest) :]
            except OSError:  # the reader has gone
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(self._incoming.put_nowait, None)
                return
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._wrote, len(data))

    def _wrote(self, size: int) -> None:
        self._unread -= size


def _message(number: int, line: bytes | None) -> Message | RequestError:
    """Return the message on a line, or its error."""
    if line is None:
        why = f"line {number} has more than {MAX_LINE_BYTES >> 20} MiB"
        return RequestError(-32600, why, {"line": number})
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        return RequestError(-32700, f"line {number} is not JSON: {error}", {"line": number})
    if not isinstance(found, dict) or not ({"method", "result", "error"} & found.keys()):
        why = f"line {number} is not a JSON-RPC message: it must be an object with a method"
        return RequestError(-32600, why, {"line": number})
    params = found.get("params")
    if found.get("method") in OPENING_METHODS and isinstance(params, dict):
        params.setdefault("mcpServers", [])
    return found
