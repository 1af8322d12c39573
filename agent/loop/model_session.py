"""The model of one conversation: its limits, its window and its calls.

The estimated cost of a request is recorded and reserved until its reply arrives. Each call gets a
log entry, also for a partial reply.
"""

import asyncio
import hashlib
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from ...tools.system.files import make_private_folder
from ..config.settings import ImagesMode
from ..context import tokens
from ..context.items import Item
from ..context.request import Request
from ..context.view import INTERRUPTED, REPEATED
from ..context.window import MIN_OUTPUT_TOKENS, CutPrompts, LearnedWindow, Window, measure
from ..errors import ModelError, RequestRejected
from ..events import (
    Accepted,
    CallFinished,
    Delta,
    Emit,
    Notice,
    Retrying,
    TextDelta,
    ThinkingDelta,
    ToolDraft,
    ToolFinished,
    waiting,
)
from ..lazy import dataclass
from ..models.base import Model, Reply, ReplyStream, text_of
from ..models.catalog import Limits, cache_terms, cost
from ..session.entries import HOOK, MEMORY, PLAN, SKILL, SKILL_LIST, Assistant, Block, Usage
from ..session.server_speed import TokenSeconds
from ..session.store import locate_log
from ..session.totals import request_note
from .budget import BudgetMeter
from .model_roles import ModelRoles
from .open_log import SessionRecord
from .prefix_reuse import NO_REUSE, PrefixReuse
from .repeated_text import RepeatedReply

BROKEN_ATTEMPT = "attempt"  # purpose of a failed call: only its cost counts


@dataclass(slots=True)
class PartialReply:
    """The part of a reply that has arrived so far."""

    model: str
    ratio: float  # real tokens per estimated token
    usage: Usage = field(default_factory=Usage)  # from the server's first event
    sent: Mapping[str, Any] = field(default_factory=dict)  # how the request was sent
    text: str = ""
    thinking: str = ""
    arguments: int = 0  # characters of the calls' arguments
    searches: int = 0  # finished web searches
    _draft: int = 0  # characters of arguments in the newest call

    def add(self, delta: Delta) -> None:
        if isinstance(delta, Accepted):
            self.usage, self.sent = Usage.from_json(delta.usage), delta.sent
        elif isinstance(delta, TextDelta):
            self.text += delta.text
        elif isinstance(delta, ThinkingDelta):
            self.thinking += delta.text
        elif isinstance(delta, ToolDraft):
            is_same_call = delta.size >= self._draft
            self.arguments += delta.size - (self._draft if is_same_call else 0)
            self._draft = delta.size
        elif isinstance(delta, ToolFinished):
            self.searches += not delta.is_error

    def reply(self, text: str) -> Reply:
        """Return the partial reply, with this text. Servers count output only at the end, so its
        tokens are estimated.
        """
        said = tokens.estimate(self.text) + tokens.estimate(self.thinking)
        said += tokens.estimate_length(self.arguments)
        usage = replace(
            self.usage,
            output=max(self.usage.output, round(self.ratio * said)),
            web_searches=max(self.usage.web_searches, self.searches),
        )
        content: list[Block] = [{"type": "text", "text": text}] if text else []
        return Reply(content, INTERRUPTED, usage, self.model, sent=self.sent)

    def stopped(self, repeated: str) -> Reply:
        """Return the reply that was stopped because it repeated a text. The repeated text is kept
        once.
        """
        in_text = self.text.endswith(repeated)
        begin = _repetition_start(self.text if in_text else self.thinking, len(repeated))
        end = begin + len(repeated)
        reply = self.reply(self.text[:end] if in_text else self.text)
        repeats = (self.text if in_text else self.thinking)[begin:end]
        return replace(reply, stop_reason=REPEATED, repeats=repeats)


def _repetition_start(text: str, period: int) -> int:
    """Return the index where the repetition at the end of a text begins."""
    start = len(text) - period
    while start >= period and text[start - period : start] == text[start : start + period]:
        start -= period
    while start and text[start - 1] == text[start - 1 + period]:
        start -= 1
    return start


def reply_entry(reply: Reply, request: Request, purpose: str) -> Assistant:
    """Return the entry of a reply, with the parameters and the digest of its request."""
    dollars = cost(reply.model, reply.usage)
    if dollars is None:  # a server may answer under another name
        dollars = cost(request.model, reply.usage)
    return Assistant(
        content=reply.content,
        usage=reply.usage.to_json(),
        stop_reason=reply.stop_reason,
        model=reply.model,
        purpose=purpose,
        message_id=reply.message_id,
        cost_usd=dollars,
        broken=reply.broken,
        dialect=dict(reply.dialect),
        request={**request.origin, **reply.sent} if reply.sent else {},
        timings=dict(reply.timings),
    )


_NOT_FROM_USER = ("notice", PLAN, SKILL, SKILL_LIST, MEMORY, HOOK)  # sources that are not the user


def last_text(items: Sequence[Item]) -> str:
    """Return the model's newest text since the last user message; "" if there is none."""
    for item in reversed(items):
        if item.role == "assistant" and (text := text_of(item.blocks)):
            return text
        words = item.role == "user" and item.source not in _NOT_FROM_USER
        if words and any(b.get("type") == "text" for b in item.blocks):
            break
    return ""


RUN_ID = secrets.token_hex(4)  # of this process
MAX_ERROR = 0.02  # relative error of an estimate; with a larger error it is recorded again
WARM_FOLDER = "warm"  # in the state folder: a file's age is the age of a prompt prefix in the cache


@dataclass(slots=True)
class RequestInFlight:
    """A request from its start until its reply is recorded.

    The estimated cost includes the prompt, with the cached part at the cache price, and a reply of
    the usual length.
    """

    session: SessionRecord
    meter: BudgetMeter
    purpose: str
    model: str
    dollars: float = 0.0
    is_open: bool = False

    def begin(self) -> None:
        """Record that the request is sent or sent again. Raises RecordError."""
        if not self.meter.records_requests:
            return
        (prompt, _), terms = self.session.view.prompt_tokens(), cache_terms(self.model)
        has_cache = terms.read < 1
        read = min(self._cached_tokens(terms.life), prompt) if has_cache else 0
        rest = prompt - read
        self._record(Usage(cache_read=read, cache_creation=rest) if has_cache else Usage(rest))

    def accepted(self, usage: Usage) -> None:
        """Correct the estimate with the server's token count of the prompt. Raises RecordError."""
        if not self.is_open or not usage.prompt:
            return
        if not self.session.totals.in_flight.replies:
            with suppress(OSError):
                warm = self._warm_file()
                make_private_folder(warm.parent)
                warm.touch(mode=0o600)
        self._record(usage)

    def _cached_tokens(self, life: float) -> int:
        """Return how many tokens of the prompt are in the server's cache: the session's newest
        prompt, or the system prompt and tools if another session has sent the same ones.
        """
        known, now = self.session.totals, time.time()
        replied = known.replied_at(self.model)
        if replied is not None:
            return known.in_flight.prompt if now - replied < life else 0
        with suppress(OSError):
            if now - self._warm_file().stat().st_mtime < life:
                view = self.session.view
                return view.scaled(view.size - sum(item.size for item in view.items))
        return 0

    def _warm_file(self) -> Path:
        view = self.session.view
        prefix = f"{self.model}\n{view.system}\n{view.tools}"
        name = hashlib.sha256(prefix.encode(errors="surrogatepass")).hexdigest()[:16]
        return locate_log(self.session.log.path)[0].parents[1] / WARM_FOLDER / name

    def _record(self, usage: Usage) -> None:
        output = max(usage.output, self.session.totals.in_flight.usual_output)
        whole = Usage(usage.input, usage.cache_read, usage.cache_creation, output)
        dollars = cost(self.model, whole) or 0.0
        if self.is_open and abs(dollars - self.dollars) <= MAX_ERROR * dollars:
            return
        note = request_note(self.purpose, RUN_ID, dollars, replaces=self.is_open)
        self.session.record(note)
        self.is_open = True
        self._reserve(dollars)

    def answered(self) -> None:
        """Release the reservation, since the reply's entry has the cost."""
        self.is_open = False
        self._reserve(0.0)

    def gave_up(self) -> None:
        """Record that there will be no reply. Raises RecordError."""
        if self.is_open:
            self.session.record(request_note(self.purpose, RUN_ID, None, replaces=True))
        self.answered()

    def _reserve(self, dollars: float) -> None:
        self.meter.reserve(dollars - self.dollars)
        self.dollars = dollars


MAX_REASON_CHARS = 200  # of a refusal's reason, in a notice
DEFAULT_REPLY_TOKENS = 32_000  # requested without a setting
CUT_PROMPT = (
    "the server cuts prompts without an error: it read {window:,} of about {prompt:,} tokens. "
    "{window:,} tokens are taken as the window. To use more, serve the model with a larger window "
    "(Ollama: OLLAMA_CONTEXT_LENGTH, or num_ctx in the Modelfile)"
)


@dataclass
class ModelSession:
    """A conversation's use of its model. Replies are recorded and charged to the budget."""

    roles: ModelRoles
    session: SessionRecord
    budget_meter: BudgetMeter
    max_tokens: int | None = None  # of a reply
    effort: str | None = None
    overload_wait: float | None = None  # seconds for which a turn retries an overloaded server
    images_setting: ImagesMode = "auto"  # whether the model accepts images
    # Removes secrets from a reply.
    clean_reply: Callable[[ReplyStream], ReplyStream] = lambda stream: stream
    client: Model = field(init=False)  # the model that answers now
    limits: Limits | None = None  # None until they are requested
    learned_window: LearnedWindow = field(default_factory=LearnedWindow)
    token_correction: float = 1.0  # the server's token count divided by our estimate
    _cut_prompts: CutPrompts = field(default_factory=CutPrompts)
    _has_asked_again: bool = False  # for the limits, after the first reply
    _reuse: PrefixReuse = field(default_factory=PrefixReuse)
    _has_warned_of_reuse: bool = False
    # When this process last called each model for this conversation, in Unix time.
    last_calls: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.client = self.roles.own

    @property
    def id(self) -> str:
        """The model's ID."""
        return self.client.id

    def change(self, client: Model) -> None:
        """Use another model, starting with the next call."""
        self.client, self.limits, self.learned_window = client, None, LearnedWindow()
        self._reuse = PrefixReuse()

    def share(self, other: "ModelSession") -> None:
        """Copy the limits, the learned window and the effort of another conversation with this
        model.
        """
        self.limits, self.effort = other.limits, other.effort
        self.learned_window = other.learned_window

    async def window(self) -> Window:
        """Return the size and level of the context. The first call requests the model's limits."""
        if self.limits is None:
            with waiting(self.session.emit, "checking the model's context window"):
                self.limits = await self.client.limits()
            if self.learned_window.size is None and self.limits.source != "setting":
                self.learned_window.size = self.client.gaps.window
        return self.current_window()

    def current_window(self) -> Window:
        """Return the size and level of the context without a request."""
        size = (self.limits or self.client.assumed_limits()).window
        window = measure(self.session.view, self.learned_window.limit(size))
        return replace(window, tokens=round(window.tokens * self.token_correction))

    def token_seconds(self) -> TokenSeconds | None:
        """Return the speed of the model's server if time is its only price, else None."""
        speed = self.session.totals.speeds.get(self.id)
        return None if speed is None or cost(self.id, Usage(1, 1, 1, 1)) else speed.per_token()

    def accept(self, prompt: int, estimate: int) -> None:
        """Note that the server accepted a request and counted `prompt` tokens. `estimate` is our
        unscaled count. Notify the user if this shows another window.
        """
        wrong = self.learned_window.accept(prompt)
        if prompt > (self.client.gaps.window or prompt):
            self.client.gaps.keep_window(None)
        if wrong:
            text = f"a request of {prompt:,} tokens was accepted: the window is larger "
            self.session.emit(Notice("info", f"{text}than the assumed {wrong:,} tokens"))
        elif cut_at := self._cut_prompts.add(estimate, prompt):
            self.learned_window.size = cut_at
            self.client.gaps.keep_window(cut_at)
            text = CUT_PROMPT.format(prompt=estimate, window=cut_at)
            self.session.emit(Notice("warning", text))
        if self.limits and self.limits.source == "default" and not self._has_asked_again:
            self.limits, self._has_asked_again = None, True  # a local server has loaded the model

    def least_window(self) -> int:
        """Return a lower bound of the model's window in tokens: the largest accepted prompt, or the
        system prompt, the tools and a reply.
        """
        return max(self.learned_window.accepted, self.fixed_tokens())

    def fixed_tokens(self) -> int:
        """Return the tokens of the system prompt, the tools and a short reply."""
        view = self.session.view
        fixed = view.size - sum(item.size for item in view.items)
        return view.scaled(fixed) + MIN_OUTPUT_TOKENS

    def reply_room(self) -> int:
        """Return the number of tokens for the next reply; 0 if there is no room."""
        limits = self.limits or self.client.assumed_limits()
        wanted = self.max_tokens or DEFAULT_REPLY_TOKENS
        wanted = min(wanted, limits.output or wanted)
        return self.current_window().max_output(wanted)

    async def ask(
        self,
        request: Request,
        purpose: str,
        emit: Emit = lambda event: None,
        repeats: Callable[[Delta], str] | None = None,
        read: Callable[[Reply], Reply] = lambda reply: reply,
    ) -> Reply:
        """Send a request, pass the deltas to `emit`, and record the reply as `read` returns it.

        After a cancellation, the partial reply is recorded. The reply is stopped once `repeats`
        (default: a `RepeatedReply`) returns a repeated text. If an accepted attempt fails, an entry
        with its cost is recorded. Raises ModelError and RecordError.
        """
        repeats = repeats or RepeatedReply().add
        if purpose == "turn":
            self.last_calls[self.id] = time.time()
            after = self.roles.fallback_after(self.id)
            request = replace(request, overload_wait=self.overload_wait, fallback_after=after)
        # The client and the ratio may change during the request.
        client, ratio = self.roles.client(request.model, self.client), self.session.view.ratio
        took_images, partial = client.abilities.images, PartialReply(client.id, ratio)
        in_flight = RequestInFlight(self.session, self.budget_meter, purpose, client.id)
        request = replace(request, on_send=in_flight.begin)
        try:
            async with aclosing(self.clean_reply(client.stream(request))) as stream:
                async for delta in stream:
                    if isinstance(delta, Reply):
                        in_flight.answered()
                        reply = read(delta)
                        self._record_reply(reply, request, purpose)
                        self.roles.answered(client.id)
                        return reply
                    partial.add(delta)
                    if isinstance(delta, Accepted):
                        in_flight.accepted(partial.usage)
                    if isinstance(delta, Retrying):
                        self._record_failed_attempt(partial, request)
                        partial = PartialReply(client.id, ratio)
                    (self.session.emit if isinstance(delta, Notice) else emit)(delta)
                    if repeated := repeats(delta):
                        stopped = partial.stopped(repeated)
                        in_flight.answered()
                        self._record_reply(stopped, request, purpose)
                        return stopped
        except asyncio.CancelledError:
            cut = partial.reply(partial.text)
            if cut.content or cut.usage.prompt:
                in_flight.answered()
                self._record_reply(cut, request, purpose)
            else:
                in_flight.gave_up()
            raise
        except ModelError as error:
            self._record_failed_attempt(partial, request)
            in_flight.gave_up()
            if took_images and not client.abilities.images:
                self._warn_no_images(client, error)
            raise
        raise ModelError("the model ended its stream without a reply", hint="Try again.")

    def _warn_no_images(self, client: Model, error: ModelError) -> None:
        if isinstance(error, RequestRejected) and self.images_setting == "auto":
            reason = error.message[:MAX_REASON_CHARS]
            text = f"{client.id} accepts no images: requests are adapted from now on ({reason})"
            self.session.emit(Notice("warning", text))

    def has_compaction(self) -> bool:
        """Return True if the server is known to offer summaries. If the conversation has a
        compaction block, the server must also accept such blocks.
        """
        abilities, summary = self.client.abilities, self.session.view.summary
        if summary is None or summary.block is None:
            return abilities.makes_blocks
        return abilities.makes_blocks and abilities.takes_blocks

    def takes_images(self) -> bool:
        """Return True if the model accepts images, by the setting or else as far as is known."""
        if self.images_setting != "auto":
            return self.images_setting == "on"
        return self.client.abilities.images

    def _record_reply(self, reply: Reply, request: Request, purpose: str) -> None:
        entry = reply_entry(reply, request, purpose)
        self.budget_meter.pay(entry.cost_usd or 0.0)
        self.session.record(entry)
        if purpose == "turn":
            self.session.emit(CallFinished(entry.usage, entry.cost_usd, entry.stop_reason))
            self._check_reuse(reply)

    def _check_reuse(self, reply: Reply) -> None:
        """Warn once if a local server seems to read the whole prompt at every call."""
        if reply.timings and self._reuse.add(reply.timings) and not self._has_warned_of_reuse:
            self._has_warned_of_reuse = True
            text = NO_REUSE.format(seconds=reply.timings["read_s"])
            self.session.emit(Notice("warning", text))

    def _record_failed_attempt(self, partial: PartialReply, request: Request) -> None:
        attempt = partial.reply("")
        if attempt.usage.prompt:
            self._record_reply(replace(attempt, stop_reason=None), request, BROKEN_ATTEMPT)
