"""A policy implemented by a proxy: the messages that leave the proxy are its result.

You start the proxy yourself, with http://127.0.0.1:PORT as its model server. Each request is sent
to the proxy as an agent would send it; the messages that reach PORT are the result of the policy.
"""

import json
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from policies import ContextPolicy, Messages

REPLY = {
    "id": "msg_1", "type": "message", "role": "assistant", "stop_reason": "end_turn",
    "content": [{"type": "text", "text": "ok"}], "usage": {"input_tokens": 1, "output_tokens": 1},
}  # fmt: skip
TIMEOUT = 120  # seconds for one request


@contextmanager
def through(url: str, port: int, model: str) -> Iterator[ContextPolicy]:
    """Listen at `port` and yield a policy that sends messages to the proxy at `url`. Raises OSError
    if the port is in use or the proxy does not answer.
    """
    came: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if self.path.split("?")[0].endswith("/messages"):
                came.append(body)
            told = json.dumps({**REPLY, "model": model}).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(told)))
            self.end_headers()
            self.wfile.write(told)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    def change(messages: Messages) -> Messages:
        came.clear()
        body = {"model": model, "max_tokens": 1_000, "messages": messages}
        headers = {
            "content-type": "application/json", "x-api-key": "none",
            "anthropic-version": "2023-06-01",
        }  # fmt: skip
        request = urllib.request.Request(
            f"{url.rstrip('/')}/v1/messages", json.dumps(body).encode(), headers
        )
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            answer.read()
        if not came:
            raise OSError(f"nothing came from {url} to 127.0.0.1:{port}: is its model there?")
        found: Messages = came[-1]["messages"]
        return found

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield change
        finally:
            server.shutdown()
