"""The model of one conversation: its limits, its window and its calls."""

import asyncio
import time
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import field, replace

from ..config.settings import ImagesMode
from ..context.request import Request
from ..context.window import MIN_OUTPUT_TOKENS, CutPrompts, LearnedWindow, Window, measure
from ..errors import ModelError, RequestRejected
from ..events import Accepted, CallFinished, Delta, Emit, Notice, Retrying, waiting
from ..lazy import dataclass
from ..models.base import Model, Reply, ReplyStream
from ..models.catalog import Limits
from .budget import BudgetMeter
from .model_call import BROKEN_ATTEMPT, PartialReply, reply_entry
from .model_roles import ModelRoles
from .repeated_text import RepeatedReply
from .request_in_flight import RequestInFlight
from .session_record import SessionRecord

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
    emit: Emit
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

    def share(self, other: "ModelSession") -> None:
        """Copy the limits, the learned window and the effort of another conversation with this
        model.
        """
        self.limits, self.effort = other.limits, other.effort
        self.learned_window = other.learned_window

    async def window(self) -> Window:
        """Return the size and level of the context. The first call requests the model's limits."""
        if self.limits is None:
            with waiting(self.emit, "checking the model's context window"):
                self.limits = await self.client.limits()
            if self.learned_window.size is None and self.limits.source != "setting":
                self.learned_window.size = self.client.gaps.window
        return self.current_window()

    def current_window(self) -> Window:
        """Return the size and level of the context without a request."""
        size = (self.limits or self.client.assumed_limits()).window
        window = measure(self.session.view, self.learned_window.limit(size))
        return replace(window, tokens=round(window.tokens * self.token_correction))

    def accept(self, prompt: int, estimate: int) -> None:
        """Note that the server accepted a request and counted `prompt` tokens. `estimate` is our
        unscaled count. Notify the user if this shows another window.
        """
        wrong = self.learned_window.accept(prompt)
        if prompt > (self.client.gaps.window or prompt):
            self.client.gaps.keep_window(None)
        if wrong:
            text = f"a request of {prompt:,} tokens was accepted: the window is larger "
            self.emit(Notice("info", f"{text}than the assumed {wrong:,} tokens"))
        elif cut_at := self._cut_prompts.add(estimate, prompt):
            self.learned_window.size = cut_at
            self.client.gaps.keep_window(cut_at)
            text = CUT_PROMPT.format(prompt=estimate, window=cut_at)
            self.emit(Notice("warning", text))
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
                    (self.emit if isinstance(delta, Notice) else emit)(delta)
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
            self.emit(Notice("warning", text))

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
            self.emit(CallFinished(entry.usage, entry.cost_usd, entry.stop_reason))

    def _record_failed_attempt(self, partial: PartialReply, request: Request) -> None:
        attempt = partial.reply("")
        if attempt.usage.prompt:
            self._record_reply(replace(attempt, stop_reason=None), request, BROKEN_ATTEMPT)
