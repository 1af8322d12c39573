"""The headless front end for a program that talks over many turns: a message a turn, a result a
turn, questions to the program, and interrupts."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ..errors import CtxagentError, RecordError, ToolError, UsageError
from ..events import Answer, Question, TurnFinished
from ..session.entries import Content
from .headless import Headless
from .stream_input import StreamInput, call_when_reader_goes

if TYPE_CHECKING:
    from ..loop.agent import Agent
    from ..loop.attachments import AttachedTo

    Expand = Callable[["Agent", Content], Awaitable[Content]]  # the words that a message stands for


class StreamHeadless(Headless):
    """Runs a turn for each message until the input ends or nobody reads `out` any more."""

    _input: StreamInput
    _turn: asyncio.Task[TurnFinished] | None = None
    _is_next_interrupted = False  # the interrupt came before its turn began
    _is_ending = False  # a signal came, or nobody reads any more

    async def ask(self, question: Question) -> Answer | None:
        """Put a question to the program; None once it can answer no more."""
        return await self._input.ask(question)

    async def run_messages(
        self,
        opener: Callable[[], "Agent"],
        number: int,
        first: str | None,
        expand: "Expand",
        attached_to: "AttachedTo",
    ) -> int:
        """Run a turn for `first`, if there is one, and for each message from the descriptor
        `number`, to the end of the input or a signal; return the exit code of the last one. Raises
        UsageError where there was no message, BrokenPipeError when nobody reads a result."""
        self._input = StreamInput(number, self._write_if_read, self._interrupt_turn)
        if first is not None:
            self._input.add(first)
        return await self._run_interruptibly(self._run_turns(opener, expand, attached_to))

    async def _run_turns(
        self, opener: Callable[[], "Agent"], expand: "Expand", attached_to: "AttachedTo"
    ) -> int:
        self._agent = agent = await self._opened(opener)
        call_when_reader_goes(self.out.fileno(), self._lose_reader)
        self._input.start()
        try:
            while (content := await self._input.next()) is not None:
                self._has_result, self.started = False, time.monotonic()
                finished = await self._run_turn(agent, content, expand, attached_to)
                is_last = self._is_ending or self._input.is_over
                if is_last:
                    await self._finish_session(agent, is_ok=finished.status == "ok")
                self._finish(finished)
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

    async def _run_turn(
        self, agent: "Agent", content: Content, expand: "Expand", attached_to: "AttachedTo"
    ) -> TurnFinished:
        from ..loop.turn import run_turn  # loaded with the session

        async def run() -> TurnFinished:
            words = await expand(agent, content)
            return await run_turn(
                agent, words, self._input.next_mid_turn, attached_to, schema=self.schema
            )

        if self._is_next_interrupted:
            self._is_next_interrupted = False
            return TurnFinished("interrupted", "")
        self._turn = asyncio.ensure_future(run())
        try:
            await asyncio.wait({self._turn})
            return self._turn.result()
        except asyncio.CancelledError:  # before the turn had begun
            return TurnFinished("interrupted", "")
        except RecordError:
            raise
        except (CtxagentError, ToolError) as error:  # what the message called cannot be done
            return TurnFinished("error", "", {"type": type(error).__name__, "message": str(error)})
        finally:
            self._turn = None

    def _interrupt_turn(self) -> bool:
        """End the turn that runs or is about to begin; return whether there is one."""
        if self._turn is not None:
            self._turn.cancel()
            return True
        self._is_next_interrupted = self._input.has_waiting
        return self._is_next_interrupted

    def _interrupt(self) -> None:
        """End the turn that runs, and then the session; between turns the session."""
        self._is_ending = True
        if self._turn is not None:
            self._turn.cancel()
        elif self._closing is not None:
            self._closing.cancel()
        elif self._running is not None:
            self._running.cancel()

    def _lose_reader(self) -> None:
        self._out_is_read = False
        self._interrupt()
