"""A Messages API server on loopback for benchmarks: answers at once and checks nothing."""

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

EVENTS = (
    {"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant",
     "content": [], "model": "m", "stop_reason": None, "usage": {"input_tokens": 9,
     "output_tokens": 1}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello."}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}},
    {"type": "message_stop"},
)  # fmt: skip
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
REPLY = "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in EVENTS).encode()


class _Http(ThreadingHTTPServer):
    heard: Callable[[], None] | None = None


class _Exchange(BaseHTTPRequestHandler):
    server: _Http
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # headers and body in one packet: two would wait for a delayed acknowledgement

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        if self.server.heard is not None:
            self.server.heard()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(REPLY)))
        self.end_headers()
        self.wfile.write(REPLY)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def answering(heard: Callable[[], None] | None = None) -> Iterator[str]:
    """A server for the time of the block; its address. `heard` is called for each request, as soon
    as all of it is there."""
    server = _Http(("127.0.0.1", 0), _Exchange)
    server.heard = heard
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def environ(folder: str, url: str) -> dict[str, str]:
    """An environment of its own for the command."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": folder,
        "CTXAGENT_STATE_DIR": f"{folder}/state",
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "benchmark",
    }
