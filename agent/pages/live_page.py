"""A page that is served on the loopback address under a secret path, and follows what it shows.

A page of another site can send neither the path nor, with it, the header of an undo.
"""

import json
import secrets
import sys
import threading
from abc import ABC, abstractmethod
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Generic, TypeVar

from ..errors import CtxagentError, UsageError
from .templates import page_headers

CONNECT = "'self'"  # connect-src of the content security policy
TIMEOUT_S = 10.0  # timeout of an idle connection
ADDRESS = "127.0.0.1"
UNDO_HEADER = "x-ctxagent"  # other sites cannot send it without a CORS preflight
MAX_UNDO_BYTES = 1_000
_View = TypeVar("_View")


class LivePage(ABC, Generic[_View]):
    """A page and its server."""

    styles: ClassVar[tuple[str, ...]]
    scripts: ClassVar[tuple[str, ...]]

    def __init__(self, port: int = 0) -> None:
        """Listen on a port; 0 selects a free port. Raises UsageError if the port is in use."""
        self._lock = threading.Lock()
        self._compared: Any = None
        self._version = 0  # number of changes so far
        token = secrets.token_urlsafe(24)
        self.path = f"/{token}/"

        class Handler(_Handler):
            page = self

        try:
            self._server = _Server((ADDRESS, port), Handler)
        except OSError as error:
            hint = "Give another port, or leave it out to use a free one."
            raise UsageError(f"port {port}: {error.strerror}", hint=hint) from error

    @property
    def port(self) -> int:
        return self._server.server_port

    @property
    def url(self) -> str:
        """The URL of the page. Anyone with the URL can read the page."""
        return f"http://{ADDRESS}:{self.port}{self.path}"

    def serve(self) -> None:
        """Answer requests until `stop` is called."""
        self._server.serve_forever()

    def stop(self) -> None:
        """Stop answering requests."""
        self._server.shutdown()
        self._server.server_close()

    def refresh(self) -> tuple[_View, str]:
        """Return what the page shows, and an ETag that changes with it. Raises CtxagentError."""
        with self._lock:
            view = self.read()
            compared = self.compared(view)
            if not self._version or compared != self._compared:
                self._version += 1
            self._compared = compared
            return view, f'"{self._version}"'

    @abstractmethod
    def read(self) -> _View:
        """Return what the page shows now. Raises CtxagentError."""

    def compared(self, view: _View) -> Any:
        """Return what makes a new version of the page if it changes."""
        return view

    @abstractmethod
    def html(self, view: _View) -> str:
        """Return the HTML document."""


class EditsPage(LivePage[_View]):
    """A page with edits that can be undone."""

    def undo(self, seq: int) -> None:
        """Undo the edit at `seq`. Raises CtxagentError."""
        with self._lock:
            self.undo_edit(seq)

    @abstractmethod
    def undo_edit(self, seq: int) -> None:
        """Undo the edit at `seq`, while nothing else reads the page. Raises CtxagentError."""


class _Server(ThreadingHTTPServer):
    """Server that prints nothing if a browser closes a connection early."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """Handler that answers only requests with the secret path and a loopback host name."""

    page: LivePage[Any]
    timeout = TIMEOUT_S
    server_version, sys_version = "ctxagent", ""

    def do_GET(self) -> None:
        if self._is_allowed():
            self._send_page()

    do_HEAD = do_GET

    def do_POST(self) -> None:
        if not isinstance(self.page, EditsPage):
            self._respond(HTTPStatus.NOT_IMPLEMENTED)
        elif self._is_allowed():
            self._undo(self.page)

    def _is_allowed(self) -> bool:
        """Return True for the page's own requests; answer any other request."""
        hosts = (f"{ADDRESS}:{self.page.port}", f"localhost:{self.page.port}")
        if self.headers.get("host", "").lower() not in hosts:
            self._respond(HTTPStatus.FORBIDDEN)
        elif not secrets.compare_digest(self.path.encode(), self.page.path.encode()):
            self._respond(HTTPStatus.NOT_FOUND)
        elif self.command == "POST" and self.headers.get(UNDO_HEADER) != "undo":
            self._respond(HTTPStatus.FORBIDDEN)
        else:
            return True
        return False

    def _send_page(self) -> None:
        try:
            view, tag = self.page.refresh()
        except CtxagentError:
            self._respond(HTTPStatus.SERVICE_UNAVAILABLE)
            return
        page = self.page
        headers = {**page_headers(page.styles, page.scripts, CONNECT), "etag": tag}
        if self.headers.get("if-none-match") == tag:
            self._respond(HTTPStatus.NOT_MODIFIED, headers=headers)
        elif self.command == "HEAD":
            self._respond(HTTPStatus.OK, headers=headers)
        else:
            headers["content-type"] = "text/html; charset=utf-8"
            self._respond(HTTPStatus.OK, page.html(view).encode("utf-8", "replace"), headers)

    def _undo(self, page: EditsPage[Any]) -> None:
        try:
            length = min(int(self.headers.get("content-length", "0")), MAX_UNDO_BYTES)
            seq = json.loads(self.rfile.read(max(0, length)))["seq"]
        except (ValueError, TypeError, LookupError, RecursionError):
            seq = None
        if not isinstance(seq, int):
            self._respond(HTTPStatus.BAD_REQUEST)
            return
        status, answer = HTTPStatus.OK, dict[str, Any]()
        try:
            page.undo(seq)
        except CtxagentError as error:
            message = " ".join(filter(None, (f"{error.message}.", error.hint)))
            status, answer = HTTPStatus.CONFLICT, {"error": {"message": message}}
        self._respond(status, json.dumps(answer).encode(), {"content-type": "application/json"})

    def _respond(
        self, status: HTTPStatus, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for name, value in {**(headers or {}), "content-length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Do nothing: the log would reveal the secret path."""
