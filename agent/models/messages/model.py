"""A model behind the Messages API, by way of the `anthropic` SDK.

Only this module and `lazy_sdk`, which imports the SDK, know it. The import takes up to a second,
so it happens in a thread (`start_import`) and never at start-up. The SDK gives authentication,
headers, pooling and typed errors. Reading the stream, the limits on silence and the retries are
ours (`models/sse.py`, `models/retry.py`), because the SDK retries only before the first byte, obeys
any retry-after, and takes a stream that broke off for a finished one.
"""

import asyncio
import gc
import os
import sys
from collections.abc import AsyncGenerator, Collection, Iterator, Mapping
from concurrent.futures import Future
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from ...context.compaction_block import COMPACTION, begins_with_block, compaction_in
from ...context.request import Request
from ...errors import NoCredentials, RequestRejected, conceal
from ...events import Accepted, Delta, Notice, Retrying
from ..address import LOOPBACK_HOSTS, check_address
from ..base import Abilities, Reply
from ..bounded_body import bound_body
from ..catalog import DEFAULT_LIMITS, Limits, known_model
from ..retry import RATE_LIMITED, Fault, RetryPlan, RetryPolicy
from ..server_limits import in_list, told_limits
from ..shared_wait import OTHERS_WAIT, SharedWait
from ..sse import limit_silence, parse_events
from . import lazy_sdk
from .abilities import abilities_of
from .body import betas, body, encode, sent_of
from .credentials import find_credentials
from .draft import ReplyDraft, call_ids
from .gaps import GAPS, IMAGES, ServerGaps
from .refusals import classify_error
from .servers import BASE_URL_VAR, KEY_VAR, TOKEN_VAR

if TYPE_CHECKING:
    import anthropic
    import httpx2

MAX_WHY_CHARS = 200  # of a refusal, where a notice says what was learned from it
_MAX_ERROR_CHARS = 500
_MAX_READ_CHARS = 20_000  # of an error's text that is looked through for keys
_LIMITS_TIMEOUT_S = 5.0  # for the server to say what it knows of a model
_DRAIN_TIMEOUT_S = 0.5  # to read to the end of the stream, so that its connection is used again
_IMPORT_SWITCH_INTERVAL_S = 0.001  # for which the import keeps other threads waiting


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Time limits in seconds."""

    connect: float = 10.0
    first_byte: float = 120.0  # from the request to the first byte of the reply's events
    between: float = 90.0  # of silence between bytes after that; a ping is a sign of life


@cache
def start_import() -> "Future[None]":
    """Start importing the SDK in a thread; later calls change nothing. The future is done when the
    SDK is there, or has the ImportError."""
    done: Future[None] = Future()
    done.set_running_or_notify_cancel()  # so that a cancelled waiter does not cancel the import
    Thread(target=_load, args=(done,), name="import-anthropic", daemon=True).start()
    return done


def _load(done: "Future[None]") -> None:
    collecting, interval = gc.isenabled(), sys.getswitchinterval()
    gc.disable()  # thousands of modules and nothing to collect: a tenth to a third less
    # Who types meanwhile waits several switch intervals for each key.
    sys.setswitchinterval(_IMPORT_SWITCH_INTERVAL_S)
    try:
        lazy_sdk.load()
    except ImportError as error:
        done.set_exception(error)
    else:
        done.set_result(None)
    finally:
        sys.setswitchinterval(interval)
        gc.freeze()  # the next collection would stop everything, to look through all of it
        if collecting:
            gc.enable()


class MessagesModel:
    """A model behind the Messages API. See `base.Model`."""

    def __init__(
        self,
        id: str,
        *,
        base_url: str | None = None,
        context_window: int | None = None,
        max_output: int | None = None,
        timeouts: Timeouts | None = None,
        retry: RetryPolicy | None = None,
        environ: Mapping[str, str] = os.environ,
        learned: Path | None = None,
        shared_wait: SharedWait | None = None,
    ) -> None:
        """Set the model up without connecting. `base_url`, `context_window` and `max_output` come
        from the settings and win over what the environment and the server say. `environ` holds the
        variables that the SDK would read, and the file `learned` what servers do not take.
        `shared_wait` is what other agents were told to wait."""
        self.id = id
        self.base_url = base_url or environ.get(BASE_URL_VAR) or None
        self.gaps = ServerGaps(learned, self.base_url or "", id)
        self.context_window = context_window
        self.max_output = max_output
        self.timeouts = timeouts or Timeouts()
        self.retry = retry or RetryPolicy()
        self._environ = environ
        self._shared_wait = shared_wait or SharedWait(None)
        self._client: anthropic.AsyncAnthropic | None = None

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        """Yield deltas, a `Retrying` before each wait, a `Notice` of what the server refuses, and
        the reply. A request is repeated without what is refused, except for images and a
        compaction block. Raises what `send` does."""
        while True:
            gaps, has_output = self._gaps_for(request), False
            try:
                async with aclosing(self.send(request, gaps)) as deltas:
                    async for delta in deltas:
                        has_output = has_output or not isinstance(delta, Retrying)
                        if isinstance(delta, Reply):
                            self._learn_from_reply(request, delta)
                        yield delta
                return
            except RequestRejected as error:
                refusal = error
            gap = self.gaps.learn(refusal, body(request, gaps))
            if (
                not gap or gap == IMAGES
            ):  # images are left out of the context, so that the log has it
                raise refusal
            why = refusal.message[:MAX_WHY_CHARS]
            yield Notice(
                "info", f"{self.id} takes {GAPS[gap]}: requests go without from now on ({why})"
            )
            if request.compaction is not None:
                raise refusal
            if has_output:
                yield Retrying(1, None, 0.0, why)

    def _gaps_for(self, request: Request) -> tuple[str, ...]:
        """Return what a request must do without on this server."""
        lacks = (
            request.compaction is None
            and begins_with_block(request.messages)
            and not self.gaps.takes_compaction_block
        )
        names = self.gaps.names
        return tuple(dict.fromkeys((*names, COMPACTION))) if lacks else names

    def _learn_from_reply(self, request: Request, reply: Reply) -> None:
        """Note that the server took a request, and whether it summarises by itself or answered as
        if it had not been asked."""
        self.gaps.prove()
        if request.compaction is None:
            return
        if compaction_in(reply.content):
            self.gaps.see(COMPACTION)
        elif any(block["type"] != COMPACTION for block in reply.content):
            self.gaps.add(COMPACTION)

    async def send(
        self, request: Request, gaps: Collection[str]
    ) -> AsyncGenerator[Delta | Reply, None]:
        """Yield what `stream` does for one request without these parts, and learn nothing from it.
        Raises NoCredentials and RequestRejected (PromptTooLong) at once, ModelUnavailable when the
        attempts are used up."""
        plan = RetryPlan(self.retry, BASE_URL_VAR, request.overload_wait)
        while True:
            has_output = False
            if (told := self._shared_wait.left()) > 0:
                yield Retrying(plan.tried + 1, None, round(told, 3), OTHERS_WAIT)
                await asyncio.sleep(told)
                continue
            try:
                async with aclosing(self._attempt(request, gaps)) as deltas:
                    async for delta in deltas:
                        has_output = has_output or not isinstance(delta, Accepted)
                        yield delta
                return
            except Fault as fault:
                retrying = plan.next_attempt(fault, has_output=has_output)
                if fault.overloaded or fault.status == RATE_LIMITED:
                    self._shared_wait.extend(retrying.seconds)
            yield retrying
            await asyncio.sleep(retrying.seconds)

    @property
    def abilities(self) -> Abilities:
        return abilities_of(self.id, self.gaps)

    def assumed_limits(self) -> Limits:
        """Return the limits by the settings, else by the table, else the stated default."""
        row = known_model(self.id)
        return self._with_settings(row.limits if row else DEFAULT_LIMITS)

    async def limits(self) -> Limits:
        """Return `assumed_limits`, or ask the server about a model that is nowhere described."""
        if known_model(self.id) is None and self.context_window is None:
            return self._with_settings(await self._ask_limits())
        return self.assumed_limits()

    def _with_settings(self, found: Limits) -> Limits:
        window = self.context_window or found.window
        source = "setting" if self.context_window else found.source
        return Limits(window, min(self.max_output or found.output, window), source)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()
            self._client = None

    async def _attempt(
        self, request: Request, gaps: Collection[str]
    ) -> AsyncGenerator[Delta | Reply, None]:
        """Make one attempt. Raises Fault when another may succeed."""
        client = await self._connect()
        data = encode(content := body(request, gaps))
        needed = betas(request, content)
        headers = {"anthropic-beta": ",".join(needed)} if needed else {}
        deadline = asyncio.get_running_loop().time() + self.timeouts.first_byte
        draft = ReplyDraft(request.model, frozenset(call_ids(request)), request.max_tokens)
        with self._translated(draft):
            response = await self._open(client, data, headers, deadline)
            draft.sent = sent_of(request, data, gaps)
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
            find_credentials(self._environ)
            if self.base_url:
                check_address(self.base_url, BASE_URL_VAR)
            await asyncio.wrap_future(start_import())
        if self._client is None:  # a concurrent call may have been faster
            self._client = self._build()
        return self._client

    def _build(self) -> "anthropic.AsyncAnthropic":
        import anthropic
        import httpx2

        key, token = (
            self._environ.get(KEY_VAR) or None,
            self._environ.get(TOKEN_VAR) or None,
        )
        url = urlsplit(self.base_url or "")
        options: dict[str, Any] = {
            "follow_redirects": False,  # the key would go there too
            "event_hooks": {"response": [bound_body]},
        }
        if url.scheme == "http" and url.hostname in LOOPBACK_HOSTS:
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
        self,
        client: "anthropic.AsyncAnthropic",
        data: bytes,
        headers: Mapping[str, str],
        deadline: float,
    ) -> "httpx2.Response":
        """Send the bytes of a request; return the response, with its body still to come.

        They go past `client.messages.create`, which would copy every block of every message before
        it makes the same bytes of them, and needs hundreds of modules to be imported.
        """
        import anthropic

        async with asyncio.timeout_at(deadline):
            opened = await client.post(
                "/v1/messages",
                cast_to=object,
                content=data,
                options={"headers": headers},
                stream=True,
                stream_cls=anthropic.AsyncStream[object],
            )
        kind = opened.response.headers.get("content-type", "")
        if "event-stream" not in kind:
            await opened.response.aclose()
            raise RequestRejected(
                f"{conceal(str(client.base_url))} answered with {kind or 'nothing known'}, not "
                "with a stream of events: this is no Messages API server.",
                hint=f"Check {BASE_URL_VAR}.",
                status=opened.response.status_code,
            )
        response: httpx2.Response = opened.response
        return response

    async def _read(
        self, response: "httpx2.Response", draft: ReplyDraft, deadline: float
    ) -> AsyncGenerator[Delta, None]:
        """Yield the deltas of a stream and gather them in `draft`."""
        limited = limit_silence(
            response.aiter_bytes(), deadline=deadline, between=self.timeouts.between
        )
        async with aclosing(limited) as chunks:
            try:
                async with aclosing(parse_events(chunks)) as events:
                    async for event in events:
                        if event.get("type") == "error":
                            raise self._event_error(event, draft.model, response)
                        for delta in draft.take(event):
                            yield delta
                        if draft.stopped:
                            break
            except ValueError as error:
                raise Fault(f"the stream cannot be read: {error}") from error
            with suppress(TimeoutError):
                async with asyncio.timeout(_DRAIN_TIMEOUT_S):
                    async for _ in chunks:
                        pass

    @contextmanager
    def _translated(self, draft: ReplyDraft) -> Iterator[None]:
        """Raise the SDK's errors as ours, except those that come when the reply is complete."""
        import anthropic
        import httpx2

        try:
            yield
        except anthropic.APIStatusError as error:
            raise classify_error(
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
        """Return the beginning of an error's text, without the key, which some servers repeat."""
        beginning = str(said)[:_MAX_READ_CHARS]
        text = conceal(beginning, self._environ.get(KEY_VAR), self._environ.get(TOKEN_VAR))
        return text[:_MAX_ERROR_CHARS]

    def _describe(self, error: Exception, draft: ReplyDraft) -> str:
        if isinstance(error, TimeoutError):
            silence = self.timeouts.between if draft.began else self.timeouts.first_byte
            return f"the server was silent for {silence:g} s"
        cause = error.__cause__ or error
        what = self._words(cause) or type(cause).__name__
        return f"the connection broke: {what}" if draft.began else f"no connection: {what}"

    def _event_error(
        self, event: dict[str, Any], model: str, response: "httpx2.Response"
    ) -> Fault | RequestRejected:
        """Return what an `error` event in mid-stream means, by its type: the status was 200."""
        error = event.get("error")
        error = error if isinstance(error, dict) else {}
        return classify_error(
            200,
            error.get("type"),
            self._words(error.get("message", "")),
            model=model,
            headers={},
            request_id=response.headers.get("request-id"),
        )

    async def _ask_limits(self) -> Limits:
        """Return what the server knows of the model, or the default when it knows nothing."""
        client = await self._connect()
        one = f"/v1/models/{quote(self.id, safe='')}"
        with suppress(TimeoutError):
            async with asyncio.timeout(_LIMITS_TIMEOUT_S):
                if found := told_limits(await self._told(client, one)):
                    return found
                found = told_limits(in_list(await self._told(client, "/v1/models"), self.id))
                return found or DEFAULT_LIMITS
        return DEFAULT_LIMITS

    async def _told(self, client: "anthropic.AsyncAnthropic", path: str) -> object:
        """Return what the server answers there, None where it has no answer."""
        import anthropic

        with suppress(ValueError, anthropic.AnthropicError):
            return await client.get(path, cast_to=object)
        return None
