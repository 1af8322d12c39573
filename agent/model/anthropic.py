"""A model behind the Messages API, by way of the `anthropic` SDK: beside `sdk`, which imports
it, the only module that knows it.

The import takes up to a second, so it happens in a thread (`warm`) and never at start-up. The
SDK gives authentication, headers, pooling and typed errors; reading the stream, the limits on
silence and the retries are ours (`stream.py`, `faults.py`), because the SDK retries only before
the first byte, obeys any retry-after, and takes a stream that broke off for a finished one.
"""

import asyncio
import gc
import os
import sys
from collections.abc import AsyncGenerator, Iterator, Mapping
from concurrent.futures import Future
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from threading import Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ..context.wire import Request
from ..errors import NoCredentials, RequestRejected, conceal
from ..events import Delta
from . import sdk
from .base import UNKNOWN, Limits, Reply, known
from .body import body, digest
from .faults import Fault, Patience, Retry, judge
from .stream import Draft, calls_of, parse, watch

if TYPE_CHECKING:
    import anthropic
    import httpx2

KEY, TOKEN, BASE_URL = "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL"
_ELSEWHERE = ("ANTHROPIC_PROFILE", "ANTHROPIC_CONFIG_DIR", "ANTHROPIC_FEDERATION_RULE_ID")
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_MOST_SAID = 500  # characters of what is said of a failure
_ASKING = 5.0  # seconds the server has to say what it knows of a model
_LINGER = 0.5  # seconds to read on to the end of the stream: its connection is used again
_SHORT = 0.001  # seconds for which the import keeps other threads waiting


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds: to connect; from the request to the first byte of the reply's events; of silence
    between bytes after that, where a ping is a sign of life."""

    connect: float = 10.0
    first_byte: float = 120.0
    between: float = 90.0


def check_credentials(environ: Mapping[str, str]) -> None:
    """Raises NoCredentials when the environment names no key, or one that cannot be sent. The
    SDK's profiles count where a variable points to them."""
    for name in (KEY, TOKEN):
        value = environ.get(name, "")
        if not (value.isascii() and value.isprintable()):
            raise NoCredentials(
                f"{name} holds a line break or a character that no key has.", hint="Set it again."
            )
    if not any(environ.get(name) for name in (KEY, TOKEN, *_ELSEWHERE)):
        raise NoCredentials(
            f"No key for the model: neither {KEY} nor {TOKEN} is set.",
            hint=f"Set {KEY}, or {BASE_URL} and {TOKEN} for another server that speaks the "
            "Messages API. `ctxagent demo` shows everything without a key.",
        )


def check_address(url: str) -> None:
    """Raises RequestRejected for a base URL that could never be asked."""
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port or a bracket that is none
        sound = False
    if not sound:
        raise RequestRejected(
            f"The base URL {conceal(url)!r} is not an http or https address.",
            hint=f"Write {BASE_URL} or model.base_url as https://HOST[:PORT].",
        )


@cache
def warm() -> "Future[None]":
    """Start importing the SDK in a thread; done when it is there. Later calls change nothing."""
    done: Future[None] = Future()
    done.set_running_or_notify_cancel()  # so that a cancelled waiter does not cancel the import
    Thread(target=_load, args=(done,), name="import-anthropic", daemon=True).start()
    return done


def _load(done: "Future[None]") -> None:
    collecting, interval = gc.isenabled(), sys.getswitchinterval()
    gc.disable()  # thousands of modules and nothing to collect: a tenth to a third less
    sys.setswitchinterval(_SHORT)  # who types meanwhile waits for several turns with each key
    try:
        sdk.load()
    except ImportError as error:
        done.set_exception(error)
    else:
        done.set_result(None)
    finally:
        sys.setswitchinterval(interval)
        gc.freeze()  # the next collection would stop everything, to look through all of it
        if collecting:
            gc.enable()


class AnthropicModel:
    """`base_url`, `context_window` and `max_output` come from settings and win over what the
    environment and the server say. `environ` holds the variables that the SDK would read."""

    def __init__(
        self,
        id: str,
        *,
        base_url: str | None = None,
        context_window: int | None = None,
        max_output: int | None = None,
        timeouts: Timeouts | None = None,
        retry: Retry | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self.id = id
        self.base_url = base_url or environ.get(BASE_URL) or None
        self.context_window = context_window
        self.max_output = max_output
        self.timeouts = timeouts or Timeouts()
        self.retry = retry or Retry()
        self._environ = environ
        self._client: anthropic.AsyncAnthropic | None = None

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        """As `base.Model`: deltas, a `Retrying` before each wait, and the reply. Raises
        NoCredentials, RequestRejected (PromptTooLong) at once, ModelUnavailable in the end."""
        patience = Patience(self.retry)
        while True:
            try:
                async with aclosing(self._attempt(request)) as deltas:
                    async for delta in deltas:
                        yield delta
                return
            except Fault as fault:
                retrying = patience.wait(fault)
            yield retrying
            await asyncio.sleep(retrying.seconds)

    def supposed(self) -> Limits:
        """Settings before the table before the stated default."""
        row = known(self.id)
        return self._within(UNKNOWN if row is None else row[0])

    async def limits(self) -> Limits:
        """As `supposed`; a model that is in neither is asked of the server."""
        if known(self.id) is None and self.context_window is None:
            return self._within(await self._ask_limits())
        return self.supposed()

    def _within(self, found: Limits) -> Limits:
        window = self.context_window or found.window
        return Limits(
            window,
            min(self.max_output or found.output, window),
            "setting" if self.context_window else found.source,
        )

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()
            self._client = None

    async def _attempt(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        """One attempt. Raises Fault when another may succeed."""
        client = await self._connect()
        deadline = asyncio.get_running_loop().time() + self.timeouts.first_byte
        draft = Draft(request.model, frozenset(calls_of(request)), request.max_tokens)
        with self._translated(draft):
            response = await self._open(client, request, deadline)
            draft.sent = digest(response.request.content)
            try:
                async with aclosing(self._read(response, draft, deadline)) as deltas:
                    async for delta in deltas:
                        yield delta
            finally:
                await response.aclose()
        if not draft.complete:
            raise Fault("the stream ended before the reply was finished")
        yield draft.reply()

    async def _connect(self) -> "anthropic.AsyncAnthropic":
        if self._client is None:
            check_credentials(self._environ)
            if self.base_url:
                check_address(self.base_url)
            await asyncio.wrap_future(warm())
        if self._client is None:  # a call at its side may have been faster
            self._client = self._build()
        return self._client

    def _build(self) -> "anthropic.AsyncAnthropic":
        import anthropic
        import httpx2

        key, token = self._environ.get(KEY) or None, self._environ.get(TOKEN) or None
        url = urlsplit(self.base_url or "")
        options: dict[str, Any] = {"follow_redirects": False}  # the key would go along
        if url.scheme == "http" and url.hostname in _LOOPBACK:
            # Neither a proxy nor a TLS context, which alone takes 40 ms to set up.
            options["transport"] = httpx2.AsyncHTTPTransport(verify=False)
        return anthropic.AsyncAnthropic(
            api_key=key,
            auth_token=None if key else token,
            base_url=self.base_url,
            max_retries=0,
            timeout=httpx2.Timeout(
                None, connect=self.timeouts.connect, write=self.timeouts.between
            ),
            http_client=anthropic.DefaultAsyncHttpxClient(**options),
        )

    async def _open(
        self, client: "anthropic.AsyncAnthropic", request: Request, deadline: float
    ) -> "httpx2.Response":
        async with asyncio.timeout_at(deadline):
            opened = await client.messages.create(**body(request), stream=True)
        kind = opened.response.headers.get("content-type", "")
        if "event-stream" not in kind:
            await opened.response.aclose()
            raise RequestRejected(
                f"{conceal(str(client.base_url))} answered with {kind or 'nothing known'}, not "
                "with a stream of events: this is no Messages API server.",
                hint=f"Check {BASE_URL}.",
                status=opened.response.status_code,
            )
        response: httpx2.Response = opened.response
        return response

    async def _read(
        self, response: "httpx2.Response", draft: Draft, deadline: float
    ) -> AsyncGenerator[Delta, None]:
        """The deltas of a stream, gathered in `draft`."""
        watched = watch(response.aiter_bytes(), deadline=deadline, between=self.timeouts.between)
        async with aclosing(watched) as chunks:
            try:
                async with aclosing(parse(chunks)) as events:
                    async for event in events:
                        if event.get("type") == "error":
                            raise self._judged(event, draft.model, response)
                        for delta in draft.take(event):
                            yield delta
                        if draft.stopped:
                            break
            except ValueError as error:
                raise Fault(f"the stream cannot be read: {error}") from error
            with suppress(TimeoutError):
                async with asyncio.timeout(_LINGER):
                    async for _ in chunks:
                        pass

    @contextmanager
    def _translated(self, draft: Draft) -> Iterator[None]:
        """The SDK's errors as ours. One that comes when the reply is complete does not matter."""
        import anthropic
        import httpx2

        try:
            yield
        except anthropic.APIStatusError as error:
            raise judge(
                error.status_code,
                error.type,
                self._words(error.api_message or error.message),
                model=self.id,
                headers=error.response.headers,
                request_id=error.request_id,
            ) from error
        except anthropic.CredentialsError as error:
            words = self._words(error)
            raise NoCredentials(f"The SDK found no credentials that work: {words}") from error
        except (TimeoutError, anthropic.APIConnectionError, httpx2.HTTPError) as error:
            if not draft.complete:
                raise Fault(self._describe(error, draft)) from error

    def _words(self, said: object) -> str:
        """What was said of a failure, without the key, which some say back."""
        return conceal(str(said), self._environ.get(KEY), self._environ.get(TOKEN))[:_MOST_SAID]

    def _describe(self, error: Exception, draft: Draft) -> str:
        if isinstance(error, TimeoutError):
            silence = self.timeouts.between if draft.began else self.timeouts.first_byte
            return f"the server was silent for {silence:g} s"
        cause = error.__cause__ or error
        what = self._words(cause) or type(cause).__name__
        return f"the connection broke: {what}" if draft.began else f"no connection: {what}"

    def _judged(
        self, event: dict[str, Any], model: str, response: "httpx2.Response"
    ) -> Fault | RequestRejected:
        """An `error` event: the status was 200 long ago, so its type decides."""
        error = event.get("error")
        error = error if isinstance(error, dict) else {}
        return judge(
            200,
            error.get("type"),
            self._words(error.get("message", "")),
            model=model,
            headers={},
            request_id=response.headers.get("request-id"),
        )

    async def _ask_limits(self) -> Limits:
        """What the server knows of the model. Many servers know nothing: then the default."""
        client = await self._connect()
        import anthropic

        try:
            async with asyncio.timeout(_ASKING):
                info: Any = await client.models.retrieve(self.id)
        except (TimeoutError, ValueError, anthropic.AnthropicError):
            return UNKNOWN
        window = getattr(info, "max_input_tokens", None)
        output = getattr(info, "max_tokens", None)
        if not isinstance(window, int) or window <= 0:
            return UNKNOWN
        if not isinstance(output, int) or output <= 0:
            output = UNKNOWN.output
        return Limits(window, output, "server")
