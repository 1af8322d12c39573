"""The proxy as an ASGI application."""

import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace

import httpx2
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from ..errors import PromptTooLong
from ..models.address import LOOPBACK_HOSTS
from ..models.providers import MESSAGES
from ..models.sse import MAX_REPLY_BYTES
from .bodies import BODY_FORMATS
from .bodies.base import BodyFormat
from .exchange import Exchange, Exchanges, refusal_of
from .forward import OPENAI, Headers, answer_headers, decoded, read_all, request_headers, url_at

MAX_BODY_BYTES = 64 << 20  # of a request; a larger one goes through unread
MAX_FAULTS = 50
OUR_PATH = "/.ctxagent/"
COUNT_TOKENS = "/count_tokens"
MAY_BE_OURS = (400, 413, 422)  # statuses of refusals that an edit may be the cause of
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


@dataclass
class Proxy:
    """A running proxy."""

    exchanges: Exchanges
    upstreams: dict[str, str]  # base URLs, by MESSAGES and OPENAI
    report: Callable[[str], None]  # tells the user of a failure
    faults: deque[tuple[float, str]] = field(default_factory=lambda: deque(maxlen=MAX_FAULTS))

    def app(self, own: list[Route]) -> Starlette:
        """Return the application; `own` are routes of the page."""
        everything = Route("/{path:path}", self.handle, methods=METHODS)
        return Starlette(routes=[*own, everything], lifespan=self._lifespan)

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        yield
        await self.exchanges.conversations.close()
        await self.exchanges.upstream.close()

    async def handle(self, request: Request) -> Response:
        """Pass a request on, and its answer back."""
        if (refusal := refused(request)) is not None:
            return refusal
        if request.headers.get("upgrade", "").lower() == "websocket":
            return Response(status_code=426)  # clients then use HTTP at once
        format = format_of(request) if request.method == "POST" else None
        url = self.url_of(request, format)
        headers = request_headers(request.headers.items(), reads_along=format is not None)
        large = int(request.headers.get("content-length") or 0) > MAX_BODY_BYTES
        try:
            if format is None or large:
                answer = await self.exchanges.upstream.send(
                    request.method, url, headers, request.stream()
                )
                return _streamed(answer, _chunks(answer))
            return await self._exchange(format, await request.body(), url, headers, request)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            self.fail(f"{url} was not reached: {error!r}")
            return _unreached(url, error)
        except ClientDisconnect:
            return Response(status_code=499)

    def url_of(self, request: Request, format: BodyFormat | None) -> str:
        """Return where a request goes."""
        is_messages = "anthropic-version" in request.headers or "x-api-key" in request.headers
        if format is not None:
            is_messages = format.name == MESSAGES
        base = self.upstreams[MESSAGES if is_messages else OPENAI]
        return url_at(base, request.url.path, request.url.query)

    def fail(self, text: str) -> None:
        """Keep a failure for the page, and tell the user."""
        self.faults.append((time.time(), text))
        self.report(text)

    @contextmanager
    def going_on(self, what: str) -> Iterator[None]:
        """Keep a fault of our own from the client: it gets what it would have without us."""
        try:
            yield
        except Exception as error:
            self.fail(f"{what}: {error!r}")

    async def _exchange(
        self, format: BodyFormat, data: bytes, url: str, headers: Headers, request: Request
    ) -> Response:
        exchanges, exchange = self.exchanges, None
        sent = data
        with self.going_on("a request goes through as it came"):
            if request.url.path.endswith(COUNT_TOKENS):
                sent = exchanges.preview(format, data)
            else:
                agent = request.headers.get("user-agent", "")
                exchange = await exchanges.prepare(format, data, url, headers, agent)
                sent = exchange.data
        answer = await exchanges.upstream.send("POST", url, headers, sent)
        is_ours = exchange is not None and (exchange.session or exchange.is_edited)
        if exchange and is_ours and answer.status_code in MAY_BE_OURS:
            refusal = await read_all(answer)
            again = await self._after_refusal(exchange, answer, refusal)
            if again is None:
                return _whole(answer, refusal)
            exchange = again
            answer = await exchanges.upstream.send("POST", url, headers, exchange.data)
        return _streamed(answer, self._read_along(answer, exchange))

    async def _after_refusal(
        self, exchange: Exchange, answer: httpx2.Response, data: bytes
    ) -> Exchange | None:
        """Return what is sent after a refusal: a smaller request if it was too long, and the
        client's own if it was edited; None where the client gets the refusal."""
        session = exchange.session
        with self.going_on("a refusal goes through as it came"):
            error = refusal_of(
                answer.status_code, decoded(data, answer.headers), "", answer.headers
            )
            if isinstance(error, PromptTooLong):
                return await self.exchanges.shorten(exchange, error)
            if not exchange.is_edited:
                return None
            self.fail(f"the server refused an edited request: {error.message}")
            if session is not None:
                session.leave_alone(error.message)
            return replace(exchange, data=exchange.original, is_edited=False, saved=0)
        return None

    async def _read_along(
        self, answer: httpx2.Response, exchange: Exchange | None
    ) -> AsyncGenerator[bytes, None]:
        """Yield the body of an answer, and record the reply in it."""
        is_read = exchange is not None and exchange.session and answer.status_code == 200
        read: list[bytes] = []
        size = 0
        async for chunk in _chunks(answer):
            size += len(chunk)
            if is_read and size <= MAX_REPLY_BYTES:
                read.append(chunk)
            yield chunk
        if exchange is not None and is_read and size <= MAX_REPLY_BYTES:
            with self.going_on("a reply is not recorded"):
                await self.exchanges.finish(exchange, b"".join(read), answer.headers)


def format_of(request: Request) -> BodyFormat | None:
    """Return the format of the body of a request; None for one that is not read."""
    path = request.url.path.removesuffix(COUNT_TOKENS)
    return next((BODY_FORMATS[end] for end in BODY_FORMATS if path.endswith(end)), None)


def refused(request: Request) -> Response | None:
    """Return an answer for a request that did not come from a program of this machine: a page in a
    browser may send requests here, also under a name of its own for this address."""
    host = request.url.hostname or ""
    if host not in LOOPBACK_HOSTS:
        return _refusal(f"the host {host!r} is not this machine")
    origin = request.headers.get("origin")
    if origin is not None and origin != f"{request.url.scheme}://{request.url.netloc}":
        return _refusal(f"requests from {origin} are not accepted")
    return None


def _refusal(why: str) -> Response:
    return JSONResponse({"error": {"type": "forbidden", "message": f"ctxagent proxy: {why}"}}, 403)


def _unreached(url: str, error: Exception) -> Response:
    text = f"ctxagent proxy: cannot reach {url.partition('?')[0]}: {error!r}"
    told = {"type": "api_error", "message": text}
    return JSONResponse({"type": "error", "error": told}, 502)


async def _chunks(answer: httpx2.Response) -> AsyncGenerator[bytes, None]:
    try:
        async for chunk in answer.aiter_raw():
            yield chunk
    finally:
        await answer.aclose()


def _streamed(answer: httpx2.Response, chunks: AsyncGenerator[bytes, None]) -> Response:
    response = StreamingResponse(chunks, answer.status_code)
    response.raw_headers = answer_headers(answer)
    return response


def _whole(answer: httpx2.Response, data: bytes) -> Response:
    response = Response(data, answer.status_code)
    response.raw_headers = answer_headers(answer)
    return response
