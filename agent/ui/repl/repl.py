"""The REPL: words in, turns out, in one session at a time.

The prompt is painted first; only then is the session opened, in the background, and whatever is
typed meanwhile waits for it. Words and commands are served one after another, so that a person can
type ahead while the agent works. The screen and the transcript decide how things look.
"""

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from prompt_toolkit.input import Input

from ...errors import CtxagentError, UsageError
from ...events import Event, Notice, UserSaid, Waiting
from .. import signals, status
from ..commands import Command, CommandContext, completions_for, parse
from ..conversation.open_session import Conversation
from ..conversation.questions import Questions
from ..conversation.running import REDRAW_INTERVAL_S, BackgroundTasks, RunningTask
from ..conversation.services import ReplServices
from ..screen import Offer
from ..terminal.choose import screen_for
from ..terminal.output import BatchedOutput
from .input_queue import InputQueue

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ...config.settings import UiSettings
    from ...loop.agent import Agent
    from ..transcript import Transcript

FINISH_TIMEOUT_S = 60.0  # for the summary at the end of a session
INTERRUPT_TIMEOUT_S = 5.0  # for the end of an interrupted turn, when the person leaves

EXIT_CODES = {"ok": 0, "error": 1, "denied": 3, "limit": 4, "interrupted": 130}


class Repl:
    """The host of a screen, which serves what the person submits.

    `input` and `output` are those of the process when not given; an `output` that is no terminal is
    written in lines.
    """

    def __init__(
        self,
        services: ReplServices,
        ui: "UiSettings",
        *,
        input: Input | TextIO | None = None,
        output: BatchedOutput | TextIO | None = None,
    ) -> None:
        self._services = services
        self.screen = screen_for(
            self, cwd=services.cwd, ui=ui, history=services.history, input=input, output=output
        )
        self._shown: Transcript | None = None
        self._waiting = InputQueue()
        self._sending = ""  # words that waited and are not yet recorded
        self._task = RunningTask(self.screen.touch)
        questions = Questions(
            self.screen, lambda q: self._transcript().ask(q), self._at_once, services.rules
        )
        self._questions = questions
        self.conversation = Conversation(services, self.emit, questions.permission)
        self._context = CommandContext(
            services, self.conversation, self.screen, questions, self._transcript, self._task
        )
        self._background = BackgroundTasks(self.screen.exit)  # `run` raises a fault in it
        self._watching = False
        self._scripted = False
        self._ended = False  # nothing is drawn any more
        self._exit_code = 0

    async def run(self, script: Sequence[str] = (), *, pace: float = 0.0) -> int:
        """Serve until the person leaves, and return the exit code.

        With a `script`, its words are typed, `pace` seconds a character, each once the answer to
        the one before is there, and permission is always given; it ends with the exit code of the
        first turn that failed. An interrupt ends a script; a signal to end the process ends all.
        """
        self._events, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self._scripted = self._questions.always_yes = bool(script)
        where = status.short_path(self._services.cwd)
        self.screen.greet(f"ctxagent {self._services.version} · {where} · /help")

        def begin() -> None:
            threading.Thread(target=self._services.warm, daemon=True).start()
            self._background.start(self._serve())
            if script:
                self._background.start(self._play(script, pace))

        with signals.call_on_signals(self._stop, *signals.END_SIGNALS):
            try:
                await self.screen.run(begin)
            finally:
                await self._end()
        return self._exit_code

    # The host of the screen: what it asks and tells.

    @property
    def working(self) -> bool:
        waits = self.conversation.is_opening and bool(self._waiting)
        return self._task.running or self._scripted or waits

    def submit(self, words: str) -> None:
        if self._at_once(words):
            self._waiting.drop()
        else:
            self._waiting.add(words)
        self.screen.touch()

    def interrupt(self) -> None:
        """Stop what runs, and give words that wait back: they were meant for its end."""
        if self._scripted:
            self._stop()
        elif self._task.cancel() or not self._task.running:
            if unsent := self._waiting.take_back():
                self.screen.restore("\n".join(unsent))
            self.screen.touch()

    def earlier(self, words: str) -> str | None:
        self.screen.touch()
        return self._waiting.earlier(words)

    def later(self, words: str) -> str | None:
        self.screen.touch()
        return self._waiting.later(words)

    def drop(self) -> None:
        self._waiting.drop()

    async def offers(self, place: str) -> Sequence[Offer]:
        return await completions_for(self._context, place)

    def leave(self) -> None:
        self.screen.exit()

    def finish(self) -> None:
        async def leave_when_done() -> None:
            await self._waiting.idle()
            self.leave()

        if not self._scripted:
            self._background.start(leave_when_done())

    def unfold(self) -> None:
        self._background.start(self._finish_work(self._context.unfold()))

    def cycle_mode(self) -> None:
        self.conversation.cycle_mode()
        self.screen.touch()

    def live(self) -> "list[RenderableType]":
        words = [*filter(None, [self._sending]), *self._waiting]
        if not words and self._shown is None:
            return []
        from ..render import render

        shown = self._transcript().live()
        return [*shown, *([""] if words else []), *render.queue(words)]

    def status(self, width: int) -> list[status.Fragment]:
        return self.conversation.status(width)

    # Events of the conversation.

    def emit(self, event: Event) -> None:
        """Take an event, from any thread."""
        if threading.get_ident() == self._thread:
            self._show(event)
        else:
            self._events.call_soon_threadsafe(self._show, event)

    def _show(self, event: Event) -> None:
        if isinstance(event, UserSaid):
            self._sending = ""
        self._transcript().show(event)
        if self._ended and isinstance(event, Waiting) and event.what:
            self.screen.greet(f"waiting for {event.what}")
        self.screen.touch()

    # Serving what is submitted.

    async def _serve(self) -> None:
        """Open the session, then serve what is submitted until cancelled."""
        await asyncio.to_thread(_load_transcript)
        try:
            async with self._task.redrawing():
                await self._context.reopen()
        except CtxagentError as error:
            self.tell(error)
        while True:
            self.screen.touch()
            await self._serve_one(await self._waiting.next())
            if not self._waiting:
                self.screen.rest()

    async def _serve_one(self, words: str) -> None:
        try:
            found = parse(words)
        except UsageError as error:
            self._echo(words)
            self.tell(error)
            return
        if found:
            await self._task.run(self._command(words, *found))
            self._context.doing("")
        else:
            self._sending = words
            await self._take_turn(words)
            if self._sending:
                self.screen.restore(self._sending)
                self._sending = ""

    async def _take_turn(self, words: str) -> None:
        """Run one turn until it has ended by itself or by an interrupt."""
        from ...loop.turn import run_turn  # loaded with the session, after the first paint

        try:
            if not self.conversation.is_open:
                async with self._task.redrawing():
                    await self._context.reopen()
            self.conversation.begin_turn()
            finished = await self._task.run(run_turn(self.conversation.agent, words))
            if finished is not None:
                self._set_exit_code(EXIT_CODES[finished.status])
        except CtxagentError as error:
            self._transcript().abandon()
            self.tell(error)
        self.conversation.end_turn()
        if not self._watching:
            self._background.start(self._watch())

    async def _watch(self) -> None:
        """Redraw the status line as long as something goes on after a turn."""
        self._watching = True
        while self.conversation.works_in_background:
            await asyncio.sleep(REDRAW_INTERVAL_S)
            self.screen.touch()
        self._watching = False

    def _at_once(self, words: str) -> bool:
        """Start a command that need not wait for what runs; return whether the words are one."""
        try:
            found = parse(words)
        except UsageError:
            return False
        if not found or not found[0].anytime or not (self._task.running or found[0].name == "quit"):
            return False
        self._background.start(self._command(words, *found))
        return True

    async def _command(self, words: str, command: Command, argument: str) -> None:
        self._echo(words)
        session = self.conversation.session
        try:
            await self._finish_work(command.run(self._context, argument))
        except asyncio.CancelledError:
            same = self.conversation.session == session
            became = "nothing has changed" if same else "another session is open now"
            self._transcript().show(Notice("info", f"interrupted; {became}"))
            raise

    async def _finish_work(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a command to its end. What goes wrong in it is shown, and ends nothing else."""
        task = asyncio.create_task(work)
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait({task})
            if task.cancelled():
                raise
        error = None if task.cancelled() else task.exception()
        if isinstance(error, CtxagentError):
            self.tell(error)
        elif isinstance(error, Exception):
            self.tell(self.conversation.record_fault(error))
        elif error is not None:
            raise error

    def _echo(self, words: str) -> None:
        from ..render import render

        if not self.screen.echoes:
            self._transcript().put("words", render.words(words))

    async def _play(self, script: Sequence[str], pace: float) -> None:
        for words in script:
            await self._waiting.idle()
            await self.screen.type(words, pace)
            self.submit(words)
        await self._waiting.idle()
        self.leave()

    def _stop(self) -> None:
        self._exit_code = EXIT_CODES["interrupted"]
        self.leave()

    async def _end(self) -> None:
        """End everything that runs, and close the session."""
        unsent = self._waiting.take_back()
        await self._task.end(INTERRUPT_TIMEOUT_S)
        await self._background.end()
        try:
            if unsent:
                from ..render import render

                self._context.put(
                    *(render.notice("info", f"not sent: {words}") for words in unsent)
                )
            if self.conversation.is_open and not self._scripted:
                await self._say_goodbye(self.conversation.agent)
        finally:
            self._ended = True
            await self.conversation.close()

    async def _say_goodbye(self, agent: "Agent") -> None:
        """Do what the policy says at the end of a session, in limited time, and say how to go on
        with it."""
        if not agent.totals.turns:
            return
        try:
            await asyncio.wait_for(agent.finish(), FINISH_TIMEOUT_S)
        except (CtxagentError, TimeoutError) as error:
            self.screen.greet(f"no summary at the end: {error or 'it took too long'}")
        self.screen.greet(f"Go on with: ctxagent --resume {self.conversation.session}")

    def tell(self, error: CtxagentError) -> None:
        from ..render import render

        self._set_exit_code(error.exit_code)
        self._transcript().put("error", render.failure(error.message, error.hint))
        self.screen.touch()

    def _set_exit_code(self, code: int) -> None:
        if self._scripted and not self._exit_code:
            self._exit_code = code

    def _transcript(self) -> "Transcript":
        if self._shown is None:
            from ..transcript import Transcript

            self._shown = Transcript(
                self.screen.put,
                echo=not self.screen.echoes,
                paints=self.screen.paints,
                speaks=self.screen.speaks,
                share=self.conversation.share,
            )
        return self._shown


def _load_transcript() -> None:
    """Import what finished text needs, in a thread, while the person already types."""
    from .. import transcript  # noqa: F401
