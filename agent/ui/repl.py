"""The REPL: words in, turns out, one conversation at a time.

The prompt is painted first; only then is the session opened, in the background, and whatever is
typed meanwhile waits for it. Words and commands are served one after another, so that
a person can type ahead while the agent works. How things look is the screen's and the transcript's
concern.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from prompt_toolkit.input import Input

from ..errors import CtxagentError, UsageError
from ..events import Event, Notice, UserSaid
from . import mode, signals, status
from .commands import MODES, Command, parse
from .opening import Opener, keep_model, keep_single, last_exchange
from .questions import Questions
from .terminal import SteadyOutput, screen_for
from .waiting import Waiting
from .work import Background, Work

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ..loop import Loop
    from ..settings import UiSettings
    from .subagents import Subagents
    from .transcript import Transcript

FINISHING = 60.0  # seconds for what is done at the end of a session
PATIENCE = 5.0  # seconds that leaving waits for an interrupted turn

EXIT_CODES = {"ok": 0, "error": 1, "denied": 3, "limit": 4, "interrupted": 130}


class Repl:
    """`history` is a file, None for none. `warm` runs in a thread once the prompt is painted.

    `sessions` gives the project's logs, newest first; `copy` copies one up to an entry; `settings`
    gives rows of key, value and origin, `checks` what was found wrong or right; `set_model` changes
    a conversation's model. `input` and `output` are those of the process when not given; an
    `output` that is no terminal is written in lines.
    """

    def __init__(
        self,
        opener: Opener,
        *,
        cwd: Path,
        history: Path | None,
        ui: "UiSettings",
        version: str,
        warm: Callable[[], None],
        sessions: Callable[[], Sequence[Path]] = list,
        copy: Callable[[Path, int], Path] = keep_single,
        settings: Callable[[], Sequence[Sequence[str]]] = list,
        checks: Callable[[], Sequence[Sequence[str]]] = list,
        set_model: Callable[["Loop", str], None] = keep_model,
        input: Input | TextIO | None = None,
        output: SteadyOutput | TextIO | None = None,
    ) -> None:
        self.cwd = cwd
        self.sessions = sessions
        self.settings = settings
        self.checks = checks
        self.screen = screen_for(self, cwd=cwd, ui=ui, history=history, input=input, output=output)
        self._opener = opener
        self._theme = ui.theme
        self._version = version
        self._warm = warm
        self._copy = copy
        self._set_model = set_model
        self._loop: Loop | None = None
        self._model = ""  # chosen here, for every conversation from then on
        self._mode_then: str = ""  # of the newest turn
        self._opening = True
        self._branch = status.branch(cwd)
        self._shown: Transcript | None = None
        self._waiting = Waiting()
        self._sending = ""  # words that waited and are not yet recorded
        self._work = Work(self.screen.touch)
        self._questions = Questions(self.screen, lambda q: self._transcript().ask(q), self._at_once)
        self._background = Background(self.screen.exit)  # a fault in it is raised by `run`
        self._scripted = False
        self._exit_code = 0

    async def run(self, script: Sequence[str] = (), *, pace: float = 0.0) -> int:
        """Serve until the person leaves; the exit code.

        With a `script` its words are typed, `pace` seconds a character, each once the answer to
        the one before is there, and permission is always given; then it ends, with the code of the
        first turn that failed. An interrupt ends a script; the system's wish to end, anything.
        """
        self._events, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self._scripted = self._questions.assent = bool(script)
        self.screen.greet(f"ctxagent {self._version} · {status.short(self.cwd)} · /help")

        def begin() -> None:
            threading.Thread(target=self._warm, daemon=True).start()
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
        return self._work.running or self._scripted

    def submit(self, words: str) -> None:
        if self._at_once(words):
            return
        self._waiting.add(words)
        self.screen.touch()

    def interrupt(self) -> None:
        """Stop what runs. Words that wait are given back: they were meant for its end."""
        if self._scripted:
            self._stop()
        elif self._work.cancel() and (unsent := self.recall()):
            self.screen.restore(unsent)

    def recall(self) -> str:
        self.screen.touch()
        return self._waiting.take_back()

    def leave(self) -> None:
        self.screen.exit()

    def finish(self) -> None:
        async def leave_when_done() -> None:
            await self._waiting.idle()
            self.leave()

        if not self._scripted:
            self._background.start(leave_when_done())

    def cycle_mode(self) -> None:
        if self._loop is not None:
            approval = self._loop.approval
            approval.mode = MODES[(MODES.index(approval.mode) + 1) % len(MODES)]
            self.screen.touch()

    def live(self) -> "list[RenderableType]":
        words = [*filter(None, [self._sending]), *self._waiting]
        if not words and self._shown is None:
            return []
        from . import render

        return [*self._transcript().live(), *map(render.waiting, words)]

    def status(self, width: int) -> list[status.Fragment]:
        if self._loop is None:
            return [("", "opening the session …" if self._opening else "no session is open")]
        window = self._loop.measured()
        now = status.Status(
            model=self._loop.model.id,
            mode=self._loop.approval.mode,
            branch=self._branch,
            share=window.share,
            level=window.level,
            cost_usd=self._loop.totals.cost_usd,
            agents=len(self._loop.context.agents),
            jobs=sum(job.process.running for job in self._loop.context.jobs.values()),
        )
        return status.line(now, width)

    # What a command may see and do.

    @property
    def loop(self) -> "Loop":
        if self._loop is None:
            raise CtxagentError("no session is open", hint="/clear opens a fresh one.")
        return self._loop

    @property
    def session(self) -> str:
        return self._loop.log.path.parent.name if self._loop else ""

    @property
    def subagents(self) -> "Subagents":
        return self._transcript().subagents

    def put(self, *renderables: "RenderableType") -> None:
        self._transcript().put("command", *renderables)
        self.screen.touch()

    async def reopen(
        self, *, resume: str | None = None, fork: bool = False, prior: str | None = None
    ) -> None:
        opened = await self._opener(
            self.emit, self._questions.permission, resume=resume, fork=fork, prior=prior
        )
        left, self._loop = self._loop, opened
        self._mode_then = opened.approval.mode
        if left is not None:
            opened.approval.mode, opened.effort = left.approval.mode, left.effort
            await left.close()
        if opened.log.last_seq and not fork:
            from . import render

            said, answer = await asyncio.to_thread(lambda: last_exchange(opened.log.entries()))
            self._transcript().put("recap", render.recap(said, answer))
        if self._model:
            self._set_model(opened, self._model)

    def copy(self, upto: int) -> str:
        return self._copy(self.loop.log.path, upto).parent.name

    def doing(self, text: str) -> None:
        self._transcript().doing(text)
        self.screen.touch()

    async def choose(self, choices: str, keys: str) -> str:
        return await self._questions.choose(choices, keys)

    def offer(self, words: str) -> None:
        self.screen.restore(words)

    async def edit(self, text: str) -> str:
        return await self.screen.edit(text)

    def set_model(self, id: str) -> None:
        self._set_model(self.loop, id)
        self._model = id

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
        self.screen.touch()

    # The work.

    async def _serve(self) -> None:
        """Open the session, then serve what is submitted, for good."""
        await asyncio.to_thread(_load_transcript)
        try:
            await self.reopen()
        except CtxagentError as error:
            self._tell(error)
        self._opening = False
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
            self._tell(error)
            return
        if found and found[0].slow:
            await self._work.run(self._command(words, *found))
            self.doing("")
        elif found:
            await self._command(words, *found)
        else:
            self._sending = words
            await self._take_turn(words)
            if self._sending:
                self.screen.restore(self._sending)
                self._sending = ""

    async def _take_turn(self, words: str) -> None:
        """One turn, until it has ended by itself or by an interrupt."""
        try:
            if self._loop is None:
                await self.reopen()
            mode.tell(self.loop, self._mode_then)
            self._mode_then = self.loop.approval.mode
            finished = await self._work.run(self.loop.turn(words))
            if finished is not None:
                self._note(EXIT_CODES[finished.status])
        except CtxagentError as error:
            self._tell(error)
        self._branch = status.branch(self.cwd)

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
        try:
            await command.run(self, argument)
        except CtxagentError as error:
            self._tell(error)
        except asyncio.CancelledError:
            self._transcript().show(Notice("info", "interrupted; nothing has changed"))
            raise

    def _echo(self, words: str) -> None:
        from . import render

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
        """Let everything that runs come to its end, and say how to go on."""
        unsent = self.recall()
        await self._work.end(PATIENCE)
        await self._background.end()
        try:
            if unsent:
                from . import render

                self.put(render.notice("info", f"not sent: {unsent}"))
            if self._loop is not None and self._loop.totals.turns and not self._scripted:
                await self._finish(self._loop)
                self.screen.greet(f"Go on with: ctxagent --resume {self.session}")
        finally:
            if self._loop is not None:
                await self._loop.close()

    async def _finish(self, loop: "Loop") -> None:
        """What the policy does at the end of a session, for as long as a person may wait."""
        try:
            await asyncio.wait_for(loop.finish(), FINISHING)
        except (CtxagentError, TimeoutError) as error:
            self.screen.greet(f"no summary at the end: {error or 'it took too long'}")

    def _tell(self, error: CtxagentError) -> None:
        from . import render

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
                theme=self._theme,
                echo=not self.screen.echoes,
                paints=self.screen.paints,
            )
        return self._shown


def _load_transcript() -> None:
    """Import what finished text needs, in a thread, while the person already types."""
    from . import transcript  # noqa: F401
