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
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TextIO

from .. import errors
from ..errors import CtxagentError
from ..events import (
    Event,
    Notice,
    Retrying,
    SessionOpened,
    ToolFinished,
    ToolStarted,
    TurnFinished,
)

if TYPE_CHECKING:
    from ..loop import Loop

Format = Literal["text", "json", "stream-json"]

INTERRUPTED = 130
STATUS_CODES = {"ok": 0, "denied": 3, "limit": 4, "interrupted": INTERRUPTED}


class Headless:
    """Reads events and writes the result. `out` and `err` are the two standard streams."""

    def __init__(self, format: Format, out: TextIO, err: TextIO, *, verbose: bool = False) -> None:
        self.format = format
        self.out = out
        self.err = err
        self.verbose = verbose
        self.started = time.monotonic()

    def emit(self, event: Event) -> None:
        if self.format == "stream-json":
            self._line(as_json(event))
        if isinstance(event, Notice) and (self.verbose or event.level != "info"):
            print(f"{event.level}: {event.text}", file=self.err)
        elif isinstance(event, Retrying):
            print(
                f"retry {event.attempt} of {event.of} in {event.seconds:.0f} s: {event.reason}",
                file=self.err,
            )
        elif self.verbose:
            self._tell(event)

    def _tell(self, event: Event) -> None:
        if isinstance(event, SessionOpened):
            print(f"session {event.session_id} · {event.model} · {event.log}", file=self.err)
        elif isinstance(event, ToolStarted):
            print(f"● {event.name} {event.title}", file=self.err)
        elif isinstance(event, ToolFinished):
            mark = "failed" if event.is_error else "done"
            print(f"  {mark} in {event.seconds:.1f} s", file=self.err)

    async def run(self, opener: Callable[[], "Loop"], task: str) -> int:
        """Run one task to its end; the exit code. SIGINT and SIGTERM interrupt it."""
        running: asyncio.Task[int] = asyncio.ensure_future(self._run(opener, task))
        events = asyncio.get_running_loop()
        for name in (signal.SIGINT, signal.SIGTERM):
            events.add_signal_handler(name, running.cancel)
        try:
            return await running
        except asyncio.CancelledError:  # before the turn began, or after it ended
            self.fail(CtxagentError("interrupted"), INTERRUPTED)
            return INTERRUPTED

    async def _run(self, opener: Callable[[], "Loop"], task: str) -> int:
        loop = opener()
        try:
            finished = await loop.turn(task)
            return self._finish(loop, finished)
        finally:
            await loop.close()

    def _finish(self, loop: "Loop", finished: TurnFinished) -> int:
        code = exit_code(finished)
        window, totals = loop.measured(), loop.totals
        if self.format == "text":
            if finished.text:
                print(finished.text, file=self.out, flush=True)
            if finished.error:
                print(f"ctxagent: {finished.error['message']}", file=self.err)
            elif finished.status == "interrupted":
                print("ctxagent: interrupted", file=self.err)
            return code
        self._line(
            {
                "type": "result",
                "status": finished.status,
                "exit_code": code,
                "session_id": loop.log.path.parent.name,
                "log": str(loop.log.path),
                "result": finished.text,
                "model": loop.model.id,
                "turns": totals.turns,
                "calls": totals.calls,
                "tool_calls": totals.tool_calls,
                "duration_s": self._seconds(),
                "usage": totals.usage.to_json(),
                "cost_usd": totals.cost_usd,
                "context": {
                    "tokens": window.tokens,
                    "window": window.size,
                    "level": window.level,
                },
                "compaction": totals.compaction,
                "denials": [dataclasses.asdict(d) for d in loop.denials],
                "error": finished.error,
            }
        )
        return code

    def fail(self, error: CtxagentError, code: int | None = None) -> None:
        """Tell an error that kept the run from starting, or from recording."""
        code = error.exit_code if code is None else code
        if self.format == "text":
            print(f"ctxagent: {error}", file=self.err)
            return
        status = "interrupted" if code == INTERRUPTED else "limit" if code == 4 else "error"
        told = {"type": type(error).__name__, "message": str(error)}
        self._line(
            {
                "type": "result",
                "status": status,
                "exit_code": code,
                "session_id": None,
                "log": None,
                "result": "",
                "model": None,
                "turns": 0,
                "calls": 0,
                "tool_calls": 0,
                "duration_s": self._seconds(),
                "usage": dict.fromkeys(("input", "cache_read", "cache_creation", "output"), 0),
                "cost_usd": 0.0,
                "context": None,
                "compaction": None,
                "denials": [],
                "error": told,
            }
        )

    def _seconds(self) -> float:
        return round(time.monotonic() - self.started, 3)

    def _line(self, document: dict[str, Any]) -> None:
        print(json.dumps(document, default=str), file=self.out, flush=True)


def exit_code(finished: TurnFinished) -> int:
    """The contract's exit code for how a turn ended."""
    if finished.status != "error":
        return STATUS_CODES[finished.status]
    kind = getattr(errors, (finished.error or {}).get("type", ""), CtxagentError)
    return int(kind.exit_code)


def as_json(event: Event) -> dict[str, Any]:
    """An event as a JSON object; its type is the event's name in snake case."""
    name = re.sub(r"(?<!^)(?=[A-Z])", "_", type(event).__name__).lower()
    return {"type": name, **dataclasses.asdict(event)}
