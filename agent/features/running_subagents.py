"""A running subagent: its progress, messages for it, and how to stop it."""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import field, replace

from ...tools.base import Output
from ..events import (
    AgentProgress,
    AgentStarted,
    CallStarted,
    Compacted,
    Emit,
    Event,
    Notice,
    Retrying,
    TextDelta,
    ToolStarted,
    Waiting,
)
from ..lazy import dataclass
from ..loop.agent import AgentState
from ..session.entries import SubagentRun

REPORT_INTERVAL_S = 0.3
MAX_DOING_CHARS = 120


@dataclass(eq=False, slots=True)
class RunningSubagent:
    """A subagent that runs or waits for a free slot.

    It passes notices and compactions to the parent's front end at once. All other progress is
    reported at intervals.
    """

    run: SubagentRun  # its entry at the start
    description: str  # short description of this run
    emit: Emit
    in_background: bool  # True if no call waits for it
    changes_files: bool
    work: "asyncio.Task[Output]" = field(init=False)
    child: AgentState | None = None
    is_recorded: bool = False  # whether `run` is in the parent's log
    is_stopped: bool = False
    takes_messages: bool = True
    messages: deque[str] = field(default_factory=deque)  # delivered before its next call
    step: Callable[[], object] | None = None  # interrupts its current step
    last_call: str = ""  # its last tool call, on one line
    began: float = field(default_factory=time.monotonic)
    _calls: int = 0
    _tools: int = 0
    _doing: str = ""
    _last_report: float = 0.0
    _next: asyncio.TimerHandle | None = None

    @property
    def id(self) -> str:
        return self.run.id

    @property
    def seconds(self) -> float:
        """Seconds since it was started, including the wait for a slot."""
        return time.monotonic() - self.began

    @property
    def started(self) -> AgentStarted:
        """The event for its start, its continuation, or its move to the background."""
        return AgentStarted(self.id, self.run.type, self.description, self.in_background)

    def stop(self) -> None:
        """Interrupt only this subagent. Its work so far is kept."""
        self.is_stopped = True
        if self.step is not None:
            self.step()

    async def queue_message(self, message: str) -> bool:
        """Queue a message for its next model call and return True. If it no longer takes messages,
        wait for its end and return False.
        """
        if self.takes_messages:
            self.messages.append(message)
            return True
        await self.wait()
        return False

    async def wait(self) -> None:
        """Wait for its end."""
        await asyncio.wait({self.work})

    def next_message(self) -> str | None:
        """Remove and return the next message, or None."""
        return self.messages.popleft() if self.messages else None

    def show(self, event: Event) -> None:
        """Process an event of the subagent."""
        if isinstance(event, Notice | Compacted):
            self.emit(replace(event, agent=self.id))
        elif isinstance(event, CallStarted):
            self._calls += 1
            self._report("thinking")
        elif isinstance(event, ToolStarted):
            self._tools += 1
            self.last_call = " ".join(f"{event.name} {event.title}".split())[:MAX_DOING_CHARS]
            self._report(self.last_call)
        elif isinstance(event, TextDelta):
            self._report("writing")
        elif isinstance(event, Waiting) and event.what and self._calls:
            self._report(event.what)
        elif isinstance(event, Retrying):
            self._report(str(event)[:MAX_DOING_CHARS])

    def cancel_report(self) -> None:
        """Cancel the pending report."""
        if self._next is not None:
            self._next.cancel()

    def _report(self, doing: str) -> None:
        """Schedule a report one interval after the last one, with the newest activity by then."""
        self._doing = doing
        if self._next is None:
            loop = asyncio.get_running_loop()
            self._next = loop.call_at(self._last_report + REPORT_INTERVAL_S, self._emit_report)

    def _emit_report(self) -> None:
        self._next, self._last_report = None, asyncio.get_running_loop().time()
        if self.child is not None:
            now = self.child.model.current_window()
            done = self._calls, self._tools
            self.emit(AgentProgress(self.id, *done, now.tokens, now.level, self._doing))
