"""The summary that is written in the background, so that nobody waits when it is due.

There is one at a time. It is usable as long as all that it stands for is in the view and it would
still leave enough room. When it would not, another one is asked for, but not often, because each
costs a call.
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

MIN_GROWTH_SHARE = 0.10  # of the window: what the context grows by before another is asked for
MAX_PREPARED_BETWEEN_SUMMARIES = 2


@dataclass(frozen=True, slots=True)
class PreparedSummary:
    """A summary that is being written, or has been written, for the span of `cut`."""

    cut: Cut
    context_tokens: int  # when it was begun
    task: "asyncio.Task[SummaryDraft]"
    previous: Summary | None  # the summary that stood in the view then


@dataclass(slots=True)
class BackgroundSummary:
    """The prepared summary of one conversation, if there is one."""

    host: EngineHost
    leaves_room: Callable[[Cut], bool]  # whether a summary at a cut would leave enough room
    _prepared: PreparedSummary | None = None
    _attempts: int = 0  # since the newest summary

    @property
    def is_pending(self) -> bool:
        """Whether the summary is still being written."""
        return self._prepared is not None and not self._prepared.task.done()

    @property
    def is_ready(self) -> bool:
        """Whether a summary has been written that can still be applied."""
        return not self.is_pending and self.usable_summary() is not None

    async def wait(self) -> None:
        """Wait until nothing is being written."""
        if self._prepared is not None:
            await asyncio.wait([self._prepared.task])

    def is_wanted(self) -> bool:
        """Return whether a summary should be asked for now if it leaves enough room: there is none,
        or the context has grown and the one that there is would leave too little."""
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
        """Return whether a summary at this cut should be asked for now."""
        has_one = self._prepared is not None and self._is_current(self._prepared)
        return self.is_wanted() and not (has_one and not self.leaves_room(cut))

    def start(self, cut: Cut, draft: Coroutine[Any, Any, SummaryDraft]) -> None:
        """Run `draft` while the agent works; it replaces an earlier prepared summary."""
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
        """Raise the RecordError with which the background task ended, if it did."""
        task = self._prepared.task if self._prepared else None
        error = task.exception() if task and task.done() and not task.cancelled() else None
        if isinstance(error, RecordError):
            self.discard()
            raise error

    def allow_attempts(self) -> None:
        """Allow new attempts, after a summary was applied."""
        self._attempts = 0

    def discard(self) -> None:
        """Stop writing and forget the summary. What it has cost so far is recorded."""
        prepared, self._prepared = self._prepared, None
        if prepared is None:
            return
        if not prepared.task.done():
            prepared.task.cancel()
            prepared.task.add_done_callback(_retrieve_exception)
        else:
            _retrieve_exception(prepared.task)

    async def close(self) -> None:
        """Stop writing, and wait until the task has ended."""
        if self._prepared is not None:
            task = self._prepared.task
            self.discard()
            await asyncio.gather(task, return_exceptions=True)

    def _is_current(self, prepared: PreparedSummary) -> bool:
        """Return whether the view has all that the summary covers, and its task has not failed."""
        view = self.host.view
        if view.summary is not prepared.previous:
            return False
        if prepared.task.done() and (prepared.task.cancelled() or prepared.task.exception()):
            return False
        return all(view.position(item.seq) is not None for item in prepared.cut.evicted)


def _retrieve_exception(task: "asyncio.Task[SummaryDraft]") -> None:
    """Look at the exception of a task that nobody waits for, or asyncio would complain."""
    if not task.cancelled():
        task.exception()
