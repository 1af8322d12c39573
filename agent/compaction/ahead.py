"""Ahead: the summary that is written in the background, so that nobody waits for it when it is due.

One at a time. It is of use as long as what it stands for is in the view and it would still leave
room enough; when it no longer would, another is asked for, not often, because each costs a call.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from ..errors import RecordError
from ..record.entries import Summary
from .host import Host
from .summarize import Cut
from .writer import Draft

AGAIN = 0.10  # of the window: what the context grows by before another is asked for
MOST = 2  # asked for between two summaries


@dataclass(frozen=True, slots=True)
class Prepared:
    """What is being written, for the span of `cut`; `size` is that of the context then."""

    cut: Cut
    size: int
    task: "asyncio.Task[Draft]"
    previous: Summary | None


@dataclass(slots=True)
class Ahead:
    """One conversation's. `helps` says whether a summary at a cut would leave room enough."""

    host: Host
    helps: Callable[[Cut], bool]
    _prepared: Prepared | None = None
    _asked: int = 0  # since the newest summary

    @property
    def pending(self) -> bool:
        """Whether it is still being written."""
        return self._prepared is not None and not self._prepared.task.done()

    def wanted(self, cut: Cut) -> bool:
        """Whether a summary at this cut is to be asked for now."""
        if not self._stands():
            return True
        window, prepared = self.host.measured(), self._prepared
        grown = window.tokens - (prepared.size if prepared else 0)
        again = self._asked < MOST and grown >= AGAIN * window.size
        return again and self.usable() is None and self.helps(cut)

    def begin(self, cut: Cut, draft: Coroutine[Any, Any, Draft]) -> None:
        """Have it written while the agent works."""
        self.discard()
        self._asked += 1
        size, summary = self.host.measured().tokens, self.host.view.summary
        self._prepared = Prepared(cut, size, asyncio.ensure_future(draft), summary)

    def usable(self) -> Prepared | None:
        """It, if it still stands and would help."""
        prepared = self._prepared
        return prepared if prepared and self._stands() and self.helps(prepared.cut) else None

    def check(self) -> None:
        """Raises RecordError when what was said for it could not be recorded."""
        task = self._prepared.task if self._prepared else None
        error = task.exception() if task and task.done() and not task.cancelled() else None
        if isinstance(error, RecordError):
            self.discard()
            raise error

    def applied(self) -> None:
        """A summary stands: this one, or another."""
        self._asked = 0

    def discard(self) -> None:
        """Stop; what it has cost so far is recorded by the model's side."""
        prepared, self._prepared = self._prepared, None
        if prepared is None:
            return
        if not prepared.task.done():
            prepared.task.cancel()
            prepared.task.add_done_callback(_retrieve)
        else:
            _retrieve(prepared.task)

    async def close(self) -> None:
        """Stop, and wait until it has let go."""
        if self._prepared is not None:
            task = self._prepared.task
            self.discard()
            await asyncio.gather(task, return_exceptions=True)

    def _stands(self) -> bool:
        """Whether it covers the view as it is, and was or will be written."""
        prepared, view = self._prepared, self.host.view
        if prepared is None or view.summary is not prepared.previous:
            return False
        if prepared.task.done() and (prepared.task.cancelled() or prepared.task.exception()):
            return False
        return all(view.position(item.seq) is not None for item in prepared.cut.evicted)


def _retrieve(task: "asyncio.Task[Draft]") -> None:
    """Look at how a task ended that nobody waits for any more, or asyncio would complain."""
    if not task.cancelled():
        task.exception()
