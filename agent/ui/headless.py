"""The headless front end: one task, one result on standard output, a telling exit code.

`text` prints the final answer alone, `json` one document, `stream-json` every event as one line
and the result last. Everything else goes to standard error. The result's form is the contract's.
"""

import asyncio
import dataclasses
import json
import re
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, TextIO

from .. import errors
from ..errors import CtxagentError, SessionBusy
from ..events import (
    AgentFinished,
    AgentProgress,
    AgentStarted,
    Compacted,
    Event,
    Notice,
    Retrying,
    SessionOpened,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    Waiting,
)
from ..record.totals import Totals
from .busy import when_free
from .screen import signals
from .subagents import Subagents
from .visible import clean, fit

if TYPE_CHECKING:
    from ..loop import Loop

Format = Literal["text", "json", "stream-json"]

INTERRUPTED = 130
STATUS_CODES = {"ok": 0, "denied": 3, "limit": 4, "interrupted": INTERRUPTED}


class Headless:
    """Reads events and writes the result. `out` and `err` are the two standard streams. With `wait`
    a session that another process has is waited for.

    When the reader of `out` goes away, the run is interrupted; `err` may be read or not.
    """

    def __init__(
        self,
        format: Format,
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
        self._loop: Loop | None = None
        self._running: asyncio.Task[int] | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._heard = True
        self._subagents = Subagents()
        self._told = False  # the result is written, and nothing may come after it
        self.ended: int | None = None  # with this exit code, which is that of the result

    def emit(self, event: Event) -> None:
        if self.format == "stream-json" and self._heard and not self._told:
            try:
                self._line(as_json(event))
            except BrokenPipeError:
                self._heard = False
                self._interrupt()
        if isinstance(event, AgentStarted | AgentProgress | AgentFinished):
            self._follow(event)
        elif isinstance(event, Notice) and (self.verbose or event.level != "info"):
            self._say(f"{event.level}: {self._of(event.agent)}{event.text}")
        elif isinstance(event, Retrying):
            wait = f"{event.attempt} of {event.of} in {event.seconds:.0f} s"
            self._say(f"retry {wait}: {event.reason}")
        elif self.verbose:
            self._tell(event)

    def _follow(self, event: AgentStarted | AgentProgress | AgentFinished) -> None:
        about = self._subagents.follow(event)
        if not isinstance(event, AgentProgress):
            self._say(f"subagent {about.name} · {about.ending or 'started'}")

    def _of(self, agent: str) -> str:
        return f"{self._subagents.name(agent)}: " if agent else ""

    def _tell(self, event: Event) -> None:
        if isinstance(event, SessionOpened):
            self._say(f"session {event.session_id} · {event.model} · {event.log}")
        elif isinstance(event, ToolStarted):
            self._say(f"● {event.name} {event.title}")
        elif isinstance(event, ToolFinished):
            mark = "failed" if event.is_error else "done"
            self._say(f"  {mark} in {event.seconds:.1f} s")
        elif isinstance(event, Waiting) and event.what:
            self._say(f"waiting: {event.what}")
        elif isinstance(event, Compacted):
            from . import report

            self._say(self._of(event.agent) + report.receipt(event))

    async def run(self, opener: Callable[[], "Loop"], task: str) -> int:
        """Run one task to its end; the exit code. SIGINT, SIGTERM and SIGHUP interrupt it.

        Raises BrokenPipeError when nobody is there to read the result.
        """
        self._running = asyncio.ensure_future(self._run(opener, task))
        with signals.heard(self._interrupt, signal.SIGINT, *signals.ENDINGS):
            try:
                return await self._running
            except asyncio.CancelledError:  # before the turn began
                self.fail(CtxagentError("interrupted"), INTERRUPTED)
                return INTERRUPTED

    def _interrupt(self) -> None:
        """Stop the turn. Once its result is written its jobs alone are to end, and they must; so
        must a hook that is told of it."""
        if self._running is not None and not self._told:
            self._running.cancel()
        elif self._leaving is not None:
            self._leaving.cancel()

    async def _run(self, opener: Callable[[], "Loop"], task: str) -> int:
        self._loop = await self._opened(opener)
        try:
            finished = await self._loop.turn(task)
            if finished.status == "ok":
                await self._loop.finish()
            await self._loop.engine.close()  # what a summary in preparation cost counts too
            return self._finish(finished)
        finally:
            self._leaving = asyncio.ensure_future(self._loop.close())
            await asyncio.wait({self._leaving})
            if not self._leaving.cancelled():
                self._leaving.result()

    async def _opened(self, opener: Callable[[], "Loop"]) -> "Loop":
        try:
            return opener()
        except SessionBusy as busy:
            if not self.wait:
                raise
            self._say(f"{busy.message}; waiting for it")

        async def again() -> "Loop":
            return opener()

        return await when_free(again)

    def _finish(self, finished: TurnFinished) -> int:
        self.ended = code = exit_code(finished)
        if self.format != "text":
            self._result(finished.status, code, finished.text, finished.error)
            return code
        self._told = True
        if finished.text:
            with signals.unseen():
                print(fit(finished.text, self.out), file=self.out, flush=True)
        if finished.error:
            self._say(f"ctxagent: {finished.error['message']}")
        elif finished.status == "interrupted":
            self._say("ctxagent: interrupted")
        return code

    def fail(self, error: CtxagentError, code: int) -> None:
        """Tell an error that kept the run from starting, or from recording."""
        if self.format == "text" or self._told:
            self._say(f"ctxagent: {error}")
            return
        status = {INTERRUPTED: "interrupted", 4: "limit"}.get(code, "error")
        self._result(status, code, "", {"type": type(error).__name__, "message": str(error)})

    def _result(self, status: str, code: int, text: str, error: Mapping[str, str] | None) -> None:
        """Write the one document, with what is known of the session, if one was opened."""
        self._told = True
        loop = self._loop
        totals = loop.totals if loop else Totals()
        window = loop.measured() if loop else None
        self._line(
            {
                "type": "result",
                "status": status,
                "exit_code": code,
                "session_id": loop.log.path.parent.name if loop else None,
                "log": str(loop.log.path) if loop else None,
                "result": text,
                "model": loop.model.id if loop else None,
                "turns": totals.turns,
                "calls": totals.calls,
                "tool_calls": totals.tool_calls,
                "duration_s": round(time.monotonic() - self.started, 3),
                "usage": totals.usage.to_json(),
                "cost_usd": totals.cost_usd,
                "context": window
                and {"tokens": window.tokens, "window": window.size, "level": window.level},
                "compaction": totals.compaction,
                "agents": _agents(loop) if loop else [],
                "denials": [dataclasses.asdict(d) for d in loop.denials] if loop else [],
                "error": error,
            }
        )

    def _line(self, document: dict[str, Any]) -> None:
        print(json.dumps(document, default=str), file=self.out, flush=True)

    def _say(self, text: str) -> None:
        with suppress(BrokenPipeError), signals.unseen():
            print(clean(text), file=self.err)  # a log of it is read on a terminal too


def _agents(loop: "Loop") -> list[dict[str, Any]]:
    """What each subagent of the session has used; the sums of the result include it."""
    return [
        {
            "id": agent.id,
            "type": agent.type,
            "description": agent.description,
            "status": agent.status,
            "log": str(loop.folder / agent.log),
            **dataclasses.asdict(loop.totals.by_agent[agent.id]),
        }
        for agent in loop.ledger.agents.values()
    ]


def exit_code(finished: TurnFinished) -> int:
    """The contract's exit code for how a turn ended."""
    if finished.status != "error":
        return STATUS_CODES[finished.status]
    kind = getattr(errors, (finished.error or {}).get("type", ""), CtxagentError)
    return int(kind.exit_code)


def as_json(event: Event) -> dict[str, Any]:
    """An event as a JSON object; its type is the event's name in snake case."""
    name = re.sub(r"(?<!^)(?=[A-Z])", "_", type(event).__name__).lower()
    fields = dataclasses.asdict(event)
    if isinstance(event, AgentStarted):
        fields["agent_type"] = fields.pop("type")
    return {"type": name, **fields}
