"""Forward requests to the upstream and answers to the client, byte for byte."""

import asyncio
import zlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ..models.providers import MESSAGES

if TYPE_CHECKING:
    import httpx2

Headers = Sequence[tuple[str, str]]

OPENAI = "openai"
UPSTREAMS = {  # (variable, default) for the Messages API and OpenAI's protocols
    MESSAGES: ("ANTHROPIC_BASE_URL", "https://api.anthropic.com"),
    OPENAI: ("OPENAI_BASE_URL", "https://api.openai.com/v1"),
}
CONNECT_S = 30.0
READABLE = ("gzip", "deflate", "identity")  # encodings that the proxy can decode
_VERSION = "/v1"
# Headers that apply to one connection only (RFC 9110, 7.6.1).
_HOP_BY_HOP = {
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection",
    "te", "trailer", "transfer-encoding", "upgrade", "host", "content-length", "expect",
}  # fmt: skip


def url_at(base: str, path: str, query: str) -> str:
    """Return the URL of a path at a base URL. If both contain the API version, use it once."""
    base = base.rstrip("/")
    if base.endswith(_VERSION) and (path == _VERSION or path.startswith(f"{_VERSION}/")):
        path = path.removeprefix(_VERSION)
    return f"{base}{path}?{query}" if query else f"{base}{path}"


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
            self._client = httpx2.AsyncClient(timeout=timeout, limits=limits)
        # `self._client.build_request` would add headers, and cookies of other requests.
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        extensions = {"timeout": self._client.timeout.as_dict()}
        request = httpx2.Request(method, url, headers=raw, content=content, extensions=extensions)
        return await self._client.send(request, stream=True)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()


def decoded(data: bytes, headers: Mapping[str, str]) -> bytes:
    """Decompress the body of an answer. Raises ValueError for an unsupported or invalid
    encoding.
    """
    encoding = headers.get("content-encoding", "identity").lower()
    if encoding == "identity":
        return data
    if encoding not in READABLE:
        raise ValueError(f"an answer in the encoding {encoding!r}")
    try:
        return zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(data)
    except zlib.error as error:
        raise ValueError(f"an answer that is not valid {encoding}: {error}") from error


async def read_all(response: "httpx2.Response") -> bytes:
    """Return the complete raw body of an answer, and close the answer."""
    try:
        return b"".join([chunk async for chunk in response.aiter_raw()])
    finally:
        await asyncio.shield(response.aclose())
