"""Download a page over HTTP from public addresses, with limits of size and time."""

import http.client
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from email.message import Message
from urllib.parse import SplitResult, urljoin, urlunsplit

from ...agent.errors import ToolError
from ...agent.lazy import dataclass
from ..system.tls import tls_context
from .addresses import PORTS, parse_url, public_addresses

MAX_BYTES = 10_000_000  # of a page, decompressed
MAX_SECONDS = 30.0  # in all, including redirects
MAX_REDIRECTS = 5  # on one host
CHUNK_BYTES = 1 << 16
HEADERS = {
    "User-Agent": "ctxagent (+https://pypi.org/project/ctxagent)",
    "Accept": "text/markdown, text/html, application/json, text/*;q=0.9, */*;q=0.5",
    "Accept-Encoding": "gzip",
    "Connection": "close",
}
REDIRECTS = (301, 302, 303, 307, 308)


@dataclass(frozen=True, slots=True)
class Download:
    """The response to a request."""

    url: str  # the final URL
    status: int = 0
    reason: str = ""
    media_type: str = ""  # from the server, in lower case
    charset: str = ""
    data: bytes = b""
    is_cut: bool = False  # the page has more than MAX_BYTES
    redirect: str = ""  # a redirect to another host, which was not followed


class Downloader:
    """One download in a thread. `stop` ends it from another thread."""

    def __init__(self, *, private: bool) -> None:
        """`private` allows addresses that are not public."""
        self._private = private
        self._socket: socket.socket | None = None
        self._is_stopped = False
        self._until = time.monotonic() + MAX_SECONDS

    def stop(self) -> None:
        """End the download."""
        self._is_stopped = True
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def get(self, url: str) -> Download:
        """Get a page. Blocks. Raises ToolError."""
        timer = threading.Timer(MAX_SECONDS, self.stop)  # a server may send one byte at a time
        timer.daemon = True
        timer.start()
        try:
            return self._follow(parse_url(url))
        except (OSError, http.client.HTTPException, zlib.error, ValueError) as error:
            raise ToolError(f"{url[:200]} cannot be fetched: {self._why(error)}") from None
        finally:
            timer.cancel()

    def _why(self, error: Exception) -> str:
        if self._is_stopped or isinstance(error, TimeoutError):
            return f"it did not come within {MAX_SECONDS:.0f} s"
        return " ".join(str(error).split())[:300] or type(error).__name__

    def _follow(self, parts: SplitResult) -> Download:
        host = parts.netloc
        for _ in range(MAX_REDIRECTS + 1):
            with self._asked(parts) as response:
                target = response.headers.get("location", "")
                if response.status not in REDIRECTS or not target:
                    return self._read(parts, response)
            to = parse_url(urljoin(urlunsplit(parts), target))
            if to.netloc != host or PORTS[to.scheme] < PORTS[parts.scheme]:
                return Download(urlunsplit(parts), redirect=urlunsplit(to))
            parts = to
        raise ToolError(f"{urlunsplit(parts)[:200]} redirects more than {MAX_REDIRECTS} times.")

    @contextmanager
    def _asked(self, parts: SplitResult) -> Iterator[http.client.HTTPResponse]:
        """Send the request to a checked address, and yield the response."""
        host = parts.hostname or ""
        port = parts.port or PORTS[parts.scheme]
        connection = http.client.HTTPConnection(host, port)
        connection.sock = self._connected(host, port)
        try:
            if parts.scheme == "https":
                context = tls_context() or ssl.create_default_context()
                connection.sock = context.wrap_socket(connection.sock, server_hostname=host)
            self._socket = connection.sock
            path = urlunsplit(("", "", parts.path, parts.query, ""))
            connection.putrequest("GET", path.encode("ascii", "ignore").decode(), skip_host=True,
                                  skip_accept_encoding=True)  # fmt: skip
            for name, value in {"Host": parts.netloc, **HEADERS}.items():
                connection.putheader(name, value)
            connection.endheaders()
            yield connection.getresponse()
        finally:
            connection.close()

    def _connected(self, host: str, port: int) -> socket.socket:
        error: OSError = OSError("it has no address")
        for address in public_addresses(host, port, private=self._private):
            left = self._until - time.monotonic()
            if left <= 0:
                raise TimeoutError
            try:
                self._socket = socket.create_connection((address, port), timeout=left)
            except OSError as refused:
                error = refused
            else:
                return self._socket
        raise error

    def _read(self, parts: SplitResult, response: http.client.HTTPResponse) -> Download:
        kind = Message()
        kind["content-type"] = response.headers.get("content-type", "application/octet-stream")
        packed = response.headers.get("content-encoding", "identity").strip().lower()
        if packed not in ("", "identity", "gzip", "x-gzip"):
            raise ValueError(f"it is packed as {packed[:40]!r}, which was not asked for")
        data, is_cut = self._body(response, unpacks="gzip" in packed)
        return Download(
            url=urlunsplit(parts),
            status=response.status,
            reason=response.reason,
            media_type=kind.get_content_type(),
            charset=str(kind.get_param("charset") or ""),
            data=data,
            is_cut=is_cut,
        )

    def _body(self, response: http.client.HTTPResponse, *, unpacks: bool) -> tuple[bytes, bool]:
        """Return the body, and whether it was cut at MAX_BYTES."""
        body, unpacker = bytearray(), zlib.decompressobj(wbits=31) if unpacks else None
        while chunk := response.read(CHUNK_BYTES):
            while chunk:
                room = MAX_BYTES + 1 - len(body)
                body += unpacker.decompress(chunk, room) if unpacker else chunk
                if len(body) > MAX_BYTES:
                    return bytes(body[:MAX_BYTES]), True
                chunk = unpacker.unconsumed_tail if unpacker else b""
            if time.monotonic() > self._until:
                raise TimeoutError
        if self._is_stopped:
            raise TimeoutError
        return bytes(body), False


def decoded(download: Download) -> str:
    """Return the text of a page. Undecodable bytes are replaced."""
    for name in (download.charset, "utf-8"):
        with suppress(LookupError, UnicodeDecodeError, ValueError):
            return download.data.decode(name or "utf-8")
    return download.data.decode("latin-1" if not download.charset else "utf-8", "replace")
