"""Forward requests to the upstream and answers to the client, byte for byte."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from ...api.base import regex
from ...api.models import DEFAULT_PROVIDER, LOOPBACK_HOSTS, MESSAGES, unpacked
from ...api.programs import CertificatesUnreadable, in_thread, tls_options

if TYPE_CHECKING:
    import httpx2

Headers = Sequence[tuple[str, str]]


class DefaultUpstream(NamedTuple):
    """Where requests go if the user names no address."""

    variable: str  # environment variable with the base URL
    url: str
    path: str  # path of the proxy that clients need in their base URL
    provider: str  # provider of the models at an unknown address


OPENAI, GEMINI = "openai", "gemini"
UPSTREAMS = {
    MESSAGES: DefaultUpstream(
        "ANTHROPIC_BASE_URL", "https://api.anthropic.com", path="", provider=DEFAULT_PROVIDER
    ),
    OPENAI: DefaultUpstream(
        "OPENAI_BASE_URL", "https://api.openai.com/v1", path="/v1", provider=OPENAI
    ),
    GEMINI: DefaultUpstream(
        "GOOGLE_GEMINI_BASE_URL", "https://generativelanguage.googleapis.com", path="",
        provider=GEMINI,
    ),
}  # fmt: skip
HOST = "127.0.0.1"  # of the proxy
CONNECT_S = 30.0
READABLE = ("gzip", "deflate", "identity")  # encodings that the proxy can decode
_VERSION = regex(r"/v1(?:alpha|beta)?\d*$")
# Headers that apply to one connection only (RFC 9110, 7.6.1).
_HOP_BY_HOP = {
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection",
    "te", "trailer", "transfer-encoding", "upgrade", "host", "content-length", "expect",
}  # fmt: skip


def url_at(base: str, path: str, query: str) -> str:
    """Return the URL of a path at a base URL. If both contain the API version, use it once."""
    base = base.rstrip("/")
    found = _VERSION.search(base)
    if found and f"{path}/".startswith(f"{found[0]}/"):
        path = path.removeprefix(found[0])
    return f"{base}{path}?{query}" if query else f"{base}{path}"


def is_at(url: str, address: str) -> bool:
    """Return True if a URL leads to the proxy at an address."""
    try:
        parts, own = urlsplit(url), urlsplit(address)
        return parts.hostname in LOOPBACK_HOSTS and parts.port == own.port
    except ValueError:  # not a URL
        return False


def upstream_of(headers: Mapping[str, str], path: str) -> str:
    """Return the name of the upstream for a request that is not edited, by the headers and paths
    that only one vendor has.
    """
    if "anthropic-version" in headers or "x-api-key" in headers:
        return MESSAGES
    is_google = path.startswith("/v1beta") or any(name.startswith("x-goog-") for name in headers)
    return GEMINI if is_google else OPENAI


def request_headers(given: Headers, *, is_read: bool) -> list[tuple[str, str]]:
    """Return the client's headers for the upstream. If the proxy reads the request and the answer
    (`is_read`), offer only encodings that the proxy can decode, and drop the content length because
    the body may change.
    """
    left_out = _HOP_BY_HOP if is_read else _HOP_BY_HOP - {"content-length"}
    kept = [(name, value) for name, value in given if name.lower() not in left_out]
    if not is_read:
        return kept
    return [
        (name, _readable(value) if name.lower() == "accept-encoding" else value)
        for name, value in kept
    ]


def _readable(value: str) -> str:
    offered = [part.strip() for part in value.split(",")]
    return ", ".join(p for p in offered if p.partition(";")[0] in READABLE) or "identity"


def answer_headers(response: "httpx2.Response") -> list[tuple[bytes, bytes]]:
    """Return the headers of an answer for the client."""
    kept = _HOP_BY_HOP - {"content-length"}
    return [(n.lower(), v) for n, v in response.headers.raw if n.decode().lower() not in kept]


class Upstream:
    """The connections to all upstreams."""

    def __init__(self) -> None:
        self._client: httpx2.AsyncClient | None = None

    async def send(
        self, method: str, url: str, headers: Headers, content: "bytes | AsyncIterator[bytes]"
    ) -> "httpx2.Response":
        """Send a request and return the answer with an unread body. Raises `httpx2.HTTPError` and
        `httpx2.InvalidURL`.
        """
        import httpx2

        if self._client is None:
            # No read timeout: clients and answers can be silent for hours.
            limits = httpx2.Limits(max_connections=None, max_keepalive_connections=64)
            timeout = httpx2.Timeout(None, connect=CONNECT_S)
            try:
                self._client = httpx2.AsyncClient(timeout=timeout, limits=limits, **tls_options())
            except CertificatesUnreadable as error:
                raise httpx2.ConnectError(str(error)) from error
        # `self._client.build_request` would add headers, and cookies of other requests.
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        extensions = {"timeout": self._client.timeout.as_dict()}
        request = httpx2.Request(method, url, headers=raw, content=content, extensions=extensions)
        return await self._client.send(request, stream=True)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()


async def decoded(data: bytes, headers: Mapping[str, str]) -> bytes:
    """Decompress the body of an answer in a thread. Raises ValueError for an unsupported or invalid
    encoding, and for a body that is too large to be read.
    """
    return await in_thread(unpacked, data, headers.get("content-encoding", ""))


async def chunks_of(answer: "httpx2.Response") -> AsyncGenerator[bytes, None]:
    """Yield the raw body of an answer, and close the answer."""
    try:
        async for chunk in answer.aiter_raw():
            yield chunk
    finally:
        await asyncio.shield(answer.aclose())


async def read_ahead(
    source: AsyncGenerator[bytes, None], limit: int
) -> tuple[bytes, AsyncGenerator[bytes, None] | None]:
    """Return a body and None, or of a body with more than `limit` bytes its beginning and all of
    its chunks.
    """
    read, size = list[bytes](), 0
    async for chunk in source:
        read.append(chunk)
        size += len(chunk)
        if size > limit:
            return b"".join(read), _continued(read, source)
    return b"".join(read), None


async def _continued(
    read: Sequence[bytes], source: AsyncGenerator[bytes, None]
) -> AsyncGenerator[bytes, None]:
    async with aclosing(source):
        for chunk in read:
            yield chunk
        async for chunk in source:
            yield chunk
