"""Requests to servers that are not model servers."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from ctxagent.agent.errors import ToolError
from ctxagent.agent.models.http_client import MAX_ANSWER_BYTES, post


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(int(self.headers["X-Status"]))
        self.send_header("Location", "/elsewhere")
        if body == b"endless":
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            with suppress(OSError):
                while True:
                    self.wfile.write(b": still here\n" * 10_000)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.mark.parametrize("status", [200, 302, 500])
def test_the_status_and_the_body_are_returned_and_nothing_is_followed(
    url: str, status: int
) -> None:
    assert asyncio.run(post(url, b"on", {"X-Status": str(status)})) == (status, "on")


def test_an_endless_stream_of_events_is_cut(url: str) -> None:
    status, body = asyncio.run(post(url, b"endless", {"X-Status": "200"}))
    assert (status, len(body)) == (200, MAX_ANSWER_BYTES)


@pytest.mark.parametrize("address", ["http://127.0.0.1:9/", "nothing", "http://[/"])
def test_no_answer_is_a_tool_error(address: str) -> None:
    with pytest.raises(ToolError):
        asyncio.run(post(address, b"", {}))
