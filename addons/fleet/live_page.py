"""The page of a fleet: its live view for a browser.

The page is served on the loopback address under a secret path. This module renders HTML, so
importing it loads jinja2.
"""

import secrets
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from ...api.base import CtxagentError, UsageError
from ...api.pages import page_headers, render
from ...api.text import count_of
from .live import LiveFleet, LiveView
from .outages import KEY, OUTAGE_TEXTS
from .report import bars
from .summary import cost_text

STYLES, SCRIPTS = (
    ("addons/fleet/page.css", "addons/fleet/live.css"),
    ("agent/pages/follow.js", "addons/fleet/live.js"),
)
CONNECT = "'self'"  # connect-src of the content security policy
MAX_LISTED = 200  # agents at work
TIMEOUT_S = 10.0  # timeout of an idle connection
ADDRESS = "127.0.0.1"


def page(view: LiveView, name: str) -> str:
    """Return the HTML document for the fleet; `name` is the name of its manifest."""
    headline = f"{view.finished:,} of {count_of(view.tasks, 'task')}"
    html = render(
        "addons/fleet/live.html.j2",
        title=f"{headline} · {name}",
        styles=STYLES,
        scripts=SCRIPTS,
        connect=CONNECT,
        headline=headline,
        name=name,
        view=view,
        facts=list(_facts(view)),
        bars=list(bars(view.counts)),
        causes={**OUTAGE_TEXTS, KEY: "the key is refused"},
        max_listed=MAX_LISTED,
        dollars=_dollars,
        elapsed=lambda since: duration_text(max(0.0, time.time() - since)),
        count_of=count_of,
    )
    return str(html)


def duration_text(seconds: float) -> str:
    """Return a duration as text, such as "40 s", "3 min" or "2 h"."""
    if seconds < 90:
        return f"{round(seconds)} s"
    return f"{round(seconds / 60)} min" if seconds < 5_400 else f"{round(seconds / 3_600)} h"


def _dollars(amount: float | None) -> str:
    return "" if amount is None else f"${amount:,.4f}"


def _facts(view: LiveView) -> Iterator[tuple[str, str]]:
    """Yield (name, text) of each sum."""
    yield "spent", cost_text(view.dollars, is_priced=view.is_priced)
    if view.dollars_per_hour:
        yield "pace", f"${view.dollars_per_hour:,.2f} an hour"
    if view.outages:
        yield "left", "waiting"
    elif view.seconds_left is not None:
        end = time.strftime("%H:%M", time.localtime(time.time() + view.seconds_left))
        yield "left", f"about {duration_text(view.seconds_left)}, until {end}"
    yield "calls of the model", f"{view.calls:,}"
    yield "tokens", f"{view.tokens:,}"


class LivePage:
    """Server of a fleet's page."""

    def __init__(self, fleet: LiveFleet, name: str, port: int = 0) -> None:
        """Listen on a port; 0 selects a free port. Raises UsageError if the port is in use."""
        self._fleet, self._name, self._lock = fleet, name, threading.Lock()
        self._view: LiveView | None = None
        self._version = 0  # number of changes so far
        token = secrets.token_urlsafe(24)
        self.path = f"/{token}/"

        class Handler(_Handler):
            page = self

        try:
            self._server = ThreadingHTTPServer((ADDRESS, port), Handler)
        except OSError as error:
            hint = "Give another port, or leave it out to use a free one."
            raise UsageError(f"port {port}: {error.strerror}", hint=hint) from error
        self._server.daemon_threads = True

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

    def refresh(self) -> tuple[LiveView, str]:
        """Return the state of the fleet and an ETag that changes with it. Raises RecordError."""
        with self._lock:
            view = self._fleet.refresh()
            if self._view is None or _without_estimates(view) != _without_estimates(self._view):
                self._version += 1
            self._view = view
            return view, f'"{self._version}"'

    def html(self, view: LiveView) -> bytes:
        return page(view, self._name).encode("utf-8", "replace")


def _without_estimates(view: LiveView) -> LiveView:
    """Return a view without the estimates that change even if nothing happens."""
    return replace(view, dollars_per_hour=None, seconds_left=None)


class _Handler(BaseHTTPRequestHandler):
    """Handler that answers only requests with the secret path and a loopback host name. A page of
    another site can send neither.
    """

    page: LivePage
    timeout = TIMEOUT_S
    server_version, sys_version = "ctxagent", ""

    def do_GET(self) -> None:
        hosts = (f"{ADDRESS}:{self.page.port}", f"localhost:{self.page.port}")
        if self.headers.get("host", "").lower() not in hosts:
            self._respond(HTTPStatus.FORBIDDEN)
        elif not secrets.compare_digest(self.path.encode(), self.page.path.encode()):
            self._respond(HTTPStatus.NOT_FOUND)
        else:
            self._send_page()

    do_HEAD = do_GET

    def _send_page(self) -> None:
        try:
            view, tag = self.page.refresh()
        except CtxagentError:
            self._respond(HTTPStatus.SERVICE_UNAVAILABLE)
            return
        headers = {**page_headers(STYLES, SCRIPTS, CONNECT), "etag": tag}
        if self.headers.get("if-none-match") == tag:
            self._respond(HTTPStatus.NOT_MODIFIED, headers=headers)
        elif self.command == "HEAD":
            self._respond(HTTPStatus.OK, headers=headers)
        else:
            headers["content-type"] = "text/html; charset=utf-8"
            self._respond(HTTPStatus.OK, self.page.html(view), headers)

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
