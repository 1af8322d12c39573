"""Send bytes to a server and receive its answers: whole, or as a stream of server-sent events.

The events are parsed within limits of size and of time between chunks. The transport uses `httpx2`
(a dependency of the `anthropic` SDK). Credentials that only an SDK supports have their own
transport with the same methods.
"""

import asyncio
import json
import math
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from ..border.values import MAX_JSON_DEPTH, is_too_deep
from ..errors import RequestRejected, conceal
from ..lazy import dataclass, regex
from .http_client import Timeouts, open_client, start_import, timeout_of
from .keys import key_headers
from .local_servers import address_of_local
from .providers import LOCAL, check_address

if TYPE_CHECKING:
    import httpx2

    from .providers import Endpoint

_END = b"[DONE]"  # end of a stream in some protocols
MAX_REPLY_BYTES = 64 * 1024 * 1024  # of a streamed reply; 5 times the longest real one


def deadline_after(seconds: float) -> float:
    """Return the loop time in some seconds."""
    return asyncio.get_running_loop().time() + seconds


class OnlyPings(TimeoutError):
    """The server has sent only signs of life for too long."""


async def limit_silence(
    chunks: AsyncIterator[bytes],
    *,
    deadline: float,
    between: float,
    progress_by: Callable[[], float] = lambda: math.inf,
) -> AsyncGenerator[bytes, None]:
    """Yield the chunks unchanged. Raises TimeoutError if the first chunk is not there by `deadline`
    (loop time), or a later one within `between` seconds after the previous one. Raises OnlyPings if
    a chunk comes after `progress_by()`.
    """
    while True:
        try:
            async with asyncio.timeout_at(deadline):
                chunk = await anext(chunks)
        except StopAsyncIteration:
            return
        if deadline_after(0) > progress_by():
            raise OnlyPings
        yield chunk
        deadline = deadline_after(between)


async def parse_events(chunks: AsyncIterator[bytes]) -> AsyncGenerator[dict[str, Any], None]:
    """Yield each event of a `text/event-stream` as its JSON object, up to `[DONE]`. Skip pings and
    comments. Wrap an error without an envelope in the API's form. Raises ValueError for data that
    is not a JSON object in UTF-8 or cannot be serialized again, and for a stream that is too large.
    """
    data: list[bytes] = []
    name = b""
    async with aclosing(_lines(chunks)) as lines:
        async for line in lines:
            if line.startswith(b"data:"):
                data.append(line[5:].removeprefix(b" "))
            elif line.startswith(b"event:"):
                name = line[6:].strip()
            elif not line and data:
                if data == [_END]:
                    return
                event = _event(b"\n".join(data))
                if not isinstance(event, dict):
                    raise ValueError(f"an event that is {event!r:.80}, not an object")
                yield {"type": "error", "error": event} if _is_bare(event, name) else event
                data, name = [], b""


def _is_bare(event: dict[str, Any], name: bytes) -> bool:
    """Return True if an event is an error without an envelope, as llama.cpp sends it."""
    return name == b"error" and event.get("type") != "error"


def _event(data: bytes) -> Any:
    try:
        event = json.loads(data.decode(), parse_constant=_refuse_constant)
        too_deep = is_too_deep(event, 2 * MAX_JSON_DEPTH)
    except RecursionError:
        too_deep = True
    if too_deep:
        raise ValueError("an event that is nested too deeply")
    return event


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    rest: list[bytes] = []  # pieces of an incomplete line
    size = 0
    async for chunk in chunks:
        size += len(chunk)
        if size > MAX_REPLY_BYTES:
            raise ValueError(f"a reply of more than {MAX_REPLY_BYTES >> 20} MB")
        head, *more = chunk.split(b"\n")
        rest.append(head)
        for tail in more:
            yield b"".join(rest).removesuffix(b"\r")
            rest = [tail]


def parse_arguments(raw: str) -> dict[str, Any] | None:
    """Return a tool's arguments, None if they are not one complete JSON object. Refuse NaN,
    Infinity (which Python accepts) and deep nesting, because they cannot be sent back.
    """
    try:
        value = json.loads(raw, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and not is_too_deep(value) else None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


# Parts of an HTML page to remove: scripts, styles, comments and tags.
_MARKUP = regex(r"<(script|style)\b.*?(?:</\1>|$)|<!--.*?(?:-->|$)|<[^<>]*>", re.S | re.I)


@dataclass(eq=False)
class ErrorAnswer(Exception):
    """The server answered with an error."""

    status: int
    kind: str  # server's name for the error, "" for none
    words: str
    headers: Mapping[str, str]
    request_id: str | None = None


class NotConnected(Exception):
    """The server could not be reached, or the connection broke. `__cause__` has the reason."""


class Transport(Protocol):
    """A connection to one server."""

    async def connect(self) -> None:
        """Import modules and check the key and the address. Raises NoCredentials and
        RequestRejected.
        """
        ...

    async def post(self, path: str, data: bytes, headers: Mapping[str, str]) -> "httpx2.Response":
        """Send a request and return the response with an unread body. Raises ErrorAnswer and
        NotConnected.
        """
        ...

    async def get(self, path: str) -> object:
        """Return the JSON answer to a GET request, None on failure."""
        ...

    async def get_local(self, path: str) -> object:
        """Return the JSON answer of a server on this machine, outside the API. None on failure."""
        ...

    async def post_local(self, path: str, body: dict[str, Any]) -> object:
        """Like `get_local`, for a POST request."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


class HttpTransport:
    """A transport to a server that needs only a key in a header. See `Transport`."""

    def __init__(
        self,
        endpoint: "Endpoint",
        environ: Mapping[str, str],
        timeouts: Timeouts | None = None,
    ) -> None:
        """Create the transport without connecting."""
        self._endpoint, self._environ = endpoint, environ
        self._timeouts = timeouts or Timeouts()
        self._address = endpoint.address
        self._client: httpx2.AsyncClient | None = None

    async def connect(self) -> None:
        if self._client is None:
            headers = self._headers()
            if self._endpoint.provider.name == LOCAL and not self._address:
                self._address = await _local_address(self._environ)
            check_address(self._address, self._endpoint.provider.address_variable)
            await asyncio.wrap_future(start_import())
        if self._client is None:  # a concurrent call may have connected
            import httpx2

            self._client = open_client(
                httpx2.AsyncClient,
                self._address,
                headers={"content-type": "application/json", **headers},
                timeout=timeout_of(self._timeouts),
            )

    def _headers(self) -> dict[str, str]:
        """Return the headers for each request, including the key. Raises NoCredentials."""
        return key_headers(self._endpoint, self._environ)

    async def post(self, path: str, data: bytes, headers: Mapping[str, str]) -> "httpx2.Response":
        import httpx2

        client = self._connected()
        url = f"{self._address}{path}"
        try:
            asked = client.build_request("POST", url, content=data, headers=dict(headers))
            response = await client.send(asked, stream=True)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise NotConnected from error
        if response.status_code < 300:
            return response
        try:
            text = (await response.aread()).decode(errors="replace")
        except httpx2.HTTPError as error:
            raise NotConnected from error
        finally:
            await response.aclose()
        kind, words = self._error_of(response, text)
        named = response.headers.get("x-request-id") or response.headers.get("request-id")
        raise ErrorAnswer(response.status_code, kind, words, response.headers, named)

    def _error_of(self, response: "httpx2.Response", text: str) -> tuple[str, str]:
        """Return the kind and the message of an error answer."""
        if "html" in response.headers.get("content-type", ""):
            text = _text_of_page(text)
        with suppress(ValueError, RecursionError):
            return parse_error(json.loads(text)) or ("", text)
        return "", text

    async def get(self, path: str) -> object:
        import httpx2

        with suppress(httpx2.HTTPError, ValueError):
            answer = await self._connected().get(f"{self._address}{path}")
            return answer.json() if answer.status_code < 300 else None
        return None

    async def get_local(self, path: str) -> object:
        return await self._ask_local("GET", path)

    async def post_local(self, path: str, body: dict[str, Any]) -> object:
        return await self._ask_local("POST", path, body)

    async def _ask_local(self, method: str, path: str, body: object = None) -> object:
        import httpx2

        with suppress(httpx2.HTTPError, ValueError):
            url = f"{self._address.removesuffix('/v1')}{path}"
            answer = await self._connected().request(method, url, json=body)
            return answer.json() if answer.status_code < 300 else None
        return None

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    def _connected(self) -> "httpx2.AsyncClient":
        if self._client is None:
            raise NotConnected
        return self._client


async def status_of(address: str, timeout_s: float) -> int:
    """Return the status of the answer to a GET request. Raises NotConnected, and RequestRejected if
    the proxy or the certificates in the environment cannot be used.
    """
    import httpx2

    try:
        async with (
            open_client(httpx2.AsyncClient, address, timeout=timeout_s) as client,
            client.stream("GET", address) as answer,
        ):
            return answer.status_code
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise NotConnected from error


async def _local_address(environ: Mapping[str, str]) -> str:
    """Return the address of a model server on this machine. Raises RequestRejected."""
    if found := await address_of_local(environ):
        return found
    raise RequestRejected(
        "No model server answers on this machine.",
        hint="Start Ollama, LM Studio, llama.cpp or vLLM, or set its address: "
        "-c model.base_url=http://127.0.0.1:PORT/v1",
    )


def _text_of_page(page: str) -> str:
    """Return the text of an HTML page, without tags, scripts and styles."""
    from html import unescape

    return unescape(_MARKUP.sub(" ", page))


def parse_error(answer: object) -> tuple[str, str] | None:
    """Return (kind, message) of an error answer, None if it is not an error. Supported forms:
    `error` as an object or a text, `message` or `detail` at the top level, and any of these in a
    list.
    """
    if isinstance(answer, list):
        answer = answer[0] if answer else None
    if not isinstance(answer, dict):
        return None
    error = answer.get("error")
    if isinstance(error, str):
        return "", error
    inner = error if isinstance(error, dict) else answer
    words = next((inner[n] for n in ("message", "detail", "msg") if inner.get(n)), None)
    if words is None and error is None and answer.get("type") != "error":
        return None
    kinds = (inner.get(name) for name in ("code", "type", "status"))
    kind = next((kind for kind in kinds if isinstance(kind, str) and kind), "")
    if isinstance(code := inner.get("code"), int):
        kind = kind if kind not in ("", "error") else str(code)
    return kind, words if isinstance(words, str) else json.dumps(words or inner)


def display_address(endpoint: "Endpoint") -> str:
    """Return an endpoint's address without secrets, for messages."""
    return conceal(endpoint.address or endpoint.provider.name)
