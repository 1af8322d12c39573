"""The headless front end for a program that sends many messages. Each message gets a result; the
program also answers questions and can interrupt.
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..events import Answer, Question
from ..session.entries import Content
from .headless import Headless
from .stream_input import StreamInput, call_when_reader_goes

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
        self._input = StreamInput(number, self._write_if_read, self._interrupt_turn)
        if first is not None:
            self._input.add(first)
        return await self._run_interruptibly(self._run_each(agent, make_run))

    async def _run_each(self, agent: "Agent", make_run: "MakeRun") -> int:
        await self._open(agent)
        call_when_reader_goes(self.out.fileno(), self._lose_reader)
        self._input.start()
        try:
            while (content := await self._input.next()) is not None:
                self._has_result, self.started = False, time.monotonic()
                self._run = make_run(content, self._input.next_mid_turn)
                if self._is_next_interrupted:
                    self._is_next_interrupted = False
                    self._run.interrupt()
                result = await self._run
                is_last = self._is_ending or self._input.is_over
                if is_last:
                    await self._finish_session(agent, is_ok=result.status == "ok")
                self._write_result(self._with_current_usage(result))
                if is_last:
                    break
            else:
                await self._finish_session(agent, is_ok=self.ended == 0)
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
