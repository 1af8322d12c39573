"""A Messages API server on loopback for benchmarks: it answers immediately, counts the tokens of a
prompt by its length, and checks nothing.
"""

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SUMMARY = """## Session Intent
Run them all.
## Key Decisions
1. One after another, because each needs the one before.
## Current State
Phase: running
- Done: the first ones
## Next Steps
1. Run the next one.
"""


def stream(block: dict[str, Any], delta: dict[str, Any], stop_reason: str) -> bytes:
    """Return the events of a reply with one block."""
    events = (
        {"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant",
         "content": [], "model": "m", "stop_reason": None, "usage": {"input_tokens": 0,
         "output_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": stop_reason},
         "usage": {"output_tokens": 3}},
        {"type": "message_stop"},
    )  # fmt: skip
    return "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events).encode()


def call(id: str, tool: str, given: dict[str, Any]) -> bytes:
    """Return the events of a reply that calls a tool."""
    block = {"type": "tool_use", "id": id, "name": tool, "input": {}}
    delta = {"type": "input_json_delta", "partial_json": json.dumps(given)}
    return stream(block, delta, "tool_use")


BYTES_PER_TOKEN = 4
_NOT_COUNTED = b'"input_tokens": 0'
HELLO = stream({"type": "text", "text": ""}, {"type": "text_delta", "text": "Hello."}, "end_turn")


class _Http(ThreadingHTTPServer):
    reply: Callable[[], bytes]


class _Exchange(BaseHTTPRequestHandler):
    server: _Http
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # headers and body in one packet: two would wait for a delayed acknowledgement

    def do_POST(self) -> None:
        size = int(self.headers["content-length"])
        self.rfile.read(size)
        counted = f'"input_tokens": {size // BYTES_PER_TOKEN}'.encode()
        reply = self.server.reply().replace(_NOT_COUNTED, counted)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def answering(reply: Callable[[], bytes] = lambda: HELLO) -> Iterator[str]:
    """Run a server and yield its address. `reply` is called for each complete request and returns
    the events of the reply.
    """
    server = _Http(("127.0.0.1", 0), _Exchange)
    server.reply = reply
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def environ(folder: str, url: str) -> dict[str, str]:
    """Return an isolated environment for the command."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": folder,
        "CTXAGENT_STATE_DIR": f"{folder}/state",
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "benchmark",
    }
