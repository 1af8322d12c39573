"""JSON-RPC with a language server: framed messages, requests in both directions, size limits.

The protocol is https://microsoft.github.io/language-server-protocol; only a few of its messages are
used. Invalid data from the server ends the connection.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

from ..server_process import CHUNK_BYTES, ExitInfo, ServerProcess

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
MAX_HEADER_BYTES = 4_096
MAX_SHOWN_BYTES = 60  # of invalid data
UNKNOWN_METHOD = -32601
RETRY_CODES = (-32801, -32802)  # the content changed meanwhile; the server was busy

OnNotification = Callable[[str, Any], None]  # gets the method and the parameters of a notification
# Returns the result of a request. Raises KeyError for an unknown method.
AnswerRequest = Callable[[str, Any], Any]


class RequestRefused(Exception):
    """The server answered a request with an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class ServerEnded(Exception):
    """The server has exited or was stopped."""


class LspConnection:
    """A connection to one language server."""

    def __init__(
        self,
        process: ServerProcess,
        exit_info: ExitInfo,
        on_notification: OnNotification,
        answer: AnswerRequest,
    ) -> None:
        self._process, self._exit_info = process, exit_info
        self._on_notification, self._answer = on_notification, answer
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._count = 0

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification without waiting. Data that the server has not read yet is
        buffered.
        """
        self._send({"method": method, "params": params})

    async def request(self, method: str, params: Mapping[str, Any] | None) -> Any:
        """Send a request and return its result. Raises RequestRefused and ServerEnded."""
        if self._exit_info.ended.is_set():
            raise ServerEnded
        self._count += 1
        number = self._count
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            self._send({"id": number, "method": method, "params": params})
            return await future
        finally:
            self._waiting.pop(number, None)

    async def read(self) -> None:
        """Read messages from the server until it ends. If it sends invalid data, store the reason
        in `exit_info`.
        """
        buffer = bytearray()
        try:
            while chunk := await self._process.stdout.read(CHUNK_BYTES):
                buffer += chunk
                while (message := _taken(buffer)) is not None:
                    self._take(message)
        except ValueError as error:
            self._exit_info.reason = str(error)
        finally:
            self._exit_info.ended.set()
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(ServerEnded())

    def _take(self, message: Mapping[str, Any]) -> None:
        """Handle a message. Raises ValueError if the server has sent too many unrequested
        messages.
        """
        method, number = message.get("method"), message.get("id")
        if method is None:
            future = self._waiting.get(number) if isinstance(number, int) else None
            if future and not future.done():
                _settle(future, message)
            return
        if self._exit_info.count_unrequested():
            raise ValueError(self._exit_info.reason)
        if number is None:
            self._on_notification(str(method), message.get("params"))
            return
        try:
            result = {"result": self._answer(str(method), message.get("params"))}
        except KeyError:
            result = {"error": {"code": UNKNOWN_METHOD, "message": f"{method} is not known"}}
        self._send({"id": number, **result})

    def _send(self, message: Mapping[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        if not self._process.stdin.is_closing():
            self._process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))


def _settle(future: "asyncio.Future[Any]", message: Mapping[str, Any]) -> None:
    error = message.get("error")
    if not isinstance(error, dict):
        future.set_result(message.get("result"))
        return
    code = error.get("code")
    future.set_exception(
        RequestRefused(code if isinstance(code, int) else 0, str(error.get("message")))
    )


def _taken(buffer: bytearray) -> Mapping[str, Any] | None:
    """Remove the first message from a buffer and return it, None if it is incomplete. Raises
    ValueError for data that is not a message.
    """
    head, found, _ = bytes(buffer[:MAX_HEADER_BYTES]).partition(b"\r\n\r\n")
    if not found:
        if len(buffer) >= MAX_HEADER_BYTES or (
            head and not b"content-".startswith(head[:8].lower())
        ):
            raise ValueError(_no_message(head))
        return None
    fields = dict(line.lower().split(b":", 1) for line in head.split(b"\r\n") if b":" in line)
    size = fields.get(b"content-length", b"").strip()
    if not size.isdigit():
        raise ValueError(_no_message(head))
    if int(size) > MAX_MESSAGE_BYTES:
        raise ValueError(f"it sent a message of more than {MAX_MESSAGE_BYTES >> 20} MiB")
    start = len(head) + 4
    if len(buffer) < start + int(size):
        return None
    body = bytes(buffer[start : start + int(size)])
    del buffer[: start + int(size)]
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        raise ValueError(_no_message(body)) from None
    if not isinstance(message, dict):
        raise ValueError(_no_message(body))
    return message


def _no_message(data: bytes) -> str:
    shown = data[:MAX_SHOWN_BYTES].decode("utf-8", "replace")
    return f"it sent data that is not a message: {shown!r}"
