"""Run subagents: conversations that a conversation starts, each with its own log, view, window and
compaction.

A call of Task opens an `AgentState` in `agents/<id>/` of the session's folder and runs one turn.
The subagent has the permissions of its parent at that moment, and its cost counts there. The parent
gets the answer, or the partial result after a failure, an interrupt or a limit. An entry at the
start and another at the end keep work and sums when the process is killed.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...tools.base import Interrupted, Output, SubagentTask, Tool
from ...tools.system.shorten import cut_after
from ...tools.system.tasks import finish_despite_cancel
from ...tools.task import TaskTool
from ..compaction.checkpoint import current_document
from ..compaction.document import render
from ..compaction.summary.request import pinned_section
from ..errors import CtxagentError, RecordError, ToolError
from ..events import (
    AgentFinished,
    AgentProgress,
    AgentStarted,
    Answer,
    Ask,
    CallStarted,
    Compacted,
    Emit,
    Event,
    Notice,
    Question,
    Retrying,
    TextDelta,
    ToolStarted,
    TurnFinished,
    Waiting,
)
from ..launch import Budget
from ..lazy import dataclass
from ..loop.agent import AgentState
from ..loop.budget import BudgetMeter
from ..loop.feature import Feature
from ..loop.file_changes import MAX_CHANGES_IN_RESULT
from ..loop.session_handle import SessionHandle
from ..loop.tool_calls import ToolRunner
from ..loop.turn import run_turn
from ..session.archive import SUMMARY_NAME, write_archive_file
from ..session.entries import SubagentRun
from ..session.subagent_logs import (
    STATUS_OF_TURN,
    HandOver,
    changes_since,
    earlier_work,
    ledger_known_to_parent,
    qualify_refs,
    subagent_log,
    touched_files,
)
from ..session.totals import Counts
from .subagent_types import AgentType, names_and_descriptions

MAX_PARALLEL_SUBAGENTS = 4
MAX_CALLS_PER_RUN = 400  # of the model; the subagent can be resumed after that
REPORT_INTERVAL_S = 0.3
MAX_DENIALS_SHOWN = 10
MAX_SUMMARY_ANSWER_CHARS = 1_000  # of the answer, repeated in the summary

STOPPED = "{id} was stopped before it had begun; nothing of it was done."
REASONS = {
    "done": "",
    "error": "The subagent failed: {why}",
    "interrupted": "The subagent was interrupted before it had finished.",
    "limit": "The subagent was ended by a limit before it had finished: {why}",
}


@dataclass(frozen=True, slots=True)
class SubagentSpec:
    """The options with which a subagent is opened."""

    id: str
    type: AgentType
    log: Path
    model: str | None  # an id; None for that of the parent
    prior: str  # what an earlier subagent hands over
    emit: Emit
    ask: Ask | None
    budget_meter: BudgetMeter


OpenSubagent = Callable[[SubagentSpec], AgentState]  # raises CtxagentError


class SubagentsFeature(Feature):
    """Runs the subagents of one conversation."""

    name = "subagents"

    def __init__(
        self,
        handle: SessionHandle,
        runner: ToolRunner,
        types: Sequence[AgentType],
        opener: OpenSubagent,
    ) -> None:
        super().__init__(handle)
        self._runner, self._opener = runner, opener
        self._types = {each.name: each for each in types}
        self._taken: set[str] = set()
        self._places, self._start = asyncio.Semaphore(MAX_PARALLEL_SUBAGENTS), asyncio.Lock()

    @property
    def types(self) -> Sequence[AgentType]:
        """The types of subagents that this conversation can start."""
        return [*self._types.values()]

    def tools(self) -> list[Tool[Any]]:
        """Return the tool Task."""
        return [TaskTool(names_and_descriptions(self.types), self.run)]

    async def run(self, task: SubagentTask) -> Output:
        """Run one subagent and return its answer.

        Raises ToolError for a task that cannot begin, and Interrupted with the partial result.
        """
        kind = self._type_of(task)
        id = task.resume or f"{kind.name}-{secrets.token_hex(3)}"
        if id in self._taken:
            raise ToolError(f"{id} is at work already; its answer comes with that call.")
        if not self._taken:
            # They belong to the event loop that they are used in.
            self._places, self._start = asyncio.Semaphore(MAX_PARALLEL_SUBAGENTS), asyncio.Lock()
        self._taken.add(id)
        try:
            async with self._place(id) as stopped:
                async with self._start:  # in the spec of their calls
                    if self._changes(kind):
                        await self.handle.snapshot()
                if stopped.is_set():
                    raise ToolError(STOPPED.format(id=id))
                return await self._run(id, kind, task)
        finally:
            self._taken.discard(id)

    @asynccontextmanager
    async def _place(self, id: str) -> AsyncIterator[asyncio.Event]:
        """Wait for one of the places for running subagents.

        Yields an event that is set when the subagent is stopped before it begins. Raises ToolError
        if it is stopped before there is a place.
        """
        stopped, places, agents = asyncio.Event(), self._places, self.handle.context.agents
        waiting = asyncio.ensure_future(places.acquire())

        def stop() -> None:
            stopped.set()
            waiting.cancel()

        agents[id] = stop
        try:
            await waiting
            yield stopped
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if not waiting.cancelled() or (current is not None and current.cancelling()):
                raise
            raise ToolError(STOPPED.format(id=id)) from None
        finally:
            agents.pop(id, None)
            if waiting.done() and not waiting.cancelled():
                places.release()

    async def _run(self, id: str, kind: AgentType, task: SubagentTask) -> Output:
        parent, began = self.handle, time.monotonic()
        known = parent.ledger.agents.get(id)
        progress = _Progress(id, parent.emit)
        prior = self._prior(kind, task)
        child = self._open(id, kind, task, progress, prior)
        told, before = ledger_known_to_parent(child.log.entries(), known), child.totals.all
        agent = SubagentRun(
            id=id,
            type=kind.name,
            prompt=task.prompt,
            log=str(child.log.path.relative_to(parent.folder)),
            description=(known and known.description) or task.description,
            told=known.told if known else 0,
        )
        parent.record(before.recorded_in(agent))
        parent.emit(AgentStarted(id, kind.name, task.description))
        finished = await self._worked(id, child, task.prompt)
        progress.end()
        last = child.log.last_seq
        finished = replace(finished, text=qualify_refs(finished.text, child.log.path, last))
        agent = replace(
            agent,
            status=STATUS_OF_TURN[finished.status],
            answer=finished.text,
            told=last,
            files=touched_files(child.ledger),
        )
        used = child.totals.all - before
        parent.record(child.totals.all.recorded_in(agent))
        parent.emit(
            AgentFinished(
                id,
                STATUS_OF_TURN[finished.status],
                time.monotonic() - began,
                used.usage.to_json(),
                used.cost_usd,
            )
        )
        rows = changes_since(told, child.ledger, id)
        output = _with_source(self._output(child, agent, finished, used, rows), prior)
        current = asyncio.current_task()
        if current is not None and current.cancelling():  # the parent's turn is, not this one alone
            raise Interrupted(output)
        return output

    def _output(
        self,
        child: AgentState,
        agent: SubagentRun,
        finished: TurnFinished,
        used: Counts,
        rows: list[dict[str, Any]],
    ) -> Output:
        """Return the output for the parent, and count the changes of the subagent as known."""
        self.handle.denials.add(*child.handle.denials)
        if self._runner.change_tracker is not None:
            self._runner.change_tracker.credit(agent.id, [row["path"] for row in rows])
        denied = list(
            dict.fromkeys(f"{d.tool} {d.title}: {d.reason}" for d in child.handle.denials)
        )
        details = {
            "agent": agent.id,
            "type": agent.type,
            "status": agent.status,
            "log": str(child.log.path),
            "calls": used.calls,
            "tool_calls": used.tool_calls,
            "usage": used.usage.to_json(),
            "cost_usd": used.cost_usd,
            "compaction": used.compaction,
        }
        details |= {"denied": denied} if denied else {}
        details |= {"changes": rows[:MAX_CHANGES_IN_RESULT]} if rows else {}
        details |= (
            {"changes_left_out": len(rows) - MAX_CHANGES_IN_RESULT}
            if len(rows) > MAX_CHANGES_IN_RESULT
            else {}
        )
        return Output(
            _answer_text(child, agent, finished, used, denied),
            details,
            is_error=agent.status != "done",
        )

    async def _worked(self, id: str, child: AgentState, prompt: str) -> TurnFinished:
        """Run one turn of a subagent and close it in any case."""
        work = asyncio.ensure_future(run_turn(child, prompt, verbatim=True))
        self.handle.context.agents[id] = work.cancel
        try:
            finished = await work
        except asyncio.CancelledError:  # it had not begun
            finished = TurnFinished("interrupted", "")
        except RecordError as error:
            finished = TurnFinished("error", "", {"message": str(error)})
        finally:
            del self.handle.context.agents[id]
            shared = child.model.client is self.handle.model.client
            await finish_despite_cancel(child.leave() if shared else child.close())
        self._summarize(child, finished)
        return finished

    def _open(
        self,
        id: str,
        kind: AgentType,
        task: SubagentTask,
        progress: "_Progress",
        prior: HandOver | None,
    ) -> AgentState:
        parent = self.handle
        spec = SubagentSpec(
            id=id,
            type=kind,
            log=subagent_log(parent.folder, id),
            model=task.model or kind.model,
            prior=prior.text if prior else "",
            emit=progress.show,
            ask=self._asking(id),
            budget_meter=BudgetMeter(
                Budget(calls=MAX_CALLS_PER_RUN),
                within=parent.budget_meter,
                hint="Task with resume goes on.",
            ),
        )
        if task.resume is not None and not spec.log.is_file():
            raise ToolError(f"The log of {id} is gone: {spec.log}. Start a new subagent.")
        try:
            progress.child = self._opener(spec)
        except CtxagentError as error:
            raise ToolError(f"No subagent could be started: {error}") from error
        return progress.child

    def _prior(self, kind: AgentType, task: SubagentTask) -> HandOver | None:
        """Return the hand-over for a new subagent. The log of a resumed one has it already."""
        if task.resume is not None:
            return None
        folder, ledger = self.handle.folder, self.handle.ledger
        return earlier_work(folder, ledger, kind.name, task.description, task.prompt)

    def _asking(self, id: str) -> Ask | None:
        ask = self.handle.ask
        if ask is None:
            return None

        async def asked(question: Question) -> Answer | None:
            return await ask(replace(question, agent=id))

        return asked

    def _type_of(self, task: SubagentTask) -> AgentType:
        name, agents = task.type, self.handle.ledger.agents
        if task.resume is not None:
            if task.resume not in agents:
                raise ToolError(
                    f"There is no subagent {task.resume!r} in this session. "
                    f"There are: {', '.join(agents) or 'none'}."
                )
            name = agents[task.resume].type
            if task.type not in (None, name):
                raise ToolError(
                    f"{task.resume} is of type {name}, not {task.type}: give type {name} or "
                    "none with resume, or leave resume out to start a new one."
                )
        if name not in self._types:
            raise ToolError(
                f"There is no type {name!r} of subagent. The types: {', '.join(self._types)}."
            )
        return self._types[name]

    def _changes(self, kind: AgentType) -> bool:
        """Return True if a subagent of this type can change files."""
        tools = kind.of(self.handle.tools)
        return not kind.looks_only and any(tool.effect in ("edit", "run") for tool in tools)

    def _summarize(self, child: AgentState, finished: TurnFinished) -> None:
        """Write the summary for a later subagent with the same work, without a model."""
        if not child.view.items:
            return
        document = current_document(child.engine.host)
        if STATUS_OF_TURN[finished.status] == "done":  # no next steps are left
            answer = cut_after(finished.text, MAX_SUMMARY_ANSWER_CHARS, " …")
            document = replace(document, done=(*document.done, answer), next_steps=())
        text = f"{render(document)}{pinned_section(child.ledger.pins)}"
        text = qualify_refs(text, child.log.path, child.log.last_seq)
        try:
            write_archive_file(child.folder / SUMMARY_NAME, text)
        except RecordError as error:  # all of it is in the log
            self.handle.emit(Notice("warning", error.message))


class _Progress:
    """Reports a subagent to the front end of its parent: notices and compactions at once, the rest
    in a report at intervals."""

    def __init__(self, id: str, emit: Emit) -> None:
        self.child: AgentState | None = None
        self._id, self._emit = id, emit
        self._calls = self._tools = 0
        self._doing = ""
        self._told = 0.0
        self._next: asyncio.TimerHandle | None = None

    def show(self, event: Event) -> None:
        if isinstance(event, Notice | Compacted):
            self._emit(replace(event, agent=self._id))
        elif isinstance(event, CallStarted):
            self._calls += 1
            self._report("thinking")
        elif isinstance(event, ToolStarted):
            self._tools += 1
            self._report(" ".join(f"{event.name} {event.title}".split())[:120])
        elif isinstance(event, TextDelta):
            self._report("writing")
        elif isinstance(event, Waiting) and event.what and self._calls:
            self._report(event.what)
        elif isinstance(event, Retrying):
            self._report(str(event)[:120])

    def end(self) -> None:
        """Drop the report that is still to come."""
        if self._next is not None:
            self._next.cancel()

    def _report(self, doing: str) -> None:
        """Schedule a report, one period after the last: by then more may have happened."""
        self._doing = doing
        if self._next is None:
            loop = asyncio.get_running_loop()
            self._next = loop.call_at(self._told + REPORT_INTERVAL_S, self._tell)

    def _tell(self) -> None:
        self._next, self._told = None, asyncio.get_running_loop().time()
        if self.child is not None:
            now = self.child.model.current_window()
            done = self._calls, self._tools
            self._emit(AgentProgress(self._id, *done, now.tokens, now.level, self._doing))


def _with_source(output: Output, prior: HandOver | None) -> Output:
    """Add the name of the earlier subagent whose summary this one began with, if there was one."""
    if prior is None:
        return output
    text = f'{output.text}\n[Started with the summary of {prior.id} ("{prior.description}")]'
    return replace(output, text=text, details={**output.details, "handed_over_by": prior.id})


def _answer_text(
    child: AgentState,
    agent: SubagentRun,
    finished: TurnFinished,
    used: Counts,
    denied: Sequence[str],
) -> str:
    """Return the answer for the parent: how the subagent ended, its text, how to resume it."""
    why = (finished.error or {}).get("message", "").split("\n")[0]
    parts = [REASONS[agent.status].format(why=why)]
    if agent.status != "done":
        parts.append(f"Its last words:\n{finished.text}" if finished.text.strip() else "")
        summary = child.folder / SUMMARY_NAME
        parts.append(f"What it had done: {summary}" if summary.is_file() else "")
    else:
        parts.append(finished.text)
    if denied:
        parts.append(
            "Not allowed to it:\n" + "\n".join(f"- {each}" for each in denied[:MAX_DENIALS_SHOWN])
        )
    count = f"{used.calls} calls of the model, {used.tool_calls} of tools"
    parts.append(f"[{agent.id}: {agent.status}, {count}; resume with this id goes on with it]")
    return "\n\n".join(filter(None, parts))
