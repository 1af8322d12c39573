"""The `httpx2` client: its import in the background, its options and its limits."""

import gc
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import cache
from threading import Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ..errors import ToolError
from ..lazy import dataclass
from .address import LOOPBACK_HOSTS
from .bounded_body import MAX_ANSWER_BYTES, bound_body

if TYPE_CHECKING:
    import httpx2

_IMPORT_SWITCH_INTERVAL_S = 0.001  # for which an import keeps other threads waiting


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Time limits in seconds."""

    connect: float = 10.0
    first_byte: float = 120.0  # from the request to the first byte of the reply
    whole: float = 1200.0  # the same where the server does not stream, so that it comes at the end
    between: float = 90.0  # of silence between bytes after that; a ping is a sign of life


def import_in_background(load: Callable[[], None], name: str) -> "Future[None]":
    """Import something in a thread. The future is done when it is there, or has the ImportError."""
    done: Future[None] = Future()
    done.set_running_or_notify_cancel()  # so that a cancelled waiter does not cancel the import
    Thread(target=_load, args=(load, done), name=name, daemon=True).start()
    return done


def _load(load: Callable[[], None], done: "Future[None]") -> None:
    collecting, interval = gc.isenabled(), sys.getswitchinterval()
    gc.disable()  # thousands of modules and nothing to collect: a tenth to a third less
    # Who types meanwhile waits several switch intervals for each key.
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
    """Spare the next collections a look through all modules. Once: what is garbage by then is never
    collected."""
    gc.freeze()


def client_options(address: str) -> dict[str, Any]:
    """Return the options of an `httpx2` client for a server."""
    import httpx2

    options: dict[str, Any] = {
        "follow_redirects": False,  # the key would go there too
        "event_hooks": {"response": [bound_body]},
    }
    url = urlsplit(address)
    if url.scheme == "http" and url.hostname in LOOPBACK_HOSTS:
        # Neither a proxy nor a TLS context, which alone takes 40 ms to set up.
        options["transport"] = httpx2.AsyncHTTPTransport(verify=False)
    return options


async def post(url: str, content: bytes, headers: Mapping[str, str]) -> tuple[int, str]:
    """Post to a server that is no model's; return the status and the bounded body. Raises
    ToolError."""
    import httpx2

    try:
        async with httpx2.AsyncClient(**client_options(url), timeout=None) as client:
            asked = client.build_request("POST", url, content=content, headers=dict(headers))
            answer = await client.send(asked, stream=True)
            body = bytearray()
            async for chunk in answer.aiter_bytes():
                body += chunk[: MAX_ANSWER_BYTES - len(body)]
                if len(body) == MAX_ANSWER_BYTES:
                    break
            await answer.aclose()
            return answer.status_code, body.decode(errors="replace")
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
        raise ToolError(str(error) or type(error).__name__) from error


def timeout_of(timeouts: Timeouts) -> "httpx2.Timeout":
    """Return the limits that the client applies; the reader of a reply applies the others."""
    import httpx2

    return httpx2.Timeout(None, connect=timeouts.connect, write=timeouts.between)


@cache
def start_import() -> "Future[None]":
    """Start to import `httpx2` in a thread; later calls change nothing."""
    return import_in_background(_import, "import-httpx2")


def _import() -> None:
    import httpx2  # noqa: F401
