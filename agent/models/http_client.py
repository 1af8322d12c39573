"""The `httpx2` client: import in the background, options, time limits and size limits.

Bodies of HTTP messages are also limited after decompression: a few megabytes can decompress to
gigabytes.
"""

import gc
import sys
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Future
from functools import cache
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from ...tools.system.tls import CertificatesUnreadable, tls_options
from ..errors import RequestRejected, ToolError, conceal
from ..lazy import dataclass
from .providers import LOOPBACK_HOSTS

if TYPE_CHECKING:
    import httpx2

MAX_BODY_BYTES = 1 << 18  # of an error after decompression; the rest is cut off
MAX_ANSWER_BYTES = 1 << 23  # of a non-streamed reply or a list of models
MAX_UNPACKED_BYTES = 24 << 20  # of a recorded reply after decompression
_UNPACK_STEP_BYTES = 1 << 20
_PACKED = {"gzip": zlib.MAX_WBITS | 16, "x-gzip": zlib.MAX_WBITS | 16, "deflate": zlib.MAX_WBITS}


async def bound_body(response: "httpx2.Response") -> None:
    """Limit the body of a response that is not an event stream. A response hook of httpx2's client,
    called before the body is read.
    """
    import httpx2

    kind = response.headers.get("content-type", "")
    if "event-stream" in kind and response.status_code < 300:
        return
    packing = response.headers.pop("content-encoding", "").strip().lower()
    response.headers.pop("content-length", None)
    stream = response.stream
    assert isinstance(stream, httpx2.AsyncByteStream)
    whole: httpx2.AsyncByteStream = stream
    limit = MAX_ANSWER_BYTES if response.status_code < 300 else MAX_BODY_BYTES

    class Bounded(httpx2.AsyncByteStream):
        def __aiter__(self) -> AsyncIterator[bytes]:
            return _bounded(whole.__aiter__(), packing, limit)

        async def aclose(self) -> None:
            await whole.aclose()

    response.stream = Bounded()


async def _bounded(chunks: AsyncIterator[bytes], packing: str, left: int) -> AsyncIterator[bytes]:
    """Yield the decompressed chunks, at most `left` bytes. Yield nothing for an unknown
    compression.
    """
    if packing not in ("", "identity", *_PACKED):
        return
    unpack = zlib.decompressobj(_PACKED[packing]) if packing in _PACKED else None
    async for chunk in chunks:
        try:
            part = unpack.decompress(chunk, left) if unpack else chunk[:left]
        except zlib.error:
            return
        yield part
        left -= len(part)
        if left <= 0:
            return


def unpacked(data: bytes, packing: str, limit: int = MAX_UNPACKED_BYTES) -> bytes:
    """Return a decompressed body. Raises ValueError for an unknown compression, invalid data, or
    more than `limit` bytes.
    """
    packing = packing.strip().lower()
    if packing in ("", "identity"):
        return data
    if packing not in _PACKED:
        raise ValueError(f"an answer in the encoding {packing!r}")
    unpack = zlib.decompressobj(_PACKED[packing])
    found = bytearray()
    try:
        while data and not unpack.eof:
            found += unpack.decompress(data, _UNPACK_STEP_BYTES)
            data = unpack.unconsumed_tail
            if len(found) > limit:
                raise ValueError(f"an answer of more than {limit >> 20} MB")
    except zlib.error as error:
        raise ValueError(f"an answer that is not valid {packing}: {error}") from error
    return bytes(found)


C = TypeVar("C")

_IMPORT_SWITCH_INTERVAL_S = 0.001  # keeps other threads responsive during imports


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Time limits in seconds."""

    connect: float = 10.0
    first_byte: float = 120.0  # from the request to the first byte of the reply
    whole: float = 1200.0  # the same for a server that does not stream
    between: float = 90.0  # between later bytes, including pings
    progress: float = 1200.0  # between two events that are not pings


def import_in_background(load: Callable[[], None], name: str) -> "Future[None]":
    """Run an import in a thread. The future completes when the import ends, and has the ImportError
    of a failed import.
    """
    done: Future[None] = Future()
    done.set_running_or_notify_cancel()  # a cancelled waiter must not cancel the import
    Thread(target=_load, args=(load, done), name=name, daemon=True).start()
    return done


def _load(load: Callable[[], None], done: "Future[None]") -> None:
    collecting, interval = gc.isenabled(), sys.getswitchinterval()
    gc.disable()  # saves 10 to 33 % of the time: thousands of modules, no garbage
    # Each key typed during the import waits several switch intervals.
    sys.setswitchinterval(_IMPORT_SWITCH_INTERVAL_S)
    try:
        load()
    except ImportError as error:
        done.set_exception(error)
    else:
        done.set_result(None)
    finally:
        sys.setswitchinterval(interval)
        _freeze()
        if collecting:
            gc.enable()


@cache
def _freeze() -> None:
    """Exclude all loaded modules from later garbage collections. Run only once, because garbage
    that exists now is never collected.
    """
    gc.freeze()


def client_options(address: str) -> dict[str, Any]:
    """Return the options of an `httpx2` client for a server. Raises CertificatesUnreadable."""
    import httpx2

    options: dict[str, Any] = {
        "follow_redirects": False,  # a redirect would get the key
        "event_hooks": {"response": [bound_body]},
    }
    url = urlsplit(address)
    if url.scheme == "http" and url.hostname in LOOPBACK_HOSTS:
        # No proxy and no TLS context, which takes 40 ms to create.
        options["transport"] = httpx2.AsyncHTTPTransport(verify=False)
    else:
        options |= tls_options()
    return options


def open_client(make: Callable[..., C], address: str, **options: Any) -> C:
    """Return a new `httpx2` client for a server. Raises RequestRejected for unreadable certificates
    and for a proxy that cannot be used.
    """
    try:
        return make(**client_options(address), **options)
    except CertificatesUnreadable as error:
        raise RequestRejected(
            f"No connection is possible: {error}",
            hint="Correct or unset the variable. `ctxagent doctor --network` tests the connection.",
        ) from error
    except (ValueError, ImportError) as error:
        raise RequestRejected(
            f"The proxy in the environment cannot be used: {conceal(str(error))}",
            hint="Set HTTPS_PROXY or ALL_PROXY to http://HOST:PORT or socks5://HOST:PORT, "
            "or unset it.",
        ) from error


async def post(url: str, content: bytes, headers: Mapping[str, str]) -> tuple[int, str]:
    """Post to a server that is not a model's. Return the status and the body, up to
    MAX_ANSWER_BYTES. Raises ToolError.
    """
    import httpx2

    try:
        async with open_client(httpx2.AsyncClient, url, timeout=None) as client:
            asked = client.build_request("POST", url, content=content, headers=dict(headers))
            answer = await client.send(asked, stream=True)
            body = bytearray()
            async for chunk in answer.aiter_bytes():
                body += chunk[: MAX_ANSWER_BYTES - len(body)]
                if len(body) == MAX_ANSWER_BYTES:
                    break
            await answer.aclose()
            return answer.status_code, body.decode(errors="replace")
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, RequestRejected) as error:
        raise ToolError(str(error) or type(error).__name__) from error


def timeout_of(timeouts: Timeouts) -> "httpx2.Timeout":
    """Return the timeouts that the client applies. The reader of a reply applies the other
    timeouts.
    """
    import httpx2

    return httpx2.Timeout(None, connect=timeouts.connect, write=timeouts.between)


@cache
def start_import() -> "Future[None]":
    """Start to import `httpx2` in a thread. Later calls return the same future."""
    return import_in_background(_import, "import-httpx2")


def _import() -> None:
    import httpx2  # noqa: F401
