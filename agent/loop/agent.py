"""A live session with what runs it: its features, its tool runner and the compaction engine.

`loop.turn` runs the turns of an agent. The entries before the first turn are collected once, in a
thread.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import field
from typing import Optional

from ...tools.job import end_all
from ...tools.system.take_turn import finish_despite_cancel, in_thread
from ..compaction.edits import ContextEditor
from ..compaction.engine import CompactionEngine
from ..errors import CtxagentError
from ..events import Notice, waiting
from ..lazy import dataclass
from ..session.entries import Entry
from ..session.project_record import update_record
from ..session.store import AGENTS
from .directories import new_directory_entries
from .dispatch import Features
from .live_session import LiveSession
from .tool_calls import ToolRunner


class StartupEntries:
    """Entries that are collected once, in a thread, and recorded once.

    The thread cannot be stopped. After an interrupt, the next call of `complete` waits for the same
    thread, so no result is lost.
    """

    def __init__(
        self, collect: Callable[[], Sequence[Entry]], record: Callable[[Entry], Entry]
    ) -> None:
        self._collect, self._record = collect, record
        self._collecting: Future[Sequence[Entry]] | None = None
        self._unrecorded: list[Entry] = []
        self.is_over = False

    async def complete(self) -> None:
        """Collect and record the entries. After an interrupt, a later call continues. Raises
        RecordError and the errors of `collect`.
        """
        if not (self.is_over or self._unrecorded):
            self._unrecorded = list(await self._found())
        while self._unrecorded:
            self._record(self._unrecorded[0])
            del self._unrecorded[0]
        self.is_over = True

    async def close(self) -> None:
        """Complete the collection if it has begun, ignoring errors."""
        if self._collecting or self._unrecorded:
            with suppress(CtxagentError, OSError):
                await self.complete()

    async def _found(self) -> Sequence[Entry]:
        if self._collecting is None:
            thread = ThreadPoolExecutor(1, "startup")
            self._collecting = thread.submit(self._collect)
            thread.shutdown(wait=False)
        done = asyncio.wrap_future(self._collecting)
        done.add_done_callback(lambda d: d.cancelled() or d.exception())  # errors are raised below
        await asyncio.wait([done])
        finished, self._collecting = self._collecting, None
        return finished.result()


@dataclass(eq=False)
class AgentState(LiveSession):
    """A live session with what runs it. The code that opens the session sets `runner`, and
    `compaction_host.attach_engine` sets `engine` and `edits`.
    """

    parent: Optional["AgentState"] = None  # of a subagent
    features: Features = field(init=False)
    runner: ToolRunner = field(init=False)
    engine: CompactionEngine = field(init=False)
    edits: ContextEditor = field(init=False)  # of the context, by the user
    has_user: bool = field(default=False, init=False)  # a user reads and answers in a front end
    is_open: bool = field(default=False, init=False)  # the opening is recorded
    turn_mode: str = field(init=False)  # the permission mode of the newest turn

    def __post_init__(self) -> None:
        super().__post_init__()
        self.features = Features(lambda event: self.emit(event))
        self.turn_mode = self.approval.mode
        self._startup = StartupEntries(
            lambda: [*self.features.first_entries(), *new_directory_entries(self)], self.record
        )
        self.listeners.append(self.features.recorded)

    async def begin(self) -> None:
        """Prepare the features, then record the opening and the first entries, once. Raises
        RecordError.
        """
        await self.prepare()
        self.open()
        await self.record_startup()

    async def prepare(self) -> None:
        """Let the features complete the list of tools, unless the opening is recorded."""
        if not self.is_open:
            await self.features.prepare()

    def open(self) -> None:
        """Record the opening of the session (model, system prompt, tools), once. Raises
        RecordError.
        """
        if not self.is_open:
            self.record_opening()
            self.is_open = True

    async def record_startup(self) -> None:
        """Record the first entries of the features, once. Raises RecordError."""
        if not self._startup.is_over:
            with waiting(self.emit, "reading the project's instructions"):
                await self._startup.complete()
            await self.features.session_started()

    async def finish(self) -> None:
        """Write the summary or checkpoint that the policy requires at the normal end of a session.
        Call this before `close`.
        """
        if self.is_open:
            await self.engine.finish()

    async def end_subagents(self) -> None:
        """Stop the running subagents, and wait until they have ended."""
        running = [*self.context.agents.values()]
        for each in running:
            each.stop()
        if running:
            await asyncio.wait({each.work for each in running})

    async def close(self) -> None:
        """End subagents and background jobs, close the model and release the session."""
        try:
            await self.close_except_model()
        finally:
            await self.model.roles.close()

    async def close_except_model(self) -> None:
        """Close everything except the model, which another conversation uses."""
        is_subagent = self.folder.parent.name == AGENTS
        try:
            await self.engine.close()
            await self.end_subagents()
            await end_all(self.context.jobs, self.context.sandbox)
            if self.context.sandbox and not is_subagent:
                await in_thread(self.context.sandbox.remove_empty)
            planted = self.runner.planted
            if planted and (found := await asyncio.to_thread(planted.last)):
                self.emit(Notice("warning", found.notice))
            if self.runner.change_tracker and not is_subagent:
                self.runner.change_tracker.close()
            await self._startup.close()
            await self.features.close()
        finally:
            save = self.resume_cache.save_at_close
            await finish_despite_cancel(asyncio.to_thread(save, self.log))
            self.log.close()
        if self.is_open and self.records_project and not is_subagent:
            cwd = self.context.cwd
            await asyncio.to_thread(update_record, self.log.path, cwd, with_commit=True)
        task = asyncio.current_task()
        cancelled = task and task.cancelling()  # `finish_despite_cancel` does not raise it
        if self.is_open and not cancelled:
            await self.features.session_ended()
