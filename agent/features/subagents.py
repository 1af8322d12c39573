"""Run subagents: conversations started by a conversation, each with its own log, view, window and
compaction.

A call of Task opens an `AgentState` in `agents/<id>/` of the session's folder and runs one turn in
an asyncio task. The call waits for the turn, or the subagent runs in the background and the model
is notified of its end before a later call. The subagent has its parent's current permissions, and
its cost counts for the parent. The parent gets the answer, or the partial result after a failure,
an interrupt or a limit. An entry at the start and one at the end preserve work and totals if the
process is killed.
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
from ...tools.system.phrasing import cut_after
from ...tools.system.take_turn import finish_despite_cancel
from ...tools.task import TaskTool
from ..compaction.checkpoint import current_document
from ..compaction.document import render
from ..compaction.summary.request import pinned_section
from ..errors import CtxagentError, RecordError, ToolError
from ..events import AgentFinished, Answer, Ask, Emit, Notice, Question, TurnFinished
from ..extensions.plugins import part_named
from ..launch import Budget
from ..lazy import dataclass
from ..loop.agent import AgentState
from ..loop.budget import BudgetMeter
from ..loop.file_changes import MAX_CHANGES_IN_RESULT
from ..loop.interface import Feature, Turn
from ..loop.live_session import LiveSession
from ..loop.tool_calls import ToolRunner
from ..loop.turn import run_turn
from ..session.archive import SUMMARY_NAME, write_archive_file
from ..session.entries import Note, SubagentRun, User
from ..session.log import LOG_NAME
from ..session.store import AGENTS
from ..session.subagent_logs import (
    STATUS_OF_TURN,
    HandOver,
    SubagentStatus,
    changes_since,
    earlier_work,
    ledger_known_to_parent,
    qualify_refs,
    subagent_log,
    touched_files,
)
from ..session.totals import Counts
from .running_subagents import RunningSubagent
from .subagent_types import AgentType, names_and_descriptions

MAX_PARALLEL_SUBAGENTS = 4
MAX_CALLS_PER_RUN = 400  # model calls; after that the subagent can be resumed
MAX_DENIALS_SHOWN = 10
MAX_SUMMARY_ANSWER_CHARS = 1_000  # of the answer in the summary

STOPPED = "{id} was stopped before it had begun; nothing of it was done."
WORKS = "[{id} works in the background; you are told when it ends. resume gives it a message]"
SENT = "[the user sent {id} to the background, where it goes on; you are told when it ends]"
GIVEN = "[{id} is at work and gets this before its next call; you are told when it ends]"
REASONS = {
    "done": "",
    "error": "The subagent failed: {why}",
    "interrupted": "The subagent was interrupted before it had finished.",
    "limit": "The subagent was ended by a limit before it had finished: {why}",
}


@dataclass(frozen=True, slots=True)
class SubagentSpec:
    """The options for opening a subagent."""

    id: str
    type: AgentType
    log: Path
    model: str | None  # ID or SMALL; None for the parent's model
    prior: str  # hand-over from an earlier subagent
    emit: Emit
    ask: Ask | None
    budget_meter: BudgetMeter


OpenSubagent = Callable[[SubagentSpec], AgentState]  # raises CtxagentError


class SubagentsFeature(Feature):
    """Runs the subagents of a conversation."""

    name = "subagents"

    def __init__(
        self,
        session: LiveSession,
        runner: ToolRunner,
        types: Sequence[AgentType],
        opener: OpenSubagent,
    ) -> None:
        super().__init__(session)
        self._runner, self._opener = runner, opener
        self._types = {each.name: each for each in types}
        self._running: dict[str, RunningSubagent] = session.context.agents
        self._ended: list[tuple[SubagentRun, Output]] = []  # in background, not reported yet
        self._slots, self._start = asyncio.Semaphore(MAX_PARALLEL_SUBAGENTS), asyncio.Lock()

    @property
    def types(self) -> Sequence[AgentType]:
        """The types of subagents that this conversation can start."""
        return [*self._types.values()]

    def tools(self) -> list[Tool[Any]]:
        """Return the tool Task."""
        return [TaskTool(names_and_descriptions(self.types), self.run)]

    async def turn_started(self, turn: Turn) -> None:
        """Take a snapshot at the start of a turn if running subagents can change files."""
        if any(each.changes_files for each in self._running.values()):
            await self.session.snapshot()

    async def before_call(self) -> None:
        """Notify the model of background subagents that have ended."""
        while self._ended:
            self._record_end_notice(*self._ended[0])
            del self._ended[0]

    async def run(self, task: SubagentTask) -> Output:
        """Run a subagent, or send a message to a running one. Return its answer, or a notice if it
        runs in the background.

        Raises ToolError for a task that cannot start, and Interrupted with the partial result.
        """
        kind = self._type_of(task)
        while (running := self._running.get(task.resume or "")) is not None:
            if not await running.queue_message(task.prompt):
                continue  # another call may have resumed it
            if task.background or not running.in_background:
                return _background_output(running, GIVEN)
            return await self._wait_for(running, is_own=False)
        running = self._begin(kind, task)
        return (
            _background_output(running, WORKS) if task.background else await self._wait_for(running)
        )

    def _begin(self, kind: AgentType, task: SubagentTask) -> RunningSubagent:
        """Start a subagent in an asyncio task. Raises ToolError and RecordError."""
        if not self._running:
            # A semaphore and a lock are bound to the current event loop.
            self._slots, self._start = asyncio.Semaphore(MAX_PARALLEL_SUBAGENTS), asyncio.Lock()
        id = task.resume or f"{kind.name.rpartition(':')[2]}-{secrets.token_hex(3)}"
        run = SubagentRun(
            id=id,
            type=kind.name,
            prompt=task.prompt,
            log=f"{AGENTS}/{id}/{LOG_NAME}",
            description=task.description,
        )
        if (known := self.session.ledger.agents.get(id)) is not None:
            run = self._resumed_run(known, run)
        running = RunningSubagent(
            run, task.description, self.session.emit, task.background, self._changes(kind)
        )
        if task.background:
            self._record_start(running)
        self._running[id] = running
        running.work = asyncio.ensure_future(self._work(running, kind, task))
        running.work.add_done_callback(lambda work: self._check_end(running, work))
        return running

    def _resumed_run(self, known: SubagentRun, run: SubagentRun) -> SubagentRun:
        """Return the start entry of a resumed subagent. Raises ToolError."""
        if not subagent_log(self.session.folder, run.id).is_file():
            if known.told:
                raise ToolError(f"The log of {run.id} is gone. Start a new subagent.")
            run = replace(run, prompt=f"{known.prompt}\n\n{run.prompt}")  # it never started
        run = replace(run, description=known.description or run.description, told=known.told)
        return Counts.of(known).recorded_in(run)

    def _record_start(self, running: RunningSubagent) -> None:
        if not running.is_recorded:
            self.session.record(running.run)
            running.is_recorded = True

    async def _wait_for(self, running: RunningSubagent, *, is_own: bool = True) -> Output:
        """Wait until a subagent ends or the user sends it to the background.

        An interrupt ends the subagent if it `is_own` to this call; otherwise it continues in the
        background. Raises ToolError, and Interrupted with the partial result.
        """
        sent: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def to_background() -> None:
            if not (sent.done() or running.work.done()):
                self._record_start(running)
                running.in_background = True
                self.session.emit(running.started)
                sent.set_result(None)

        running.in_background, foreground = False, self.session.context.foreground
        ends: set[asyncio.Future[Any]] = {running.work, sent}
        foreground.add(to_background)
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            if is_own and not running.in_background:
                running.stop()
                await finish_despite_cancel(running.wait())
            elif not running.work.done():
                running.in_background = True
            if running.work.done() and not sent.done() and running.work.exception() is None:
                raise Interrupted(running.work.result()) from None
            raise
        finally:
            foreground.discard(to_background)
        return _background_output(running, SENT) if sent.done() else running.work.result()

    async def _work(self, running: RunningSubagent, kind: AgentType, task: SubagentTask) -> Output:
        """Run a subagent to its end. Raises ToolError if it cannot start."""
        try:
            async with self._slot(running):
                async with self._start:  # start in the order of the calls
                    if running.changes_files:
                        await self.session.snapshot()
                if running.is_stopped:
                    raise ToolError(STOPPED.format(id=running.id))
                return await self._run(running, kind, task)
        finally:
            del self._running[running.id]

    def _check_end(self, running: RunningSubagent, work: "asyncio.Task[Output]") -> None:
        """Record the end of a background subagent that failed: it could not start, or an entry
        could not be recorded.
        """
        error = None if work.cancelled() else work.exception()
        if error is None or not running.in_background:
            return
        status: SubagentStatus = "interrupted" if running.is_stopped else "error"
        run = replace(running.run, status=status)
        output = Output(str(error), {"agent": run.id, "status": run.status}, is_error=True)
        try:
            self.session.record(run)
        except RecordError as problem:
            self.session.notify("warning", f"{run.id} has ended: {error}; {problem}")
            return
        self.session.emit(
            AgentFinished(run.id, status, 0.0, {}, 0.0, background=True, reason=str(error))
        )
        self._ended.append((run, output))

    def _record_end_notice(self, run: SubagentRun, output: Output) -> None:
        """Record a notice for the model about the end of a background subagent. Raises
        RecordError.
        """
        output = self.session.context.redact(output)
        details = dict(output.details)
        text, offloaded = self._runner.files.store(TaskTool.name, output, details)
        head = f"{run.id} ({run.type}): {run.description}. It has ended in the background:"
        self.session.record(
            User(content=f"{head}\n{text}", source="notice", details=details, offloaded=offloaded)
        )

    @asynccontextmanager
    async def _slot(self, running: RunningSubagent) -> AsyncIterator[None]:
        """Wait for a free slot for a running subagent. Raises ToolError if it is stopped before."""
        places = self._slots
        waiting = asyncio.ensure_future(places.acquire())
        running.step = waiting.cancel
        try:
            await asyncio.wait({waiting})
            if waiting.cancelled():
                raise ToolError(STOPPED.format(id=running.id))
            yield
        finally:
            if not waiting.cancel() and not waiting.cancelled():
                places.release()

    async def _run(self, running: RunningSubagent, kind: AgentType, task: SubagentTask) -> Output:
        parent, id, began = self.session, running.id, time.monotonic()
        prior = self._prior(kind, task)
        child = running.child = self._open(running, kind, task, prior)
        told = ledger_known_to_parent(child.log.entries(), running.run)
        before = child.totals.all
        self._record_start(running)
        parent.emit(running.started)
        finished = await self._run_turns(running, child)
        running.cancel_report()
        last = child.log.last_seq
        finished = replace(finished, text=qualify_refs(finished.text, child.log.path, last))
        agent = replace(
            running.run,
            status=STATUS_OF_TURN[finished.status],
            answer=finished.text,
            told=last,
            files=touched_files(child.ledger),
            outside=child.ledger.outside,
        )
        used, rows = child.totals.all - before, changes_since(told, child.ledger, id)
        if running.in_background and rows:  # otherwise the result has the changes
            text = f"{id} has changed files: {len(rows)}"
            parent.record(Note(topic="agent", text=text, data={"changes": rows}))
        parent.record(child.totals.all.recorded_in(agent))
        parent.emit(
            AgentFinished(
                id,
                STATUS_OF_TURN[finished.status],
                time.monotonic() - began,
                used.usage.to_json(),
                used.cost_usd,
                running.in_background,
                reason=str((finished.error or {}).get("message", "")),
            )
        )
        output = _with_source(self._output(running, agent, finished, used, rows), prior)
        if running.in_background:
            self._ended.append((agent, output))
        return output

    def _output(
        self,
        running: RunningSubagent,
        agent: SubagentRun,
        finished: TurnFinished,
        used: Counts,
        rows: list[dict[str, Any]],
    ) -> Output:
        """Return the output for the parent, and credit the file changes to the subagent."""
        child = running.child
        assert child is not None
        self.session.denials.add(*child.denials)
        if self._runner.change_tracker is not None:
            self._runner.change_tracker.credit(agent.id, [row["path"] for row in rows])
        denied = list(dict.fromkeys(f"{d.tool} {d.title}: {d.reason}" for d in child.denials))
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
        rows = [] if running.in_background else rows
        details |= {"changes": rows[:MAX_CHANGES_IN_RESULT]} if rows else {}
        details |= (
            {"changes_left_out": len(rows) - MAX_CHANGES_IN_RESULT}
            if len(rows) > MAX_CHANGES_IN_RESULT
            else {}
        )
        return Output(
            _answer_text(child, agent, finished, used, denied, running.messages),
            details,
            is_error=agent.status != "done",
        )

    async def _run_turns(self, running: RunningSubagent, child: AgentState) -> TurnFinished:
        """Run the turn of a subagent, and continue it for messages that arrived after its last
        call. Always close the subagent.
        """
        prompt: str | None = running.run.prompt
        try:
            while True:
                turn = run_turn(child, prompt, running.next_message, verbatim=True)
                working = asyncio.ensure_future(turn)
                running.step, prompt = working.cancel, None
                finished = await working
                if STATUS_OF_TURN[finished.status] != "done" or not running.messages:
                    break
        except asyncio.CancelledError:  # cancelled before its start
            finished = TurnFinished("interrupted", "")
        except RecordError as error:
            finished = TurnFinished("error", "", {"message": str(error)})
        finally:
            running.takes_messages, running.step = False, None
            shared = child.model.client is self.session.model.client
            await finish_despite_cancel(child.close_except_model() if shared else child.close())
        self._summarize(child, finished)
        return finished

    def _open(
        self,
        running: RunningSubagent,
        kind: AgentType,
        task: SubagentTask,
        prior: HandOver | None,
    ) -> AgentState:
        parent, id = self.session, running.id
        spec = SubagentSpec(
            id=id,
            type=kind,
            log=subagent_log(parent.folder, id),
            model=task.model or kind.model,
            prior=prior.text if prior else "",
            emit=running.show,
            ask=self._ask_for(id),
            budget_meter=BudgetMeter(
                Budget(calls=MAX_CALLS_PER_RUN),
                within=parent.model.budget_meter,
                records_requests=parent.model.budget_meter.records_requests,
                hint=f"{TaskTool.name} with resume goes on.",
            ),
        )
        try:
            return self._opener(spec)
        except CtxagentError as error:
            raise ToolError(f"No subagent could be started: {error}") from error

    def _prior(self, kind: AgentType, task: SubagentTask) -> HandOver | None:
        """Return the hand-over for a new subagent. A resumed one already has it in its log."""
        if task.resume is not None:
            return None
        folder, ledger = self.session.folder, self.session.ledger
        return earlier_work(folder, ledger, kind.name, task.description, task.prompt)

    def _ask_for(self, id: str) -> Ask | None:
        ask = self.session.ask
        if ask is None:
            return None

        async def asked(question: Question) -> Answer | None:
            return await ask(replace(question, agent=id))

        return asked

    def _type_of(self, task: SubagentTask) -> AgentType:
        name, agents = task.type, self.session.ledger.agents
        if task.resume is not None:
            if task.resume not in agents:
                raise ToolError(
                    f"There is no subagent {task.resume!r} in this session. "
                    f"There are: {', '.join(agents) or 'none'}."
                )
            name = agents[task.resume].type
            if (task.type or name).rpartition(":")[2] != name.rpartition(":")[2]:
                raise ToolError(
                    f"{task.resume} is of type {name}, not {task.type}: give type {name} or "
                    "none with resume, or leave resume out to start a new one."
                )
        kind = part_named(self._types, name or "")
        if kind is None:
            raise ToolError(
                f"There is no type {name!r} of subagent. The types: {', '.join(self._types)}."
            )
        return kind

    def _changes(self, kind: AgentType) -> bool:
        """Return True if a subagent of this type can change files."""
        tools = kind.allowed_tools(self.session.tools)
        return not kind.is_read_only and any(tool.effect in ("edit", "run") for tool in tools)

    def _summarize(self, child: AgentState, finished: TurnFinished) -> None:
        """Write a summary for a later subagent with the same work, without a model."""
        if not child.view.items:
            return
        document = current_document(child.engine.host)
        if STATUS_OF_TURN[finished.status] == "done":  # so no next steps remain
            answer = cut_after(finished.text, MAX_SUMMARY_ANSWER_CHARS, " …")
            document = replace(document, done=(*document.done, answer), next_steps=())
        text = f"{render(document)}{pinned_section(child.ledger.pins)}"
        text = qualify_refs(text, child.log.path, child.log.last_seq)
        try:
            write_archive_file(child.folder / SUMMARY_NAME, text)
        except RecordError as error:  # not fatal, because the log has everything
            self.session.emit(Notice("warning", error.message))


def _background_output(running: RunningSubagent, text: str) -> Output:
    """Return the output of a call whose subagent continues in the background."""
    details: dict[str, Any] = {"agent": running.id, "status": "running"}
    details |= {"backgrounded": True} if text is SENT else {}
    return Output(text.format(id=running.id), details)


def _with_source(output: Output, prior: HandOver | None) -> Output:
    """Add the name of the earlier subagent whose summary was handed over, if any."""
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
    messages: Sequence[str],
) -> str:
    """Return the answer for the parent: how the subagent ended, its text, and how to resume it."""
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
    parts += [f"It ended before it got this message:\n{message}" for message in messages]
    count = f"{used.calls} calls of the model, {used.tool_calls} of tools"
    parts.append(f"[{agent.id}: {agent.status}, {count}; resume with this id goes on with it]")
    return "\n\n".join(filter(None, parts))
