"""A relay between the real command and the served model: it notes what each reply cost, and can add
fields to a request, such as a schema for the reply.
"""

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

from chat import REPLY_S

Body = dict[str, Any]
_HIDDEN = {"content-length", "transfer-encoding", "connection", "date", "server"}


@dataclass(frozen=True)
class RelayedCall:
    """One reply. Tokens as the server reports them."""

    text: str  # as the model wrote it
    finish: str
    prefilled: int
    cached: int
    written: int
    seconds: float  # of the server


@dataclass
class Relay:
    """The calls since the last `take`. `change` returns the body to send."""

    url: str
    change: Callable[[Body], Body] = lambda body: body
    calls: list[RelayedCall] = field(default_factory=list)

    def take(self) -> list[RelayedCall]:
        taken, self.calls = self.calls, []
        return taken


@contextmanager
def relayed(upstream: str) -> Iterator[Relay]:
    """Serve at a free port what `upstream` serves. Both addresses are without `/v1`."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    relay = Relay(f"http://127.0.0.1:{server.server_address[1]}")
    _Handler.relays[server.server_address[1]] = relay, upstream
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield relay
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    relays: ClassVar[dict[int, tuple[Relay, str]]] = {}  # by port

    def do_GET(self) -> None:
        self._pass_on(None)

    def do_POST(self) -> None:
        self._pass_on(self.rfile.read(int(self.headers["content-length"])))

    def log_message(self, *_: Any) -> None:
        pass

    def _pass_on(self, data: bytes | None) -> None:
        relay, upstream = self.relays[self.server.server_address[1]]  # type: ignore[index]
        if data is not None:
            data = json.dumps(relay.change(json.loads(data))).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{upstream}{self.path}", data, headers)
        try:
            reply = urllib.request.urlopen(request, timeout=REPLY_S)
        except urllib.error.HTTPError as error:
            reply = error
        with reply:
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                if name.lower() not in _HIDDEN:
                    self.send_header(name, value)
            self.end_headers()
            if "event-stream" in reply.headers.get("content-type", ""):
                self._pass_on_events(reply, relay)
            else:
                self.wfile.write(reply.read())

    def _pass_on_events(self, reply: HTTPResponse, relay: Relay) -> None:
        text, finish, timings = "", "", Body()
        for line in reply:
            event = _event(line)
            timings = event.get("timings") or timings
            for choice in event.get("choices") or ():
                text += choice["delta"].get("content") or ""
                finish = choice.get("finish_reason") or finish
            self.wfile.write(line)
        read, written = timings.get("prompt_ms", 0.0), timings.get("predicted_ms", 0.0)
        relay.calls.append(
            RelayedCall(
                text=text,
                finish=finish,
                prefilled=timings.get("prompt_n", 0),
                cached=timings.get("cache_n", 0),
                written=timings.get("predicted_n", 0),
                seconds=(read + written) / 1000,
            )
        )


def _event(line: bytes) -> Body:
    """Return the event in a line of a stream, {} for other lines."""
    if not line.startswith(b"data:") or b"[DONE]" in line:
        return {}
    found = json.loads(line.removeprefix(b"data:"))
    return found if isinstance(found, dict) else {}
