"""The model of one conversation: its limits, the size of its window, and calls of it."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from ..config.settings import ImagesMode
from ..context.compaction_block import COMPACTION, begins_with_block, compaction_in
from ..context.request import Request
from ..context.window import MIN_OUTPUT_TOKENS, LearnedWindow, Window, measure
from ..errors import RequestRejected
from ..events import CallFinished, Emit, Notice, waiting
from ..models.base import Model, Reply, ReplyStream
from ..models.catalog import Limits, known_model
from ..models.request_body import body
from ..models.server_gaps import GAPS, IMAGES
from ..session.entries import Assistant
from .budget import BudgetMeter
from .model_call import stream_reply
from .session_record import SessionRecord

MAX_REASON_CHARS = 200  # of a refusal, in the notice about what was learned from it
DEFAULT_REPLY_TOKENS = 32_000  # requested where no setting gives a number


@dataclass
class ModelSession:
    """A conversation's use of its model. Replies are recorded and paid from the budget."""

    client: Model
    session: SessionRecord
    budget_meter: BudgetMeter
    emit: Emit
    max_tokens: int | None = None  # of a reply
    effort: str | None = None
    overload_wait: float | None = None  # seconds for which a turn retries an overloaded server
    images_setting: ImagesMode = "auto"  # whether the model takes images
    # removes secrets from a reply
    clean_reply: Callable[[ReplyStream], ReplyStream] = lambda stream: stream
    limits: Limits | None = None  # None until the model was asked
    learned_window: LearnedWindow = field(default_factory=LearnedWindow)
    token_correction: float = 1.0  # the server's token count divided by our estimate
    # When this process last called each model for this conversation, in Unix time.
    last_calls: dict[str, float] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """The model's ID."""
        return self.client.id

    def change(self, client: Model) -> None:
        """Use another model from the next call on."""
        self.client, self.limits, self.learned_window = client, None, LearnedWindow()

    def share(self, other: "ModelSession") -> None:
        """Use the limits, the window and the effort of another conversation with this model."""
        self.limits, self.effort = other.limits, other.effort
        self.learned_window = other.learned_window

    async def window(self) -> Window:
        """Return the size and level of the context. The first call asks the model for its
        limits."""
        if self.limits is None:
            with waiting(self.emit, "asking how much the model takes"):
                self.limits = await self.client.limits()
        return self.current_window()

    def current_window(self) -> Window:
        """Return the size and level of the context without asking the model."""
        size = (self.limits or self.client.assumed_limits()).window
        window = measure(self.session.view, self.learned_window.limit(size))
        return replace(window, tokens=round(window.tokens * self.token_correction))

    def least_window(self) -> int:
        """Return the size in tokens that the model's window has at least: the largest prompt that
        it accepted, or the system prompt, the tools and a reply."""
        view = self.session.view
        fixed = view.size - sum(item.size for item in view.items)
        return max(self.learned_window.accepted, view.scaled(fixed) + MIN_OUTPUT_TOKENS)

    def reply_room(self) -> int:
        """Return the number of tokens for the next reply; 0 when nothing fits."""
        limits = self.limits or self.client.assumed_limits()
        wanted = self.max_tokens or DEFAULT_REPLY_TOKENS
        if limits.source == "server" or known_model(self.id):  # the limit is no assumption
            wanted = min(wanted, limits.output)
        return self.current_window().max_output(wanted)

    async def ask(self, request: Request, emit: Emit, purpose: str) -> Reply:
        """Send a request, pass the reply's deltas to `emit` and record the reply, also one that a
        cancellation cut off. Raises ModelError and RecordError."""
        if purpose == "turn":
            self.last_calls[self.id] = time.time()
            request = replace(request, overload_wait=self.overload_wait)
        gaps = self.client.gaps
        while True:
            request = replace(request, gaps=self._gaps_for(request))
            try:
                reply = await stream_reply(
                    self.client,
                    request,
                    emit,
                    self._keep,
                    purpose,
                    ratio=self.session.view.ratio,
                    clean=self.clean_reply,
                )
            except RequestRejected as refusal:
                gap = gaps.learn(refusal, body(request))
                if gap:
                    self._report_gap(gap, refusal)
                # The engine removes images, so that the log records it.
                if not gap or gap == IMAGES or request.compaction is not None:
                    raise
            else:
                gaps.prove()
                if request.compaction is not None:
                    self._learn_compaction(reply)
                return reply

    def has_compaction(self) -> bool:
        """Return True if, as far as is known, the server can summarise this conversation. It cannot
        if it gets an earlier compaction block as text."""
        row, gaps, summary = known_model(self.id), self.client.gaps, self.session.view.summary
        if row is None or not row.compaction or COMPACTION in gaps.names:
            return False
        return gaps.takes_compaction_block or summary is None or summary.block is None

    def takes_images(self) -> bool:
        """Return True if the model takes images: by the setting, else as far as is known."""
        if self.images_setting != "auto":
            return self.images_setting == "on"
        return IMAGES not in self.client.gaps.names

    def _gaps_for(self, request: Request) -> tuple[str, ...]:
        """Return what a request must leave out for this server."""
        gaps = self.client.gaps
        lacks = (
            request.compaction is None
            and begins_with_block(request.messages)
            and not gaps.takes_compaction_block
        )
        return tuple(dict.fromkeys((*gaps.names, COMPACTION))) if lacks else gaps.names

    def _learn_compaction(self, reply: Reply) -> None:
        """Note whether the server summarised, or replied as if it had not been asked to."""
        if compaction_in(reply.content):
            self.client.gaps.see(COMPACTION)
        elif any(block["type"] != COMPACTION for block in reply.content):
            self.client.gaps.add(COMPACTION)

    def _report_gap(self, gap: str, refusal: RequestRejected) -> None:
        """Report what the server does not take; a warning where the server then misses content."""
        if gap == IMAGES and self.images_setting != "auto":
            return
        reason = refusal.message[:MAX_REASON_CHARS]
        text = f"{self.id} takes {GAPS[gap]}: requests go without from now on ({reason})"
        self.emit(Notice("warning" if gap == IMAGES else "info", text))

    def _keep(self, reply: Assistant) -> None:
        self.budget_meter.pay(reply.cost_usd or 0.0)
        self.session.record(reply)
        if reply.purpose == "turn":
            self.emit(CallFinished(reply.usage, reply.cost_usd, reply.stop_reason))
