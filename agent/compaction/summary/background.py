"""Write a summary in the background, so that it is ready when it is due, and decide when it pays.

At most one prepared summary exists. It is usable while all items that it covers are in the view and
it would leave enough room. Otherwise another is requested, at a limited rate, since each costs a
call.

Every call reads the old part of the context, long before a large window is full. The number of
future calls is unknown, so the engine uses a break-even rule, as for clearing
(`layers/break_even.py`). A summary pays once the reads have cost as much as the summary. Its price
is the call that writes it, its own text, the rewrite of the remaining context, and the expected
cost of content that is needed again.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from ...errors import RecordError
from ...lazy import dataclass
from ...session.entries import Summary
from ..host import EngineHost
from .request import Cut
from .writer import SummaryDraft

OUTPUT_PRICE = 5.0  # price of output as a multiple of input, for models without a known price
REPLY_SHARE = 0.35  # average length of a summary, as a share of its cap


@dataclass(frozen=True, slots=True)
class SummaryCost:
    """The costs for one decision about a summary, in input tokens."""

    reading: float  # reading the part that the summary would replace, once
    price: float  # making the summary


@dataclass(slots=True)
class SummaryAccount:
    """The cost of reading the old part since the last summary, in input tokens."""

    spent: float = 0.0

    def charge(self, cost: SummaryCost) -> None:
        """Add the cost of one read, before a call."""
        self.spent += max(0.0, cost.reading)

    def pays(self, cost: SummaryCost) -> bool:
        """Return True if reading has cost at least as much as a summary."""
        return cost.reading > 0 and self.spent >= cost.price

    def calls_left(self, cost: SummaryCost) -> int | None:
        """Return the number of calls at this cost until a summary pays; None if never."""
        if cost.reading <= 0:
            return None
        return max(0, -int((self.spent - cost.price) // cost.reading))


def output_price(host: EngineHost) -> float:
    """Return the price of an output token, as a multiple of an input token's."""
    if (speed := host.token_seconds()) is not None:
        context = host.current_window().tokens
        return speed.output_at(context) / speed.prefill_at(context)
    read, written = host.call_cost_usd(1_000, 0), host.call_cost_usd(0, 1_000)
    if not read or written is None:
        return OUTPUT_PRICE
    return host.cache_terms().read * written / read


MIN_GROWTH_SHARE = 0.10  # of the window: growth of the context before another summary
MAX_PREPARED_BETWEEN_SUMMARIES = 2


@dataclass(frozen=True, slots=True)
class PreparedSummary:
    """A summary of the span of `cut` that is being written or is finished."""

    cut: Cut
    context_tokens: int  # at its start
    task: "asyncio.Task[SummaryDraft]"
    previous: Summary | None  # the view's summary at its start


@dataclass(slots=True)
class BackgroundSummary:
    """The prepared summary of one conversation, if any."""

    host: EngineHost
    leaves_room: Callable[[Cut], bool]  # True if a summary at a cut leaves enough room
    _prepared: PreparedSummary | None = None
    _attempts: int = 0  # since the newest summary

    @property
    def is_pending(self) -> bool:
        """True while the summary is being written."""
        return self._prepared is not None and not self._prepared.task.done()

    @property
    def is_ready(self) -> bool:
        """True if a finished summary can still be applied."""
        return not self.is_pending and self.usable_summary() is not None

    async def wait(self) -> None:
        """Wait until no summary is being written."""
        if self._prepared is not None:
            await asyncio.wait([self._prepared.task])

    def is_wanted(self) -> bool:
        """Return True if a new summary should be requested. That is the case if there is none, or
        if the context has grown and the prepared summary no longer leaves enough room.
        """
        if self._prepared is None or not self._is_current(self._prepared):
            return True
        window = self.host.current_window()
        growth = window.tokens - self._prepared.context_tokens
        return (
            self._attempts < MAX_PREPARED_BETWEEN_SUMMARIES
            and growth >= MIN_GROWTH_SHARE * window.size
            and self.usable_summary() is None
        )

    def should_start(self, cut: Cut) -> bool:
        """Return True if a summary at this cut should be requested now."""
        has_one = self._prepared is not None and self._is_current(self._prepared)
        return self.is_wanted() and not (has_one and not self.leaves_room(cut))

    def start(self, cut: Cut, draft: Coroutine[Any, Any, SummaryDraft]) -> None:
        """Run `draft` in the background. It replaces an earlier prepared summary."""
        self.discard()
        self._attempts += 1
        self._prepared = PreparedSummary(
            cut,
            self.host.current_window().tokens,
            asyncio.ensure_future(draft),
            self.host.view.summary,
        )

    def usable_summary(self) -> PreparedSummary | None:
        """Return the prepared summary if it can still be applied, else None."""
        prepared = self._prepared
        if prepared and self._is_current(prepared) and self.leaves_room(prepared.cut):
            return prepared
        return None

    def raise_record_error(self) -> None:
        """Raise the RecordError of the background task, if it ended with one."""
        task = self._prepared.task if self._prepared else None
        error = task.exception() if task and task.done() and not task.cancelled() else None
        if isinstance(error, RecordError):
            self.discard()
            raise error

    def allow_attempts(self) -> None:
        """Allow new attempts, after a summary was applied."""
        self._attempts = 0

    def discard(self) -> None:
        """Cancel and drop the prepared summary. Its cost so far is recorded."""
        prepared, self._prepared = self._prepared, None
        if prepared is None:
            return
        if not prepared.task.done():
            prepared.task.cancel()
            prepared.task.add_done_callback(_retrieve_exception)
        else:
            _retrieve_exception(prepared.task)

    async def close(self) -> None:
        """Cancel the summary, and wait until its task has ended."""
        if self._prepared is not None:
            task = self._prepared.task
            self.discard()
            await asyncio.gather(task, return_exceptions=True)

    def _is_current(self, prepared: PreparedSummary) -> bool:
        """Return True if the view has all items of the span and the task has not failed."""
        view = self.host.view
        if view.summary is not prepared.previous:
            return False
        if prepared.task.done() and (prepared.task.cancelled() or prepared.task.exception()):
            return False
        return all(view.position(item.seq) is not None for item in prepared.cut.evicted)


def _retrieve_exception(task: "asyncio.Task[SummaryDraft]") -> None:
    """Retrieve the exception of an abandoned task, to prevent an asyncio warning."""
    if not task.cancelled():
        task.exception()
