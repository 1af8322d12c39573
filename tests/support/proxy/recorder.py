"""An upstream that records the bytes of each request and answers with given bytes."""

import select
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Received:
    """A request as received."""

    method: str
    path: str
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        return next((v for n, v in self.headers if n.lower() == name.lower()), None)


@dataclass(frozen=True)
class Answer:
    """An answer whose body is sent in these pieces. `endless` repeats the last piece forever."""

    pieces: Sequence[bytes] = (b"{}",)
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: {"content-type": "application/json"})
    endless: bool = False
    mute: bool = False  # no answer at all

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)


@dataclass
class Recorder:
    """Recording upstream. `answer` returns the answer to each request. A client that disconnects
    sets `hung_up`.
    """

    answer: Callable[[Received], Answer] = lambda received: Answer()
    requests: list[Received] = field(default_factory=list)
    hung_up: threading.Event = field(default_factory=threading.Event)
    stopping: threading.Event = field(default_factory=threading.Event)
    url: str = ""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    owner: Recorder

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.headers.get("transfer-encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        received = Received(self.command, self.path, self.headers.items(), body)
        self.owner.requests.append(received)
        answer = self.owner.answer(received)
        if answer.mute:
            self._stand_still()
            return
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        if self.command == "HEAD":
            return
        try:
            for piece in answer.pieces:
                self._write(piece)
            while answer.endless and not self.owner.stopping.wait(0.01):
                self._write(answer.pieces[-1])
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.owner.hung_up.set()
            self.close_connection = True

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_OPTIONS = _handle

    def _stand_still(self) -> None:
        self.close_connection = True
        while not self.owner.stopping.is_set():
            readable, _, _ = select.select([self.connection], [], [], 0.02)
            if readable and not self.connection.recv(1):
                self.owner.hung_up.set()
                return

    def _write(self, piece: bytes) -> None:
        if piece:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Do nothing: tests disconnect on purpose."""


@contextmanager
def recorder(answer: Callable[[Received], Answer] | None = None) -> Iterator[Recorder]:
    """Serve a recorder on the loopback interface."""
    owner = Recorder() if answer is None else Recorder(answer)
    http = _Http(("127.0.0.1", 0), type("Handler", (_Handler,), {"owner": owner}))
    owner.url = f"http://127.0.0.1:{http.server_port}"
    thread = threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield owner
    finally:
        owner.stopping.set()
        http.shutdown()
        http.server_close()
        thread.join()
