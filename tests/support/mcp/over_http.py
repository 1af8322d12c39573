"""An MCP server over HTTP in this process, with the message shapes of the TypeScript SDK.

It answers JSON-RPC's general server error (-32000) where that SDK does: before `initialize`, for an
unknown session, and as the answer to a call of the tool `refuse`. Its other tool is `echo`.
"""

import itertools
import json
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "refuse")]
UNKNOWN_SESSION = {"code": -32000, "message": "Bad Request: No valid session ID provided"}
REFUSED = {"code": -32000, "message": "rate limited, try later"}


class McpOverHttp(ThreadingHTTPServer):
    """A server at `/mcp` (streamable HTTP) and at `/sse` (server-sent events)."""

    daemon_threads = True

    def __init__(self, unknown_session_status: int = 404) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.unknown_session_status = unknown_session_status
        self.sessions: dict[str, queue.Queue[bytes | None]] = {}
        self.calls: list[str] = []
        self.numbers = itertools.count(1)
        self.forget_before_call = 0  # number of the call before which all sessions are forgotten

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def result(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a request, without its frame."""
        method, params = message["method"], message.get("params") or {}
        if method == "initialize":
            return {
                "result": {
                    "protocolVersion": params["protocolVersion"],
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "double", "version": "1"},
                }
            }
        if method == "tools/list":
            return {"result": {"tools": TOOLS}}
        if method == "tools/call":
            self.calls.append(params["name"])
            if params["name"] == "refuse":
                return {"error": REFUSED}
            text = str(params["arguments"].get("text", ""))
            return {"result": {"content": [{"type": "text", "text": text}]}}
        return {"result": {}}


@contextmanager
def mcp_over_http(unknown_session_status: int = 404) -> Iterator[McpOverHttp]:
    """Run a server for the length of a block."""
    with McpOverHttp(unknown_session_status) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            for stream in server.sessions.values():
                stream.put(None)
            server.shutdown()


class _Handler(BaseHTTPRequestHandler):
    server: McpOverHttp

    def do_GET(self) -> None:
        if urlsplit(self.path).path != "/sse":
            self._reply(405, b"", "text/plain")
            return
        name = f"sse-{next(self.server.numbers)}"
        stream = self.server.sessions[name] = queue.Queue()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        self.wfile.write(f"event: endpoint\ndata: /message?sessionId={name}\n\n".encode())
        while (data := stream.get()) is not None:
            self.wfile.write(b"event: message\ndata: " + data + b"\n\n")
            self.wfile.flush()

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        place = urlsplit(self.path)
        if place.path == "/message":
            stream = self.server.sessions[parse_qs(place.query)["sessionId"][0]]
            self._reply(202, b"Accepted", "text/plain")
            if "id" in message:
                stream.put(_framed(message, self.server.result(message)))
        elif place.path == "/mcp":
            self._streamable(message)
        else:
            self._reply(404, b"<!doctype html>Cannot POST", "text/html")

    def do_DELETE(self) -> None:
        self._reply(200, b"", "text/plain")

    def _streamable(self, message: dict[str, Any]) -> None:
        server, session = self.server, self.headers.get("mcp-session-id")
        if message["method"] == "tools/call" and len(server.calls) + 1 == server.forget_before_call:
            server.sessions.clear()
            server.forget_before_call = 0
        if message["method"] == "initialize":
            session = f"session-{next(server.numbers)}"
            server.sessions[session] = queue.Queue()
        elif session not in server.sessions:
            status = server.unknown_session_status if session else 400
            body = _framed({"id": None}, {"error": UNKNOWN_SESSION})
            self._reply(status, body, "application/json")
            return
        if "id" not in message:
            self._reply(202, b"", "text/plain")
            return
        event = b"event: message\ndata: " + _framed(message, server.result(message)) + b"\n\n"
        self._reply(200, event, "text/event-stream", session)

    def _reply(self, status: int, body: bytes, kind: str, session: str | None = None) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        if session:
            self.send_header("mcp-session-id", session)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


def _framed(message: dict[str, Any], answer: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}).encode()
