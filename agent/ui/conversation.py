"""The conversation that is open: opened, left for another one, and told what was chosen for all."""

import asyncio
import time
import traceback
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from ..errors import CtxagentError
from ..events import Ask, Emit
from ..record.checkout import branch
from ..record.listing import last_answer
from . import mode, status
from .backing import Backing
from .busy import when_free
from .commands import MODES

if TYPE_CHECKING:
    from ..loop import Loop


class Conversation:
    """At most one is open at a time; `emit` and `ask` are what each is given."""

    def __init__(self, backing: Backing, emit: Emit, ask: Ask) -> None:
        self._backing = backing
        self._emit = emit
        self._ask = ask
        self._loop: Loop | None = None
        self._model = ""  # chosen here, for every one from then on
        self._mode_then: str = ""  # of the newest turn
        self._opening, self._since = True, time.monotonic()  # one is on its way
        self._branch = branch(backing.cwd)
        self._unwanted: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        return self._loop is not None

    @property
    def is_opening(self) -> bool:
        """Whether one is on its way."""
        return self._opening

    @property
    def loop(self) -> "Loop":
        """Raises CtxagentError when none is open."""
        if self._loop is None:
            raise CtxagentError("no session is open", hint="/clear opens a fresh one.")
        return self._loop

    @property
    def session(self) -> str:
        """Its id, "" when none is open."""
        return self._loop.log.path.parent.name if self._loop else ""

    async def reopen(
        self,
        *,
        resume: str | None = None,
        fork: bool = False,
        prior: str | None = None,
        read_only: bool = False,
        patient: bool = False,
    ) -> tuple[str, str] | None:
        """Go over to another one: the one asked for at the start, or as `Opener` says; `patient`
        waits until no other process has it. Where it was left, as the last words and the answer to
        them; None for a fresh one and for a copy.

        Raises CtxagentError; the one that was open stays so then. Once the other one is open, an
        interrupt cuts short only what the one before still does at its end.
        """
        if not self._opening:
            self._opening, self._since = True, time.monotonic()
        go_over = partial(self._go_over, resume, fork, prior, read_only)
        try:
            return await (when_free(go_over) if patient else go_over())
        finally:
            self._opening = False

    async def _go_over(
        self, resume: str | None, fork: bool, prior: str | None, read_only: bool
    ) -> tuple[str, str] | None:
        opening = asyncio.ensure_future(
            self._backing.open(
                self._emit, self._ask, resume=resume, fork=fork, prior=prior, read_only=read_only
            )
        )
        try:
            opened = await asyncio.shield(opening)
        except asyncio.CancelledError:
            self._unwanted = asyncio.create_task(_close(opening))
            raise
        left, self._loop = self._loop, opened
        self._mode_then = opened.approval.mode
        if left is not None:
            opened.approval.mode, opened.effort = left.approval.mode, left.effort
            with suppress(asyncio.CancelledError):
                await left.close()
        if self._model and not read_only:
            self._backing.set_model(opened, self._model)
        if not opened.log.last_seq or fork:
            return None
        since, said = opened.ledger.words[-1] if opened.ledger.words else (0, "")
        reading = asyncio.to_thread(last_answer, opened.log.entries(), since)
        try:
            return said, await reading
        except asyncio.CancelledError:
            if left is None:
                raise
            return said, ""

    def set_model(self, id: str) -> None:
        self._backing.set_model(self.loop, id)
        self._model = id

    def cycle_mode(self) -> None:
        if self._loop is not None:
            approval = self._loop.approval
            approval.mode = MODES[(MODES.index(approval.mode) + 1) % len(MODES)]

    def begin_turn(self) -> None:
        """Let the model know of a change of mode. Raises RecordError."""
        mode.tell(self.loop, self._mode_then)
        self._mode_then = self.loop.approval.mode

    def end_turn(self) -> None:
        self._branch = branch(self._backing.cwd)

    def share(self) -> float | None:
        """How full the context is; None when no session is open."""
        return self._loop.measured().share if self._loop else None

    def status(self, width: int) -> list[status.Fragment]:
        if self._opening:
            return [("", self._opening_for())]
        if self._loop is None:
            return [("", "no session is open")]
        window, sandbox = self._loop.measured(), self._loop.context.sandbox
        now = status.Status(
            model=self._loop.model.id,
            mode="read-only" if self._loop.log.refusal else self._loop.approval.mode,
            branch=self._branch,
            share=window.share,
            level=window.level,
            cost_usd=self._loop.totals.cost_usd,
            agents=len(self._loop.context.agents),
            jobs=self._jobs,
            effort=self._loop.effort or "",
            preparing=self._loop.engine.preparing,
            unconfined=bool(sandbox and sandbox.absent),
        )
        return status.line(now, width)

    def _opening_for(self) -> str:
        waited = time.monotonic() - self._since
        return "opening the session …" + (f" {waited:.0f} s" if waited >= 1 else "")

    @property
    def runs_beside(self) -> bool:
        """Whether something that the status line tells of goes on without a turn."""
        return self._loop is not None and (self._loop.engine.preparing or self._jobs > 0)

    @property
    def _jobs(self) -> int:
        jobs = self._loop.context.jobs.values() if self._loop is not None else ()
        return sum(job.process.running for job in jobs)

    def fault(self, error: Exception) -> CtxagentError:
        """What is told of a fault of our own; where it came from is recorded."""
        told = f"a fault of ctxagent's own: {type(error).__name__}: {error}"
        if self._loop is not None and self._loop.log.last_seq:
            from ..record.entries import Note

            data = {"traceback": traceback.format_exception(error)}
            with suppress(CtxagentError):
                self._loop.record(Note(topic="warning", text=told, data=data))
        return CtxagentError(told, hint="Nothing else has ended; /log shows where it came from.")

    async def close(self) -> None:
        if self._unwanted is not None:
            await self._unwanted
        if self._loop is not None:
            await self._loop.close()


async def _close(opening: "asyncio.Future[Loop]") -> None:
    """Close what is still being opened, once it is: nobody wants it any more."""
    with suppress(CtxagentError):
        opened = await opening
        await opened.close()
