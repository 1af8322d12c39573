"""The headless front end: one task, one result on standard output, a telling exit code.

`text` prints the final answer alone, `json` one document, `stream-json` every event as one line and
the result last. Everything else goes to standard error.
"""

import asyncio
import dataclasses
import json
import re
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, TextIO

from ...tools.system.unicode import clean, clean_for
from .. import errors, events
from ..errors import CtxagentError, SessionBusy
from ..session.totals import Totals
from . import signals
from .subagent_progress import SubagentEvent, Subagents

if TYPE_CHECKING:
    from ..loop.agent import Agent
    from ..loop.attachments import AttachedTo
    from ..loop.result_schema import ReadAnswer, ResultSchema

    TaskOf = Callable[["Agent"], Awaitable[str]]  # what an agent is told

OutputFormat = Literal["text", "json", "stream-json"]

INTERRUPTED = 130
STATUS_CODES = {"ok": 0, "denied": 3, "limit": 4, "interrupted": INTERRUPTED}


class Headless:
    """Writes events and the result to the two standard streams. Is interrupted when the reader of
    `out` goes away; with `wait` it waits for a session that another process has open."""

    def __init__(
        self,
        format: OutputFormat,
        out: TextIO,
        err: TextIO,
        *,
        verbose: bool = False,
        wait: bool = False,
    ) -> None:
        self.format = format
        self.out = out
        self.err = err
        self.verbose = verbose
        self.wait = wait
        self.started = time.monotonic()
        self.schema: ResultSchema | None = None  # that results have to fit
        self.worktree: Mapping[str, str] | None = None  # path and branch, of a run in one
        self._agent: Agent | None = None
        self._running: asyncio.Task[int] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._out_is_read = True
        self._subagents = Subagents()
        self._has_result = False  # the result is written; nothing may follow it
        self.ended: int | None = None  # the exit code of the result

    def emit(self, event: events.Event) -> None:
        if self.format == "stream-json" and not self._has_result:
            self._write_if_read(as_json(event))
        if isinstance(event, SubagentEvent):
            self._follow(event)
        elif isinstance(event, events.Notice) and (self.verbose or event.level != "info"):
            self._say(f"{event.level}: {self._prefix(event.agent)}{event.text}")
        elif isinstance(event, events.Retrying):
            self._say(str(event))
        elif self.verbose:
            self._say_verbose(event)

    def _write_if_read(self, line: dict[str, Any]) -> None:
        """Write a line, and be interrupted where nobody reads it."""
        if self._out_is_read:
            try:
                self._line(line)
            except BrokenPipeError:
                self._out_is_read = False
                self._interrupt()

    def _follow(self, event: SubagentEvent) -> None:
        subagent = self._subagents.follow(event)
        if not isinstance(event, events.AgentProgress):
            self._say(f"subagent {subagent.name} · {subagent.ending or 'started'}")

    def _prefix(self, agent: str) -> str:
        return f"{self._subagents.name(agent)}: " if agent else ""

    def _say_verbose(self, event: events.Event) -> None:
        if isinstance(event, events.SessionOpened):
            self._say(f"session {event.session_id} · {event.model} · {event.log}")
        elif isinstance(event, events.ToolStarted):
            self._say(f"● {event.name} {event.title}".rstrip())
        elif isinstance(event, events.ToolFinished):
            mark = "failed" if event.is_error else "done"
            self._say(f"  {mark} in {event.seconds:.1f} s")
        elif isinstance(event, events.Waiting) and event.what:
            self._say(f"waiting: {event.what}")
        elif isinstance(event, events.Compacted):
            from . import compaction_report

            self._say(self._prefix(event.agent) + compaction_report.receipt(event))

    async def run(
        self, opener: Callable[[], "Agent"], task: "TaskOf", attached_to: "AttachedTo"
    ) -> int:
        """Run one task, with what is attached to it, to its end, or to a SIGINT, SIGTERM or SIGHUP;
        return the exit code. Raises BrokenPipeError when nobody is there to read the result."""
        return await self._run_interruptibly(self._run(opener, task, attached_to))

    async def _run_interruptibly(self, run: Coroutine[Any, Any, int]) -> int:
        self._running = asyncio.ensure_future(run)
        with signals.call_on_signals(self._interrupt, signal.SIGINT, *signals.END_SIGNALS):
            try:
                return await self._running
            except asyncio.CancelledError:  # before the turn began
                self.fail(CtxagentError("interrupted"), INTERRUPTED)
                return INTERRUPTED

    def _interrupt(self) -> None:
        """Stop the turn; once its result is written, the closing of the session, jobs and hooks."""
        if self._running is not None and not self._has_result:
            self._running.cancel()
        elif self._closing is not None:
            self._closing.cancel()

    async def _run(
        self, opener: Callable[[], "Agent"], task: "TaskOf", attached_to: "AttachedTo"
    ) -> int:
        self._agent = await self._opened(opener)
        from ..loop.turn import run_turn  # loaded with the session

        try:
            words = await task(self._agent)
            finished = await run_turn(
                self._agent, words, attached_to=attached_to, schema=self.schema
            )
            await self._finish_session(self._agent, is_ok=finished.status == "ok")
            return self._finish(finished)
        finally:
            await self._close(self._agent)

    async def _finish_session(self, agent: "Agent", *, is_ok: bool) -> None:
        if is_ok:
            await agent.finish()
        await agent.engine.close()  # what a summary in preparation cost counts too

    async def _close(self, agent: "Agent") -> None:
        self._closing = asyncio.ensure_future(agent.close())
        await asyncio.wait({self._closing})
        if not self._closing.cancelled():
            self._closing.result()

    async def _opened(self, opener: Callable[[], "Agent"]) -> "Agent":
        try:
            return opener()
        except SessionBusy as busy:
            if not self.wait:
                raise
            self._say(f"{busy.message}; waiting for it")

        from .conversation.open_session import when_free  # which imports what a screen needs

        async def again() -> "Agent":
            return opener()

        return await when_free(again)

    def _finish(self, finished: events.TurnFinished) -> int:
        self.ended = code = exit_code(finished)
        read = self._read(finished)
        if self.format != "text":
            output = {"output": read.value} if self.schema else {}
            self._result(finished.status, code, finished.text, finished.error, output)
            return code
        self._has_result = True
        if text := read.document if self.schema else finished.text:
            with signals.ignore_lost_terminal():
                print(clean_for(text, self.out), file=self.out, flush=True)
        if finished.error:
            self._say(f"ctxagent: {finished.error['message']}")
        elif finished.status == "interrupted":
            self._say("ctxagent: interrupted")
        return code

    def _read(self, finished: events.TurnFinished) -> "ReadAnswer":
        """Return what the answer is by the schema; nothing where the turn came to no answer."""
        from ..loop.result_schema import ReadAnswer

        answered = self.schema is not None and finished.status in ("ok", "denied")
        return self.schema.read(finished.text) if self.schema and answered else ReadAnswer()

    def fail(self, error: CtxagentError, code: int) -> None:
        """Report an error that kept the run from starting, or from recording."""
        if self.format == "text" or self._has_result:
            self._say(f"ctxagent: {error}")
            return
        status = {INTERRUPTED: "interrupted", 4: "limit"}.get(code, "error")
        shown = {"type": type(error).__name__, "message": str(error)}
        self._result(status, code, "", shown, {"output": None} if self.schema else {})

    def _result(
        self,
        status: str,
        code: int,
        text: str,
        error: Mapping[str, str] | None,
        output: Mapping[str, Any],
    ) -> None:
        """Write the result, with what is known of the session if one was opened."""
        self._has_result = True
        agent = self._agent
        totals = agent.totals if agent else Totals()
        self._line(
            {
                "type": "result",
                "status": status,
                "exit_code": code,
                "session_id": agent.log.path.parent.name if agent else None,
                "log": str(agent.log.path) if agent else None,
                "result": text,
                **output,
                "model": agent.model.id if agent else None,
                "turns": totals.turns,
                "calls": totals.all.calls,
                "tool_calls": totals.all.tool_calls,
                "duration_s": round(time.monotonic() - self.started, 3),
                "usage": totals.all.usage.to_json(),
                "cost_usd": totals.all.cost_usd,
                "context": _context(agent) if agent else None,
                "compaction": totals.all.compaction,
                "agents": _agents(agent) if agent else [],
                "denials": [dataclasses.asdict(d) for d in agent.denials] if agent else [],
                **({"worktree": self.worktree} if self.worktree else {}),
                "error": error,
            }
        )

    def _line(self, document: dict[str, Any]) -> None:
        print(json.dumps(document, default=str), file=self.out, flush=True)

    def say(self, text: str) -> None:
        """Tell the person something on standard error."""
        self._say(f"ctxagent: {text}")

    def _say(self, text: str) -> None:
        with suppress(BrokenPipeError), signals.ignore_lost_terminal():
            print(clean(text), file=self.err)  # a log of it is read on a terminal too


def _context(agent: "Agent") -> dict[str, Any]:
    """Return how full the window is, and the tokens from which on a summary is due."""
    from ..compaction.policy import summary_due_at

    window = agent.current_window()
    return {
        "tokens": window.tokens,
        "window": window.size,
        "level": window.level,
        "free": window.free,
        "summary_at": summary_due_at(agent.policy, window),
    }


def _agents(agent: "Agent") -> list[dict[str, Any]]:
    """Return what each subagent of the session has used; the sums of the result include it."""
    return [
        {
            "id": run.id,
            "type": run.type,
            "description": run.description,
            "status": run.status,
            "log": str(agent.folder / run.log),
            **dataclasses.asdict(agent.totals.by_agent[run.id]),
        }
        for run in agent.ledger.agents.values()
    ]


def exit_code(finished: events.TurnFinished) -> int:
    """Return the exit code for how a turn ended."""
    if finished.status != "error":
        return STATUS_CODES[finished.status]
    kind = getattr(errors, (finished.error or {}).get("type", ""), CtxagentError)
    return int(kind.exit_code)


def as_json(event: events.Event) -> dict[str, Any]:
    """Return an event as a JSON object; its type is the event's name in snake case."""
    name = re.sub(r"(?<!^)(?=[A-Z])", "_", type(event).__name__).lower()
    fields = dataclasses.asdict(event)
    if isinstance(event, events.AgentStarted):
        fields["agent_type"] = fields.pop("type")
    return {"type": name, **fields}
