"""The REPL: words in, turns out, one conversation at a time.

The prompt is painted first; only then is the session opened, in the background, and whatever is
typed meanwhile waits for it. Words and commands are served one after another, so that
a person can type ahead while the agent works. How things look is the screen's and the transcript's
concern.
"""

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from prompt_toolkit.input import Input

from ..errors import CtxagentError, UsageError
from ..events import Event, Notice, UserSaid
from ..events import Waiting as WaitedFor
from . import status
from .backing import Backing
from .commands import Command, Offer, fitting, parse
from .conversation import Conversation
from .desk import CommandDesk
from .questions import Questions
from .screen import signals
from .screen.choice import screen_for
from .screen.output import SteadyOutput
from .waiting import Waiting
from .work import BEAT, Background, Work

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ..loop import Loop
    from ..settings import UiSettings
    from .transcript import Transcript

FINISHING = 60.0  # seconds for what is done at the end of a session
PATIENCE = 5.0  # seconds that leaving waits for an interrupted turn

EXIT_CODES = {"ok": 0, "error": 1, "denied": 3, "limit": 4, "interrupted": 130}


class Repl:
    """`input` and `output` are those of the process when not given; an `output` that is no terminal
    is written in lines."""

    def __init__(
        self,
        backing: Backing,
        ui: "UiSettings",
        *,
        input: Input | TextIO | None = None,
        output: SteadyOutput | TextIO | None = None,
    ) -> None:
        self._backing = backing
        self.screen = screen_for(
            self, cwd=backing.cwd, ui=ui, history=backing.history, input=input, output=output
        )
        self._shown: Transcript | None = None
        self._waiting = Waiting()
        self._sending = ""  # words that waited and are not yet recorded
        self._work = Work(self.screen.touch)
        self._questions = Questions(
            self.screen, lambda q: self._transcript().ask(q), self._at_once, backing.rules
        )
        self.conversation = Conversation(backing, self.emit, self._questions.permission)
        self._desk = CommandDesk(
            backing,
            self.conversation,
            self.screen,
            self._questions,
            self._transcript,
            self._work,
        )
        self._background = Background(self.screen.exit)  # a fault in it is raised by `run`
        self._watching = False
        self._scripted = False
        self._ended = False  # nothing is drawn any more
        self._exit_code = 0

    async def run(self, script: Sequence[str] = (), *, pace: float = 0.0) -> int:
        """Serve until the person leaves; the exit code.

        With a `script` its words are typed, `pace` seconds a character, each once the answer to
        the one before is there, and permission is always given; then it ends, with the code of the
        first turn that failed. An interrupt ends a script; the system's wish to end, anything.
        """
        self._events, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self._scripted = self._questions.assent = bool(script)
        where = status.short(self._backing.cwd)
        self.screen.greet(f"ctxagent {self._backing.version} · {where} · /help")

        def begin() -> None:
            threading.Thread(target=self._backing.warm, daemon=True).start()
            self._background.start(self._serve())
            if script:
                self._background.start(self._play(script, pace))

        with signals.heard(self._stop, *signals.ENDINGS):
            try:
                await self.screen.run(begin)
            finally:
                await self._end()
        return self._exit_code

    # What the screen asks and tells.

    @property
    def working(self) -> bool:
        waits = self.conversation.is_opening and bool(self._waiting)
        return self._work.running or self._scripted or waits

    def submit(self, words: str) -> None:
        if self._at_once(words):
            self._waiting.drop()
        else:
            self._waiting.add(words)
        self.screen.touch()

    def interrupt(self) -> None:
        """Stop what runs. Words that wait are given back: they were meant for its end."""
        if self._scripted:
            self._stop()
        elif self._work.cancel() or not self._work.running:
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
        return await fitting(self._desk, place)

    def leave(self) -> None:
        self.screen.exit()

    def finish(self) -> None:
        async def leave_when_done() -> None:
            await self._waiting.idle()
            self.leave()

        if not self._scripted:
            self._background.start(leave_when_done())

    def unfold(self) -> None:
        self._background.start(self._settled(self._desk.unfold()))

    def cycle_mode(self) -> None:
        self.conversation.cycle_mode()
        self.screen.touch()

    def live(self) -> "list[RenderableType]":
        words = [*filter(None, [self._sending]), *self._waiting]
        if not words and self._shown is None:
            return []
        from .look import render

        shown = self._transcript().live()
        return [*shown, *([""] if words else []), *render.queue(words)]

    def status(self, width: int) -> list[status.Fragment]:
        return self.conversation.status(width)

    # What a conversation tells and asks.

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
        if self._ended and isinstance(event, WaitedFor) and event.what:
            self.screen.greet(f"waiting for {event.what}")
        self.screen.touch()

    # The work.

    async def _serve(self) -> None:
        """Open the session, then serve what is submitted, for good."""
        await asyncio.to_thread(_load_transcript)
        try:
            async with self._work.beating():
                await self._desk.reopen()
        except CtxagentError as error:
            self.tell(error)
        while True:
            self.screen.touch()
            await self._one(await self._waiting.next())
            if not self._waiting:
                self.screen.rest()

    async def _one(self, words: str) -> None:
        try:
            found = parse(words)
        except UsageError as error:
            self._echo(words)
            self.tell(error)
            return
        if found:
            await self._work.run(self._command(words, *found))
            self._desk.doing("")
        else:
            self._sending = words
            await self._take_turn(words)
            if self._sending:
                self.screen.restore(self._sending)
                self._sending = ""

    async def _take_turn(self, words: str) -> None:
        """One turn, until it has ended by itself or by an interrupt."""
        try:
            if not self.conversation.is_open:
                async with self._work.beating():
                    await self._desk.reopen()
            self.conversation.begin_turn()
            finished = await self._work.run(self.conversation.loop.turn(words))
            if finished is not None:
                self._note(EXIT_CODES[finished.status])
        except CtxagentError as error:
            self._transcript().abandon()
            self.tell(error)
        self.conversation.end_turn()
        if not self._watching:
            self._background.start(self._watch())

    async def _watch(self) -> None:
        """Keep the status line true, for as long as something goes on after a turn."""
        self._watching = True
        while self.conversation.runs_beside:
            await asyncio.sleep(BEAT)
            self.screen.touch()
        self._watching = False

    def _at_once(self, words: str) -> bool:
        """Whether the words are a command that need not wait for what runs; it is started then."""
        try:
            found = parse(words)
        except UsageError:
            return False
        if not found or not found[0].anytime or not (self._work.running or found[0].name == "quit"):
            return False
        self._background.start(self._command(words, *found))
        return True

    async def _command(self, words: str, command: Command, argument: str) -> None:
        self._echo(words)
        session = self.conversation.session
        try:
            await self._settled(command.run(self._desk, argument))
        except asyncio.CancelledError:
            same = self.conversation.session == session
            became = "nothing has changed" if same else "another session is open now"
            self._transcript().show(Notice("info", f"interrupted; {became}"))
            raise

    async def _settled(self, work: Coroutine[Any, Any, None]) -> None:
        """Let it come to its end. What goes wrong in it is told, and ends nothing else."""
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
            self.tell(self.conversation.fault(error))
        elif error is not None:
            raise error

    def _echo(self, words: str) -> None:
        from .look import render

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
        """Let everything that runs come to its end."""
        unsent = self._waiting.take_back()
        await self._work.end(PATIENCE)
        await self._background.end()
        try:
            if unsent:
                from .look import render

                self._desk.put(*(render.notice("info", f"not sent: {words}") for words in unsent))
            if self.conversation.is_open and not self._scripted:
                await self._part(self.conversation.loop)
        finally:
            self._ended = True
            await self.conversation.close()

    async def _part(self, loop: "Loop") -> None:
        """What the policy does at the end of a session, for as long as a person may wait; and how
        to go on with it."""
        if not loop.totals.turns:
            return
        try:
            await asyncio.wait_for(loop.finish(), FINISHING)
        except (CtxagentError, TimeoutError) as error:
            self.screen.greet(f"no summary at the end: {error or 'it took too long'}")
        self.screen.greet(f"Go on with: ctxagent --resume {self.conversation.session}")

    def tell(self, error: CtxagentError) -> None:
        from .look import render

        self._note(error.exit_code)
        self._transcript().put("error", render.failure(error.message, error.hint))
        self.screen.touch()

    def _note(self, code: int) -> None:
        if self._scripted and not self._exit_code:
            self._exit_code = code

    def _transcript(self) -> "Transcript":
        if self._shown is None:
            from .transcript import Transcript

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
    from . import transcript  # noqa: F401
