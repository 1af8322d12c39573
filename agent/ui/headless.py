"""The headless front ends: results on standard output and a meaningful exit code.

`text` prints only the final answer, `json` one document, `stream-json` every event as one line and
the result last. Everything else goes to standard error. One front end runs one task. The other
serves a program that sends many messages: each message gets a result, and the program can answer
questions and interrupt.
"""

import asyncio
import json
import signal
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, TextIO

from ...tools.system.phrasing import as_sentences, cut_at_word
from ...tools.system.unicode import clean, clean_for
from .. import events
from ..errors import CtxagentError, SessionBusy, UsageError
from ..events import Answer, Question
from ..library.result import INTERRUPTED, Result, result_of
from ..session.entries import Content
from . import context_control, signals
from .stream_input import StreamInput, call_when_reader_goes, event_json
from .tasks import SubagentEvent, Subagents

if TYPE_CHECKING:
    from ..features.result_schema import ResultSchema
    from ..library.agent import Agent, AgentRun
    from ..loop.agent import AgentState

MAX_REASON_CHARS = 300  # of why a subagent has failed
OutputFormat = Literal["text", "json", "stream-json"]
STATUSES: "dict[int, Literal['interrupted', 'limit']]" = {INTERRUPTED: "interrupted", 4: "limit"}


class Headless:
    """A writer of events and the result to standard output and standard error. It interrupts the
    run when the reader of `out` goes away. With `wait` it waits for a session that another process
    has open.
    """

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
        self.schema: ResultSchema | None = None  # schema that results must match
        self.worktree: Mapping[str, str] | None = None  # path and branch of its worktree
        self._agent: AgentState | None = None
        self._run: AgentRun | None = None  # the newest
        self._running: asyncio.Task[int] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._out_is_read = True
        self._subagents = Subagents()
        self._has_result = False  # the result is written, so no more output is allowed
        self.ended: int | None = None  # exit code of the result

    def emit(self, event: events.Event) -> None:
        if self.format == "stream-json" and not self._has_result:
            self._write_if_read(event_json(event))
        if isinstance(event, SubagentEvent):
            self._follow(event)
        elif isinstance(event, events.Notice) and (self.verbose or event.level != "info"):
            self._say(f"{event.level}: {self._prefix(event.agent)}{event.text}")
        elif isinstance(event, events.Retrying):
            self._say(str(event))
        elif self.verbose:
            self._say_verbose(event)

    def _write_if_read(self, line: dict[str, Any]) -> None:
        """Write a line. Interrupt the run if nobody reads `out`."""
        if self._out_is_read:
            try:
                self._line(line)
            except BrokenPipeError:
                self._out_is_read = False
                self._interrupt()

    def _follow(self, event: SubagentEvent) -> None:
        subagent = self._subagents.follow(event)
        if not isinstance(event, events.AgentProgress):
            line = f"subagent {subagent.name} · {subagent.ending or 'started'}"
            reason = event.reason if isinstance(event, events.AgentFinished) else ""
            why = f" · {cut_at_word(as_sentences(reason), MAX_REASON_CHARS)}" if reason else ""
            self._say(line + why)

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

    async def run(self, agent: "Agent", run: "AgentRun") -> int:
        """Make one run of an agent that is not open yet, and return the exit code. SIGINT, SIGTERM
        and SIGHUP interrupt it. Raises BrokenPipeError if nobody reads the result.
        """
        return await self._run_interruptibly(self._run_once(agent, run))

    async def _run_interruptibly(self, run: Coroutine[Any, Any, int]) -> int:
        self._running = asyncio.ensure_future(run)
        with signals.call_on_signals(self._interrupt, signal.SIGINT, *signals.END_SIGNALS):
            try:
                return await self._running
            except asyncio.CancelledError:  # cancelled before the turn began
                self.fail(CtxagentError("interrupted"), INTERRUPTED)
                return INTERRUPTED

    def _interrupt(self) -> None:
        """Stop the turn. After its result is written, cancel the closing of the session, jobs and
        hooks.
        """
        if self._has_result and self._closing is not None:
            self._closing.cancel()
        elif self._run is not None and self._run.is_on:
            self._run.interrupt()
        elif self._running is not None and not self._has_result:
            self._running.cancel()

    async def _run_once(self, agent: "Agent", run: "AgentRun") -> int:
        await self._open(agent)
        try:
            self._run = run
            result = await run
            await self._finish_session(agent, is_ok=result.status == "ok")
            return self._write_result(self._with_current_usage(result))
        finally:
            await self._close(agent)

    async def _finish_session(self, agent: "Agent", *, is_ok: bool) -> None:
        await agent.state.end_subagents()
        if is_ok:
            await agent.finish()
        await agent.state.engine.close()  # so that the cost of a summary in preparation counts

    def _with_current_usage(self, result: Result) -> Result:
        """Return a result with the session's current usage and the total time."""
        ended = events.TurnFinished(result.status, result.text, result.error)
        return result_of(self._agent, ended, time.monotonic() - self.started, result.output)

    async def _close(self, agent: "Agent") -> None:
        self._closing = asyncio.ensure_future(agent.close())
        await asyncio.wait({self._closing})
        if not self._closing.cancelled():
            self._closing.result()

    async def _open(self, agent: "Agent") -> None:
        try:
            await agent.open()
        except SessionBusy as busy:
            if not self.wait:
                raise
            self._say(f"{busy.message}; waiting for it")
            from .conversation.open_session import when_free  # imports the screen modules

            await when_free(agent.open)
        self._agent = agent.state

    def _write_result(self, result: Result) -> int:
        self.ended = code = result.exit_code
        if self.format != "text":
            self._write_document(result)
            return code
        self._has_result = True
        text = result.text
        if self.schema:
            answered = result.status in ("ok", "denied")
            text = self.schema.read(text).document if answered else ""
        if text:
            with signals.ignore_lost_terminal():
                print(clean_for(text, self.out), file=self.out, flush=True)
        if result.error:
            self._say(f"ctxagent: {result.error['message']}")
        elif result.status == "interrupted":
            self._say("ctxagent: interrupted")
        return code

    def fail(self, error: CtxagentError, code: int) -> None:
        """Report an error that prevented the run from starting or from recording."""
        if self.format == "text" or self._has_result:
            self._say(f"ctxagent: {error}")
            return
        shown = {"type": type(error).__name__, "message": str(error)}
        finished = events.TurnFinished(STATUSES.get(code, "error"), "", shown)
        self._write_document(result_of(self._agent, finished, time.monotonic() - self.started))

    def _write_document(self, result: Result) -> None:
        self._has_result = True
        output = {"output": result.output} if self.schema else {}
        worktree = {"worktree": self.worktree} if self.worktree else {}
        self._line({**result.to_json(), **output, **worktree})

    def _line(self, document: dict[str, Any]) -> None:
        print(json.dumps(document, default=str), file=self.out, flush=True)

    def say(self, text: str) -> None:
        """Print a message for the user on standard error."""
        self._say(f"ctxagent: {text}")

    def _say(self, text: str) -> None:
        with suppress(BrokenPipeError), signals.ignore_lost_terminal():
            print(clean(text), file=self.err)  # a log file may be read on a terminal too


if TYPE_CHECKING:
    from ..library.agent import Agent, AgentRun

    NextWords = Callable[[], Content | None]
    MakeRun = Callable[[Content, NextWords], AgentRun]  # (message, source of mid-turn messages)


class StreamHeadless(Headless):
    """A headless front end with one run per message, until the input ends or nobody reads `out`."""

    _input: StreamInput
    _is_next_interrupted = False  # an interrupt arrived before the next run began
    _is_ending = False  # a signal arrived, or nobody reads `out`

    async def ask(self, question: Question) -> Answer | None:
        """Ask the program a question. Returns None if it can no longer answer."""
        return await self._input.ask(question)

    async def run_messages(
        self, agent: "Agent", number: int, first: str | None, make_run: "MakeRun"
    ) -> int:
        """Make a run for `first`, if given, and for each message from file descriptor `number`,
        until the input ends or a signal arrives. Return the exit code of the last run. Raises
        UsageError if there was no message, BrokenPipeError if nobody reads a result.
        """
        self._input = StreamInput(
            number,
            self._write_if_read,
            self._interrupt_turn,
            lambda request: context_control.answer_request(agent.state, request),
        )
        if first is not None:
            self._input.add(first)
        return await self._run_interruptibly(self._run_each(agent, make_run))

    async def _run_each(self, agent: "Agent", make_run: "MakeRun") -> int:
        await self._open(agent)
        call_when_reader_goes(self.out.fileno(), self._lose_reader)
        self._input.start()
        try:
            while (content := await self._input.next()) is not None:
                await self._input.edits_done()
                self._has_result, self.started = False, time.monotonic()
                self._run = make_run(content, self._input.next_mid_turn)
                if self._is_next_interrupted:
                    self._is_next_interrupted = False
                    self._run.interrupt()
                result = await self._run
                is_last = self._is_ending or self._input.is_over
                await self._input.edits_done()
                if is_last:
                    await self._finish_session(agent, is_ok=result.status == "ok")
                self._write_result(self._with_current_usage(result))
                if is_last:
                    break
            else:
                await self._input.edits_done()
                await self._finish_session(agent, is_ok=self.ended == 0)
            if self.ended is None and self._input.has_edited:
                return 0
            if self.ended is None:
                hint = 'Send lines such as {"type": "user", "text": "what to do"}.'
                raise UsageError("no message arrived on standard input", hint=hint)
            return self.ended
        finally:
            await self._close(agent)

    def _interrupt_turn(self) -> bool:
        """Interrupt the current or the next run; return True if there is one."""
        if self._run is not None and self._run.is_on:
            self._run.interrupt()
            return True
        self._is_next_interrupted = self._input.has_waiting
        return self._is_next_interrupted

    def _interrupt(self) -> None:
        """Interrupt the current run, after which the session ends. End the session between runs."""
        self._is_ending = True
        if self._run is not None and self._run.is_on:
            self._run.interrupt()
        elif self._closing is not None:
            self._closing.cancel()
        elif self._running is not None:
            self._running.cancel()

    def _lose_reader(self) -> None:
        self._out_is_read = False
        self._interrupt()
