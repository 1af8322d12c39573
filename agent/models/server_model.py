"""A model behind a server: retries, timeouts, and learned gaps of the server.

A wire protocol provides a `Wire` (bytes and replies) and a `Transport` (connections). Reading the
stream, timeouts and retries are common to all protocols. SDKs are not enough: they retry only
before the first byte, obey any retry-after, and accept a truncated stream as finished.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Collection, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ...tools.system.tls import certificate_problem
from ..context.items import COMPACTION
from ..context.request import Request
from ..errors import ModelUnavailable, PromptTooLong, RequestRejected, conceal
from ..events import Accepted, Delta, Notice, Retrying
from ..lazy import dataclass
from .base import Abilities, Reply
from .catalog import DEFAULT_LIMITS, Limits, cache_terms, known_limits
from .gaps import IMAGES, ServerGaps, ask_local, find_in_list, has_images, parse_limits
from .http_client import Timeouts
from .providers import CHAT, LOOPBACK_HOSTS, host_of
from .refusals import ServerHints, classify_answer
from .retry import RATE_LIMITED, Fault, RetryPlan, RetryPolicy
from .shared_wait import OTHERS_WAIT, SharedWait
from .timings import Stopwatch
from .transport import (
    ErrorAnswer,
    NotConnected,
    OnlyPings,
    Transport,
    deadline_after,
    display_address,
    limit_silence,
    parse_error,
    parse_events,
)
from .wire import Draft, StreamError, Wire, encode

if TYPE_CHECKING:
    import httpx2

    from .providers import Endpoint

MAX_WHY_CHARS = 200  # of a refusal in a notice
_MAX_ERROR_CHARS = 500
_MAX_READ_CHARS = 20_000  # of an error's text to search for keys
_LIMITS_TIMEOUT_S = 5.0  # to query a model's limits
_DRAIN_TIMEOUT_S = 0.5  # to read the rest of the stream, so that its connection can be reused


@dataclass(frozen=True, slots=True)
class ServerAccess:
    """The server of a model, with its transport, hints and secrets."""

    endpoint: "Endpoint"
    transport: Transport
    hints: ServerHints
    secrets: tuple[str, ...] = ()  # keys, to remove from error messages


class ServerModel:
    """A model behind a server. See `base.Model`."""

    def __init__(
        self,
        id: str,
        wire: Wire,
        access: ServerAccess,
        gaps: ServerGaps,
        *,
        context_window: int | None = None,
        max_output: int | None = None,
        timeouts: Timeouts | None = None,
        retry: RetryPolicy | None = None,
        shared_wait: SharedWait | None = None,
    ) -> None:
        """Create the model without connecting. `context_window` and `max_output` come from the
        settings and override the server's values. `shared_wait` makes this model wait when a server
        has asked another agent to wait.
        """
        self.id, self.wire, self.access, self.gaps = id, wire, access, gaps
        self.context_window, self.max_output = context_window, max_output
        provider = access.endpoint.provider
        self.timeouts = timeouts or Timeouts(first_byte=provider.first_byte)
        self.retry = retry or RetryPolicy()
        self._shared_wait = shared_wait or SharedWait(None)

    @property
    def abilities(self) -> Abilities:
        provider = self.access.endpoint.provider
        return Abilities(
            cache_terms(self.id),
            images=IMAGES not in self.gaps.names,
            slots=provider.slots,
            binds_thinking=provider.binds_thinking,
        )

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        """Yield deltas, a `Retrying` before each wait, a `Notice` for each learned gap, and the
        reply. Repeat a refused request without the features that may be the cause. Raise the
        refusal if it is about images or the size, or if the request asks for a compaction block.
        Raises the errors of `send`.
        """
        first: RequestRejected | None = None
        while True:
            gaps, has_output = self._gaps_for(request), False
            try:
                async with aclosing(self.send(request, gaps)) as deltas:
                    async for delta in deltas:
                        has_output = has_output or not isinstance(delta, Retrying)
                        if isinstance(delta, Reply):
                            self._learn_from_reply(request, delta, gaps)
                        yield delta
                return
            except ModelUnavailable:
                self.gaps.note_refused(self.wire.fitted_body(request, gaps))
                raise
            except RequestRejected as error:
                refusal = error
            why = refusal.message[:MAX_WHY_CHARS]
            if self._gaps_for(request) == gaps:  # else another conversation learned it meanwhile
                body = self.wire.fitted_body(request, gaps)
                suspects = self.gaps.suspect(refusal, body, has_thinking=request.has_thinking())
                # Images are removed from the context by the caller, so that the log shows it.
                if not suspects or IMAGES in suspects:
                    raise refusal if first is None or isinstance(refusal, PromptTooLong) else first
                first = first or refusal
                if request.compaction is not None:
                    if COMPACTION in suspects:  # our own summary does not need it
                        self.gaps.add(COMPACTION)
                    raise refusal
                yield Notice("info", self._adaptation(suspects, why))
            if has_output:
                yield Retrying(1, None, 0.0, why)

    def _adaptation(self, suspects: Sequence[str], why: str) -> str:
        """Return the notice for features that requests omit from now on."""
        what = ", ".join(self.wire.gaps[name].what for name in suspects)
        if len(suspects) > 1:
            return f"retrying with {what}: {why}"
        return f"{self.id} accepts {what}: requests are adapted from now on ({why})"

    def _gaps_for(self, request: Request) -> tuple[str, ...]:
        """Return the features to omit from a request."""
        return self.gaps.names

    def _learn_from_reply(self, request: Request, reply: Reply, gaps: Collection[str]) -> None:
        """Record that the server accepted a request without the features in `gaps`."""
        sent = self.wire.fitted_body(request, gaps)
        whole = self.wire.fitted_body(request, ()) if gaps else sent
        self.gaps.accept(gaps, sent, whole, images=has_images(request))

    async def send(
        self, request: Request, gaps: Collection[str]
    ) -> AsyncGenerator[Delta | Reply, None]:
        """Yield the deltas and the reply for a request without the features in `gaps`, and learn
        nothing. Raises NoCredentials and RequestRejected (PromptTooLong) at once, and
        ModelUnavailable after the last attempt.
        """
        plan = RetryPlan(self.retry, self.access.hints.address, request.overload_wait)
        plan.fallback_after, plan.same_failures = request.fallback_after, request.same_failures
        plan.failed = request.failed_attempts
        while True:
            has_output = False
            if (told := self._shared_wait.seconds_left()) > 0:
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

    def assumed_limits(self) -> Limits:
        """Return the limits from the settings, else from the table, else the default."""
        return self._with_settings(known_limits(self.id) or DEFAULT_LIMITS)

    async def limits(self) -> Limits:
        """Return `assumed_limits`. If neither the settings nor the tables have the model's window,
        ask the server.
        """
        if known_limits(self.id) is None and self.context_window is None:
            return self._with_settings(await self._ask_limits())
        return self.assumed_limits()

    def _with_settings(self, found: Limits) -> Limits:
        window = self.context_window or found.window
        source = "setting" if self.context_window else found.source
        output = self.max_output or found.output
        return Limits(window, min(output, window) if output else None, source)

    async def close(self) -> None:
        await self.access.transport.close()

    async def _attempt(
        self, request: Request, gaps: Collection[str]
    ) -> AsyncGenerator[Delta | Reply, None]:
        """Make one attempt. Raises Fault if a retry is worthwhile."""
        wire, transport = self.wire, self.access.transport
        await transport.connect()
        data = encode(content := wire.fitted_body(request, gaps))
        limit = self.timeouts.first_byte if content.get("stream") else self.timeouts.whole
        deadline = deadline_after(limit)
        draft = wire.draft(request)
        if request.on_send is not None:
            request.on_send()
        watch = Stopwatch()
        with self._translated(draft, limit):
            async with asyncio.timeout_at(deadline):
                response = await transport.post(wire.path, data, wire.headers(request, content))
            draft.sent = wire.sent_of(request, data, gaps)
            try:
                async with aclosing(self._read(response, draft, deadline)) as deltas:
                    async for delta in deltas:
                        watch.note(delta)
                        yield delta
            finally:
                await response.aclose()
        if not draft.complete:
            words = "the stream ended before the reply was finished"
            raise Fault(words, no_reply=not draft.began)
        reply = draft.reply()
        yield replace(reply, timings=self._timings(reply, watch))

    def _timings(self, reply: Reply, watch: Stopwatch) -> Mapping[str, Any]:
        """Return the timings of a reply; an empty mapping for a server elsewhere."""
        if not self.is_local:
            return {}
        if reply.timings:
            return {"cached": reply.usage.cache_read, **reply.timings}
        return watch.timings(reply.usage)

    async def _read(
        self, response: "httpx2.Response", draft: Draft, deadline: float
    ) -> AsyncGenerator[Delta, None]:
        """Yield the deltas of a response and collect them in `draft`."""
        kind = response.headers.get("content-type", "")
        progress_by = deadline_after(self.timeouts.progress)
        limited = limit_silence(
            response.aiter_bytes(),
            deadline=deadline,
            between=self.timeouts.between,
            progress_by=lambda: progress_by,
        )
        async with aclosing(limited) as chunks:
            try:
                if "event-stream" not in kind:
                    for delta in draft.take_unstreamed(await self._whole(chunks, kind)):
                        yield delta
                    return
                async with aclosing(parse_events(chunks)) as events:
                    async for event in events:
                        if event.get("type") != "ping":
                            progress_by = deadline_after(self.timeouts.progress)
                        if event.get("type") == "error" or event.get("error"):
                            raise StreamError(*(parse_error(event) or ("", "")))
                        for delta in draft.take(event):
                            yield delta
                        if draft.stopped:
                            break
            except ValueError as error:
                raise Fault(f"the stream cannot be read: {error}") from error
            except StreamError as error:
                raise self._classify(200, error.kind, error.words, {}, _id_of(response)) from error
            with suppress(TimeoutError):
                async with asyncio.timeout(_DRAIN_TIMEOUT_S):
                    async for _ in chunks:
                        pass

    async def _whole(self, chunks: AsyncGenerator[bytes, None], kind: str) -> dict[str, Any]:
        """Return an answer that is not an event stream. Raises RequestRejected and StreamError."""
        data, answer = bytearray(), None
        async for chunk in chunks:
            data += chunk
        with suppress(ValueError, RecursionError):
            answer = json.loads(data.decode())
        reply = answer if self.wire.takes_unstreamed and isinstance(answer, dict) else {}
        if (error := parse_error(answer)) and (reply.get("error") or not reply):
            raise StreamError(*error)
        if reply:
            return reply
        if not data:
            raise Fault("the server answered with an empty body", no_reply=True)
        what = kind or "no content type"
        if self.wire.takes_unstreamed and "json" in kind:
            what = "broken JSON"
        raise RequestRejected(
            f"{display_address(self.access.endpoint)} answered with {what}, not with a stream of "
            f"events: this is not a {self.wire.title} server.",
            hint=f"Check {self.access.hints.address}.",
        )

    @contextmanager
    def _translated(self, draft: Draft, limit: float) -> Iterator[None]:
        """Convert errors of the transport to Fault or RequestRejected. Ignore them if the reply is
        complete.
        """
        import httpx2

        try:
            yield
        except ErrorAnswer as error:
            raise self._classify(
                error.status, error.kind, error.words, error.headers, error.request_id
            ) from error
        except (TimeoutError, NotConnected, httpx2.HTTPError) as error:
            if why := certificate_problem(error):
                raise RequestRejected(
                    f"The certificate of {display_address(self.access.endpoint)} is not trusted: "
                    f"{why}.",
                    hint="Set SSL_CERT_FILE to the certificates of your organization's proxy. "
                    "`ctxagent doctor --network` tests the connection.",
                ) from error
            if not draft.complete:
                is_here = host_of(self.access.endpoint.address) in LOOPBACK_HOSTS
                refused = isinstance(error.__cause__ or error, httpx2.ConnectError)
                reason = self._describe(error, draft, limit)
                raise Fault(reason, no_server=is_here and refused) from error

    def _classify(
        self, status: int, kind: str, words: str, headers: Any, request_id: str | None
    ) -> Fault | RequestRejected:
        return classify_answer(
            status,
            self._cleaned(words),
            kind=kind,
            model=self.id,
            headers=headers,
            request_id=request_id,
            hints=self.access.hints,
        )

    def _cleaned(self, said: object) -> str:
        """Return the start of an error's text, with keys removed because some servers
        repeat them.
        """
        beginning = " ".join(str(said)[:_MAX_READ_CHARS].split())
        return conceal(beginning, *self.access.secrets)[:_MAX_ERROR_CHARS]

    def _describe(self, error: Exception, draft: Draft, limit: float) -> str:
        if isinstance(error, OnlyPings):
            return f"the server sent only pings for {self.timeouts.progress:g} s"
        if isinstance(error, TimeoutError):
            silence = self.timeouts.between if draft.began else limit
            return f"the server was silent for {silence:g} s"
        cause = error.__cause__ or error
        what = self._cleaned(cause) or type(cause).__name__
        if draft.began:
            return f"the connection broke: {what}"
        return f"no connection to {display_address(self.access.endpoint)}: {what}"

    @property
    def is_local(self) -> bool:
        """True if the server is on the user's machine or network."""
        endpoint = self.access.endpoint
        is_loopback = host_of(endpoint.address) in LOOPBACK_HOSTS
        return endpoint.provider.local or (is_loopback and endpoint.protocol == CHAT)

    async def _ask_limits(self) -> Limits:
        """Return the limits from the server, or the default if the server reports none."""
        transport, name = self.access.transport, self.access.endpoint.name
        await transport.connect()
        models = self.wire.models_path
        with suppress(TimeoutError):
            async with asyncio.timeout(_LIMITS_TIMEOUT_S):
                if found := parse_limits(await transport.get(f"{models}/{quote(name, safe='')}")):
                    return found
                found = parse_limits(find_in_list(await transport.get(models), name))
                if found is None and self.is_local:
                    found = await ask_local(transport.get_local, transport.post_local, name)
                return found or DEFAULT_LIMITS
        return DEFAULT_LIMITS


def _id_of(response: "httpx2.Response") -> str | None:
    return response.headers.get("request-id") or response.headers.get("x-request-id")
