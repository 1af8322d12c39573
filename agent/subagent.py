"""Subagents: conversations that a conversation starts, each with a log, a view, a window and the
full compaction of its own (S4 "Subagents Compress Too").

A call of Task opens a `Loop` in `agents/<id>/` of the session's folder and gives it one turn. What
it may do is what its parent may at that moment, and what it spends counts there. The parent gets
its answer, or what it had when it failed, was interrupted or came to a limit; and two entries, one
at the start and one at the end, so that a killed process loses neither the work nor the sums.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..tools.base import Errand, Interrupted, Output, ToolError
from .agents import AgentType
from .compaction import summarize
from .compaction.checkpoint import document_now
from .errors import CtxagentError, RecordError
from .events import (
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
from .launch import Bounds
from .loop import Loop
from .record.archive import SUMMARY, write_summary
from .record.entries import Agent
from .record.handover import STATUS, beginning, changed, log_of, outward, prior, told_of
from .record.totals import Counts
from .spending import Spending
from .unbroken import unbroken

MOST = 4  # at work at the same time
CALLS = 400  # of the model in one run: one that never stops is ended, and can be resumed
PERIOD = 0.3  # seconds between two reports of one
ROWS = 2_000  # changed files that are told of one
DENIED = 10  # calls that were not allowed to it
DONE = 1_000  # characters of its answer that its summary says again

STOPPED = "{id} was stopped before it had begun; nothing of it was done."
REASONS = {
    "done": "",
    "error": "The subagent failed: {why}",
    "interrupted": "The subagent was interrupted before it had finished.",
    "limit": "The subagent was ended by a limit before it had finished: {why}",
}


@dataclass(frozen=True, slots=True)
class Order:
    """What a subagent is opened with. `model` is an id, None for that of the parent; `prior` is
    what an earlier one hands over."""

    id: str
    type: AgentType
    log: Path
    model: str | None
    prior: str
    emit: Emit
    ask: Ask | None
    spending: Spending


class Agents:
    """Those of one conversation. `opener` opens one, and raises CtxagentError."""

    def __init__(self, parent: Loop, opener: Callable[[Order], Loop]) -> None:
        self._parent = parent
        self._types = {each.name: each for each in parent.types}
        self._opener = opener
        self._taken: set[str] = set()
        self._places, self._start = asyncio.Semaphore(MOST), asyncio.Lock()

    async def run(self, errand: Errand) -> Output:
        """Have an errand done. Raises ToolError for one that cannot begin, and Interrupted with
        what there was of it."""
        kind = self._type_of(errand)
        id = errand.resume or f"{kind.name}-{secrets.token_hex(3)}"
        if id in self._taken:
            raise ToolError(f"{id} is at work already; its answer comes with that call.")
        if not self._taken:
            # They belong to the event loop that they are used in.
            self._places, self._start = asyncio.Semaphore(MOST), asyncio.Lock()
        self._taken.add(id)
        try:
            async with self._place(id) as stopped:
                async with self._start:  # in the order of their calls
                    if self._changes(kind):
                        await self._parent.snapshot()
                if stopped.is_set():
                    raise ToolError(STOPPED.format(id=id))
                return await self._run(id, kind, errand)
        finally:
            self._taken.discard(id)

    @asynccontextmanager
    async def _place(self, id: str) -> AsyncIterator[asyncio.Event]:
        """A place to work in. Until the work begins, whoever ends the subagent sets the event;
        raises ToolError where it does so before there is a place."""
        stopped, places, agents = asyncio.Event(), self._places, self._parent.context.agents
        waiting = asyncio.ensure_future(places.acquire())

        def stop() -> None:
            stopped.set()
            waiting.cancel()

        agents[id] = stop
        try:
            await waiting
            yield stopped
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not waiting.cancelled() or (task is not None and task.cancelling()):
                raise
            raise ToolError(STOPPED.format(id=id)) from None
        finally:
            agents.pop(id, None)
            if waiting.done() and not waiting.cancelled():
                places.release()

    async def _run(self, id: str, kind: AgentType, errand: Errand) -> Output:
        parent, began = self._parent, time.monotonic()
        known = parent.ledger.agents.get(id)
        progress = _Progress(id, parent.emit)
        child = self._open(id, kind, errand, progress)
        told, before = told_of(child.log.entries(), known), child.totals.all
        agent = Agent(
            id=id,
            type=kind.name,
            prompt=errand.prompt,
            log=str(child.log.path.relative_to(parent.folder)),
            description=(known and known.description) or errand.description,
            told=known.told if known else 0,
        )
        parent.record(before.on(agent))
        parent.emit(AgentStarted(id, kind.name, errand.description))
        finished = await self._worked(id, child, errand.prompt)
        progress.end()
        last = child.log.last_seq
        finished = replace(finished, text=outward(finished.text, child.log.path, last))
        agent = replace(
            agent,
            status=STATUS[finished.status],
            answer=finished.text,
            told=last,
        )
        used = child.totals.all - before
        parent.record(child.totals.all.on(agent))
        parent.emit(
            AgentFinished(
                id,
                STATUS[finished.status],
                time.monotonic() - began,
                used.usage.to_json(),
                used.cost_usd,
            )
        )
        output = self._output(child, agent, finished, used, changed(told, child.ledger, id))
        task = asyncio.current_task()
        if task is not None and task.cancelling():  # the parent's turn is, not this one alone
            raise Interrupted(output)
        return output

    def _output(
        self,
        child: Loop,
        agent: Agent,
        finished: TurnFinished,
        used: Counts,
        rows: list[dict[str, Any]],
    ) -> Output:
        """What the parent gets of a subagent, and knows of it from now on."""
        self._parent.denials += child.denials
        if self._parent.watch is not None:
            self._parent.watch.credit(agent.id, [row["path"] for row in rows])
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
        details |= {"changes": rows[:ROWS]} if rows else {}
        details |= {"changes_left_out": len(rows) - ROWS} if len(rows) > ROWS else {}
        return Output(
            _told(child, agent, finished, used, denied), details, is_error=agent.status != "done"
        )

    async def _worked(self, id: str, child: Loop, prompt: str) -> TurnFinished:
        """One turn of a subagent, which is left whatever happens."""
        work = asyncio.ensure_future(child.turn(prompt))
        self._parent.context.agents[id] = work.cancel
        try:
            finished = await work
        except asyncio.CancelledError:  # it had not begun
            finished = TurnFinished("interrupted", "")
        except RecordError as error:
            finished = TurnFinished("error", "", {"message": str(error)})
        finally:
            del self._parent.context.agents[id]
            shared = child.model is self._parent.model
            await unbroken(child.leave() if shared else child.close())
        self._summarize(child, finished)
        return finished

    def _open(self, id: str, kind: AgentType, errand: Errand, progress: "_Progress") -> Loop:
        parent = self._parent
        order = Order(
            id=id,
            type=kind,
            log=log_of(parent.folder, id),
            model=errand.model or kind.model,
            prior=self._prior(kind, errand),
            emit=progress.show,
            ask=self._asking(id),
            spending=Spending(
                Bounds(calls=CALLS), within=parent.spending, hint="Task with resume goes on."
            ),
        )
        if errand.resume is not None and not order.log.is_file():
            raise ToolError(f"The log of {id} is gone: {order.log}. Start a new subagent.")
        try:
            progress.child = self._opener(order)
        except CtxagentError as error:
            raise ToolError(f"No subagent could be started: {error}") from error
        return progress.child

    def _prior(self, kind: AgentType, errand: Errand) -> str:
        """What is handed over to a new one; one that goes on has it all in its own log."""
        if errand.resume is not None:
            return ""
        return prior(self._parent.folder, self._parent.ledger, kind.name, errand.description)

    def _asking(self, id: str) -> Ask | None:
        ask = self._parent.ask
        if ask is None:
            return None

        async def asked(question: Question) -> Answer:
            return await ask(replace(question, agent=id))

        return asked

    def _type_of(self, errand: Errand) -> AgentType:
        name, agents = errand.type, self._parent.ledger.agents
        if errand.resume is not None:
            if errand.resume not in agents:
                raise ToolError(
                    f"There is no subagent {errand.resume!r} in this session. "
                    f"There are: {', '.join(agents) or 'none'}."
                )
            name = agents[errand.resume].type
            if errand.type not in (None, name):
                raise ToolError(
                    f"{errand.resume} is of type {name}, not {errand.type}: give type {name} or "
                    "none with resume, or leave resume out to start a new one."
                )
        if name not in self._types:
            raise ToolError(
                f"There is no type {name!r} of subagent. The types: {', '.join(self._types)}."
            )
        return self._types[name]

    def _changes(self, kind: AgentType) -> bool:
        """Whether one of this type may change files."""
        tools = kind.of(self._parent.tools)
        return not kind.looks_only and any(tool.effect in ("edit", "run") for tool in tools)

    def _summarize(self, child: Loop, finished: TurnFinished) -> None:
        """Leave what a later one for the same work is given. No model is asked."""
        if not child.view.items:
            return
        document = document_now(child)
        if STATUS[finished.status] == "done":  # so nothing comes next
            answer = beginning(finished.text, DONE)
            document = replace(document, done=(*document.done, answer), next_steps=())
        text = summarize.text_of(document, child.folder, child.ledger.pins)
        text = outward(text, child.log.path, child.log.last_seq)
        try:
            write_summary(child.folder, text)
        except RecordError as error:  # all of it is in the log
            self._parent.emit(Notice("warning", error.message))


class _Progress:
    """Tells a parent's front end of a subagent: what concerns a person at once, the rest in a
    report now and then."""

    def __init__(self, id: str, emit: Emit) -> None:
        self.child: Loop | None = None
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
            self._report(f"retry {event.attempt} of {event.of}: {event.reason}"[:120])

    def end(self) -> None:
        """What has not been told until now needs no telling any more."""
        if self._next is not None:
            self._next.cancel()

    def _report(self, doing: str) -> None:
        """Tell it, once a period since the last report is over: what it does then may last."""
        self._doing = doing
        if self._next is None:
            loop = asyncio.get_running_loop()
            self._next = loop.call_at(self._told + PERIOD, self._tell)

    def _tell(self) -> None:
        self._next, self._told = None, asyncio.get_running_loop().time()
        if self.child is not None:
            now = self.child.measured()
            done = self._calls, self._tools
            self._emit(AgentProgress(self._id, *done, now.tokens, now.level, self._doing))


def _told(
    child: Loop, agent: Agent, finished: TurnFinished, used: Counts, denied: Sequence[str]
) -> str:
    """The answer as the parent reads it: how it came to its end, what was said, and how to go
    on."""
    why = (finished.error or {}).get("message", "").split("\n")[0]
    parts = [REASONS[agent.status].format(why=why)]
    if agent.status != "done":
        parts.append(f"Its last words:\n{finished.text}" if finished.text.strip() else "")
        summary = child.folder / SUMMARY
        parts.append(f"What it had done: {summary}" if summary.is_file() else "")
    else:
        parts.append(finished.text)
    if denied:
        parts.append("Not allowed to it:\n" + "\n".join(f"- {each}" for each in denied[:DENIED]))
    count = f"{used.calls} calls of the model, {used.tool_calls} of tools"
    parts.append(f"[{agent.id}: {agent.status}, {count}; resume with this id goes on with it]")
    return "\n\n".join(filter(None, parts))
