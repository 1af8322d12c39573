"""How bytes get to a server and back: over `httpx2`, which comes with the `anthropic` SDK.

A protocol with an SDK of its own has a transport of its own, with the same methods.
"""

import asyncio
import gc
import json
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from threading import Thread
from typing import TYPE_CHECKING, Any, NoReturn, Protocol
from urllib.parse import urlsplit

from ..errors import RequestRejected, conceal
from .address import LOOPBACK_HOSTS, check_address
from .bounded_body import bound_body
from .keys import key_headers
from .providers import LOCAL

if TYPE_CHECKING:
    import httpx2

    from .providers import Endpoint

_IMPORT_SWITCH_INTERVAL_S = 0.001  # for which an import keeps other threads waiting


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Time limits in seconds."""

    connect: float = 10.0
    first_byte: float = 120.0  # from the request to the first byte of the reply
    between: float = 90.0  # of silence between bytes after that; a ping is a sign of life


@dataclass(eq=False)
class ErrorAnswer(Exception):
    """A server answered with an error."""

    status: int
    kind: str  # the name that the server gives the error, "" for none
    words: str
    headers: Mapping[str, str]
    request_id: str | None = None


class NotConnected(Exception):
    """The server could not be reached, or the connection broke; the cause says why."""


class Transport(Protocol):
    """A way to one server."""

    async def connect(self) -> None:
        """Import and check what a request needs. Raises NoCredentials and RequestRejected."""
        ...

    async def post(self, path: str, data: bytes, headers: Mapping[str, str]) -> "httpx2.Response":
        """Send a request; return the response, with its body still to come. Raises ErrorAnswer
        and NotConnected."""
        ...

    async def get(self, path: str) -> object:
        """Return what the server answers there, None where it has no answer."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


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
        gc.freeze()  # the next collection would stop everything, to look through all of it
        if collecting:
            gc.enable()


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


def timeout_of(timeouts: Timeouts) -> "httpx2.Timeout":
    """Return the limits that the client itself holds; those of a reply are held by who reads it."""
    import httpx2

    return httpx2.Timeout(None, connect=timeouts.connect, write=timeouts.between)


@cache
def start_import() -> "Future[None]":
    """Start to import `httpx2` in a thread; later calls change nothing."""
    return import_in_background(_import, "import-httpx2")


def _import() -> None:
    import httpx2  # noqa: F401


class HttpTransport:
    """A way to a server that wants nothing but a key in a header. See `Transport`."""

    def __init__(self, endpoint: "Endpoint", environ: Mapping[str, str]) -> None:
        """Set it up without connecting."""
        self._endpoint, self._environ = endpoint, environ
        self._address = endpoint.address
        self._client: httpx2.AsyncClient | None = None

    async def connect(self) -> None:
        if self._client is None:
            headers = key_headers(self._endpoint, self._environ)
            if self._endpoint.provider.name == LOCAL and not self._address:
                self._address = await _local_address(self._environ)
            check_address(self._address, self._endpoint.provider.address_variable)
            await asyncio.wrap_future(start_import())
        if self._client is None:  # a concurrent call may have been faster
            import httpx2

            self._client = httpx2.AsyncClient(
                headers={"content-type": "application/json", **headers},
                timeout=timeout_of(Timeouts()),
                **client_options(self._address),
            )

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
            await _raise_answer(response)
        finally:
            await response.aclose()

    async def get(self, path: str) -> object:
        import httpx2

        with suppress(httpx2.HTTPError, ValueError):
            answer = await self._connected().get(f"{self._address}{path}")
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


async def _local_address(environ: Mapping[str, str]) -> str:
    """Return the address of a server on this machine. Raises RequestRejected."""
    from .local_servers import address_of_local

    if found := await address_of_local(environ):
        return found
    raise RequestRejected(
        "No server of models answers on this machine.",
        hint="Start Ollama, LM Studio, llama.cpp or vLLM, or name its address: "
        "-c model.base_url=http://127.0.0.1:PORT/v1",
    )


async def _raise_answer(response: "httpx2.Response") -> NoReturn:
    import httpx2

    try:
        text = (await response.aread()).decode(errors="replace")
    except httpx2.HTTPError as error:
        raise NotConnected from error
    kind, words = "", text
    with suppress(ValueError, RecursionError):
        kind, words = told_error(json.loads(text)) or ("", text)
    named = response.headers.get("x-request-id") or response.headers.get("request-id")
    raise ErrorAnswer(response.status_code, kind, words, response.headers, named)


def told_error(answer: object) -> tuple[str, str] | None:
    """Return the name and the words of an error in the forms that servers have: `error` as an
    object or a text, `message` or `detail` alone, all that in a list. None where there is none."""
    if isinstance(answer, list):
        answer = answer[0] if answer else None
    if not isinstance(answer, dict):
        return None
    error = answer.get("error")
    if isinstance(error, str):
        return "", error
    inner = error if isinstance(error, dict) else answer
    words = next((inner[n] for n in ("message", "detail", "msg") if inner.get(n)), None)
    if words is None and error is None:
        return None
    kinds = (inner.get(name) for name in ("code", "type", "status"))
    kind = next((kind for kind in kinds if isinstance(kind, str) and kind), "")
    if isinstance(code := inner.get("code"), int):
        kind = kind if kind not in ("", "error") else str(code)
    return kind, words if isinstance(words, str) else json.dumps(words or inner)


def address_shown(endpoint: "Endpoint") -> str:
    """Return an endpoint's address as it may be shown."""
    return conceal(endpoint.address or endpoint.provider.name)
