"""The proxy as an ASGI application."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import field, replace
from typing import Any

import httpx2
from anyio import CancelScope
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from ...api.base import ModelError, PromptTooLong, dataclass, regex
from ...api.models import LOOPBACK_HOSTS, MAX_REPLY_BYTES
from .bodies import format_at
from .bodies.base import BodyFormat
from .exchange import Exchange, Exchanges, refusal_of
from .forward import (
    Headers,
    answer_headers,
    chunks_of,
    decoded,
    read_ahead,
    request_headers,
    upstream_of,
    url_at,
)

MAX_BODY_BYTES = 64 << 20  # of a request; a larger one is forwarded unread
MAX_REFUSAL_BYTES = 1 << 20  # of a refusal; a larger one is forwarded unread
MAX_FAULTS = 50
OUR_PATH = "/.ctxagent/"
EDIT_REFUSAL_STATUSES = (400, 413, 422)  # statuses of refusals that an edit can cause
_PORT = regex(r":\d+$")
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


@dataclass
class Proxy:
    """A running proxy."""

    exchanges: Exchanges
    upstreams: dict[str, str]  # base URL by name
    report: Callable[[str], None]  # reports a failure to the user
    faults: deque[tuple[float, str]] = field(default_factory=lambda: deque(maxlen=MAX_FAULTS))

    def app(self, own: list[Route]) -> Starlette:
        """Return the application. `own` are the routes of the status page."""
        everything = Route("/{path:path}", self.handle, methods=METHODS)
        return Starlette(routes=[*own, everything], lifespan=self._lifespan)

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        yield
        await self.exchanges.conversations.close()
        await self.exchanges.upstream.close()

    async def handle(self, request: Request) -> Response:
        """Forward a request and return the answer."""
        if (refusal := refusal_for(request)) is not None:
            return refusal
        if request.headers.get("upgrade", "").lower() == "websocket":
            return Response(status_code=426)  # clients then fall back to HTTP at once
        format = format_at(request.url.path) if request.method == "POST" else None
        url = self.url_of(request, format)
        length = request.headers.get("content-length")
        has_body = length is not None or "transfer-encoding" in request.headers
        content = request.stream() if has_body else b""
        try:
            if format is not None and int(length or 0) <= MAX_BODY_BYTES:
                data, rest = await read_ahead(request.stream(), MAX_BODY_BYTES)
                if rest is None:
                    headers = request_headers(request.headers.items(), is_read=True)
                    return await self._exchange(format, data, url, headers, request)
                content = rest
            headers = request_headers(request.headers.items(), is_read=False)
            answer = await self.exchanges.upstream.send(request.method, url, headers, content)
            return _streamed(answer, chunks_of(answer))
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            place = url.partition("?")[0]  # a query may contain a key
            self.fail(f"cannot reach {place}: {error!r}")
            return _unreachable(place, error)
        except ClientDisconnect:
            return Response(status_code=499)

    def url_of(self, request: Request, format: BodyFormat | None) -> str:
        """Return the upstream URL of a request."""
        path = request.scope["raw_path"].decode("latin-1")  # percent-encoded
        name = format.upstream if format is not None else upstream_of(request.headers, path)
        return url_at(self.upstreams[name], path, request.url.query)

    def fail(self, text: str) -> None:
        """Add a failure to the status page, and report it to the user."""
        self.faults.append((time.time(), text))
        self.report(text)

    @contextmanager
    def failures_reported(self, what: str) -> Iterator[None]:
        """Report an error of the proxy instead of raising it, so that the client still gets its
        answer.
        """
        try:
            yield
        except Exception as error:
            self.fail(f"{what}: {error!r}")

    async def _exchange(
        self, format: BodyFormat, data: bytes, url: str, headers: Headers, request: Request
    ) -> Response:
        exchanges, exchange = self.exchanges, Exchange(format, {}, data, data)
        with self.failures_reported("forwarded a request unchanged"):
            if request.url.path.endswith(format.count_paths):
                exchange = exchanges.preview(format, data)
            else:
                agent = request.headers.get("user-agent", "")
                exchange = await exchanges.prepare(format, data, url, headers, agent)
        refused = ""  # reason why the server refused the edited request
        while True:
            sending = exchanges.upstream.send("POST", url, headers, exchange.data)
            answer = await _send_unless_disconnected(request, sending)
            is_ours = exchange.session is not None or exchange.is_edited or refused
            if not is_ours or answer.status_code not in EDIT_REFUSAL_STATUSES:
                break
            refusal, rest = await read_ahead(chunks_of(answer), MAX_REFUSAL_BYTES)
            if rest is not None:
                return _streamed(answer, rest)
            error = await self._error_of(answer, refusal)
            again = None if refused else await self._after_refusal(exchange, error)
            if again is None:
                if error.message != refused:
                    self._stop_editing(exchange, refused)
                return _whole(answer, refusal)
            if exchange.is_edited and not again.is_edited:
                refused = error.message
            exchange = again
        self._stop_editing(exchange, refused)
        return _streamed(answer, self._forward_and_record(answer, exchange))

    async def _error_of(self, answer: httpx2.Response, data: bytes) -> ModelError:
        """Return the error in a refusal."""
        with self.failures_reported("cannot read a refusal"):
            data = await decoded(data, answer.headers)
        return refusal_of(answer.status_code, data, "", answer.headers)

    async def _after_refusal(self, exchange: Exchange, error: ModelError) -> Exchange | None:
        """Return the request to send after a refusal: a smaller one if it was too long, or the
        client's original if it was edited. Return None to pass the refusal to the client.
        """
        if isinstance(error, PromptTooLong):
            with self.failures_reported("forwarded a refusal unchanged"):
                return await self.exchanges.shorten(exchange, error)
        elif exchange.is_edited:
            self.fail(f"resending an edited request unchanged: {error.message}")
            return replace(exchange, data=exchange.original, is_edited=False, saved=0)
        return None

    def _stop_editing(self, exchange: Exchange, refused: str) -> None:
        """Stop editing a session whose edits the server refuses."""
        if refused and exchange.session is not None:
            with self.failures_reported("cannot stop editing a session"):
                exchange.session.stop_editing(refused)

    async def _forward_and_record(
        self, answer: httpx2.Response, exchange: Exchange
    ) -> AsyncGenerator[bytes, None]:
        """Yield the body of an answer, then record the reply, even if the client disconnects."""
        is_read = exchange.session is not None and answer.status_code == 200
        read: list[bytes] = []
        size, ended = 0, False
        try:
            async for chunk in chunks_of(answer):
                size += len(chunk)
                if is_read and size <= MAX_REPLY_BYTES:
                    read.append(chunk)
                yield chunk
            ended = True
        finally:
            if is_read and size <= MAX_REPLY_BYTES:
                with CancelScope(shield=True):  # some clients disconnect at the last event
                    await self._record(exchange, b"".join(read), answer, is_whole=ended)

    async def _record(
        self, exchange: Exchange, data: bytes, answer: httpx2.Response, *, is_whole: bool
    ) -> None:
        """Record a reply. Ignore an incomplete reply if the answer was cut off."""
        with self.failures_reported("cannot record a reply"):
            try:
                await self.exchanges.finish(exchange, data, answer.headers)
            except ValueError:
                if is_whole:
                    raise


def refusal_for(request: Request) -> Response | None:
    """Return a refusal for a request that may come from a web page, else None. A page in a browser
    can send requests to this address, also by a host name that resolves to it (DNS rebinding).
    """
    host = request.headers.get("host", "")  # request.url differs for an invalid header
    if _PORT.sub("", host.lower()).strip("[]") not in LOOPBACK_HOSTS:
        return _refusal(f"the host {host!r} is not this machine")
    origin = request.headers.get("origin")
    if origin is not None and origin != f"http://{host}":
        return _refusal(f"requests from {origin} are not accepted")
    return None


def _refusal(why: str) -> Response:
    return JSONResponse({"error": {"type": "forbidden", "message": f"ctxagent proxy: {why}"}}, 403)


def _unreachable(url: str, error: Exception) -> Response:
    text = f"ctxagent proxy: cannot reach {url}: {error!r}"
    told = {"type": "api_error", "message": text}
    return JSONResponse({"type": "error", "error": told}, 502)


async def _send_unless_disconnected(
    request: Request, sending: Coroutine[Any, Any, httpx2.Response]
) -> httpx2.Response:
    """Return the upstream answer. If the client disconnects first, cancel the upstream request and
    raise ClientDisconnect.
    """

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    tasks = asyncio.ensure_future(sending), asyncio.ensure_future(gone())
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not tasks[0].done():
            raise ClientDisconnect
        return tasks[0].result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def _streamed(answer: httpx2.Response, chunks: AsyncGenerator[bytes, None]) -> Response:
    response = StreamingResponse(chunks, answer.status_code)
    response.raw_headers = answer_headers(answer)
    return response


def _whole(answer: httpx2.Response, data: bytes) -> Response:
    response = Response(data, answer.status_code)
    response.raw_headers = answer_headers(answer)
    return response
