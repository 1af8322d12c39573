"""The REPL: reads user input and runs turns, in one session at a time.

The prompt is painted before the session opens. The session opens in the background, and input waits
for it. Messages and commands are served in order, so the user can type ahead while the agent works.
During a turn, a queued message may be sent with the turn's next model call. The screen and the
transcript define the appearance.
"""

import asyncio
import signal
import threading
import time
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from prompt_toolkit.input import Input

from ...config.keyboard import DEFAULT_KEYS, key_name
from ...errors import CtxagentError, NoCredentials, UsageError
from ...events import Event, Notice, UserSaid, Waiting
from .. import signals, status
from ..commands import (
    Command,
    CommandContext,
    all_commands,
    ask_key_again,
    completions_for,
    first_start,
    parse,
    pick_recording,
    pick_session,
    read_command_files,
)
from ..conversation.open_session import (
    REDRAW_INTERVAL_S,
    BackgroundTasks,
    Conversation,
    ConversationServices,
    RunningTask,
)
from ..conversation.questions import Questions
from ..screen import Offer
from ..terminal.choose import screen_for
from ..terminal.output import BatchedOutput
from .configured_commands import NoticeCommand, StatusCommand
from .input_queue import InputQueue

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ...config.keyboard import KeyboardSettings
    from ...config.settings import UiSettings
    from ...loop.agent import AgentState
    from ..transcript import Transcript

HINTS = "@file attaches a file · !command runs it yourself · {cycle_mode}: permission mode"
LEAVE_COMMAND = "exit"  # runs at once
AFTER_CALL, AFTER_TURN = "after call", "after turn"  # when a queued message is sent
SPOKEN_TIMES = {
    AFTER_CALL: "goes to the agent after the running call",
    AFTER_TURN: "waits for the end of the turn",
}
INTERRUPT_TIMEOUT_S = 5.0  # limit for an interrupted turn to end on exit

EXIT_CODES = {"ok": 0, "error": 1, "denied": 3, "limit": 4, "interrupted": 130}


class Repl:
    """The host of a screen, which serves the user's input.

    `input` and `output` default to the streams of the process. If `output` is not a terminal, the
    plain line screen is used.
    """

    def __init__(
        self,
        services: ConversationServices,
        ui: "UiSettings",
        keys: "KeyboardSettings" = DEFAULT_KEYS,
        *,
        input: Input | TextIO | None = None,
        output: BatchedOutput | TextIO | None = None,
    ) -> None:
        self._services = services
        self.screen = screen_for(
            self,
            cwd=services.cwd,
            ui=ui,
            keys=keys,
            history=services.history,
            input=input,
            output=output,
        )
        self._shown: Transcript | None = None
        self._waiting = InputQueue()
        self._sending = ""  # the message being sent, not yet recorded
        self._in_turn = False
        self._enter_waits = ui.enter_while_working == "after-turn"
        self._task = RunningTask(self.screen.request_repaint)
        questions = Questions(
            self.screen,
            self._transcript,
            lambda mode: self.conversation.set_mode(mode),
            self._command_at_question,
            self.submit,
            services.rules,
        )
        self._questions = questions
        self.conversation = Conversation(services, self.emit, questions.permission)
        self._context = CommandContext(
            services,
            self.conversation,
            self.screen,
            questions,
            self._transcript,
            self._task,
            self._waiting.add_first,
        )
        self._background = BackgroundTasks(
            self.screen.exit
        )  # on an exception, the screen ends and `run` raises it
        start = self._background.start
        self._notice_command = NoticeCommand(ui.notify_command, start, self._warn)
        self._status_command = StatusCommand(
            services.status_command, start, self._warn, self.screen.request_repaint
        )
        picks = services.choice.pick or services.choice.pick_recording
        self.conversation.is_opening = not picks
        self._watching = False
        self._scripted = False
        self._asks_provider = False  # at a first start without a key
        self._ended = False  # the screen no longer draws
        self._exit_code = 0

    async def run(
        self, script: Sequence[str] = (), *, pace: float = 0.0, first: str | None = None
    ) -> int:
        """Serve until the user leaves, and return the exit code. `first` is submitted at once.

        With a `script`, type each of its messages at `pace` seconds per character, after the
        previous one is answered, and always allow permissions. A script ends with the exit code of
        the first turn that failed. An interrupt ends a script; an end signal ends any run.
        """
        self._events, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self._scripted = self._questions.always_yes = bool(script)
        where = status.short_path(self._services.cwd)
        self.screen.print_line(f"ctxagent {self._services.version} · {where} · /help")
        if self.screen.paints and not script:
            self.screen.print_line(HINTS.format(cycle_mode=key_name(self.screen.keys.cycle_mode)))
        self._check_key()

        def begin() -> None:
            threading.Thread(target=self._services.warm, daemon=True).start()
            self._background.start(self._serve())
            if first is not None:
                if self.screen.echoes:  # `first` was not typed, so the terminal has not echoed it
                    self.screen.print_line(first)
                self.submit(first)
            if script:
                self._background.start(self._play(script, pace))

        with signals.call_on_signals(self._stop, signal.SIGQUIT, *signals.END_SIGNALS):
            try:
                await self.screen.run(begin)
            finally:
                await self._end()
        return self._exit_code

    def _check_key(self) -> None:
        """Report a missing API key, or ask for one at the first start."""
        logins = self._services.logins
        try:
            self._services.check_key()
        except NoCredentials as error:  # go on: commands need no key
            may_ask = logins is not None and self.screen.paints and not self._scripted
            self._asks_provider = may_ask and logins is not None and logins.is_first
            for line in [] if self._asks_provider else str(error).split("\n"):
                self.screen.print_line(line)

    # ScreenHost methods.

    @property
    def working(self) -> bool:
        waits = self.conversation.is_opening and bool(self._waiting)
        return self._task.running or self._scripted or waits

    def submit(self, message: str, *, alt: bool = False) -> None:
        if self._at_once(message):
            self._waiting.drop()
        else:
            mid_turn = self._is_for_turn(message) and alt == self._enter_waits
            self._waiting.add(message, mid_turn=mid_turn)
            if self._in_turn and self.screen.echoes:  # this screen paints no queue
                self._transcript().show(Notice("info", SPOKEN_TIMES[self._when(mid_turn)]))
        self.screen.request_repaint()

    def send_keys(self, message: str) -> str:
        if not self._is_for_turn(message):
            return ""
        keys = self.screen.keys
        rows = (
            (keys.send, self._when(not self._enter_waits)),
            (keys.send_other, self._when(self._enter_waits)),
            (keys.newline, "new line"),
        )
        return " · ".join(f"{key_name(key)}: {when}" for key, when in rows)

    def interrupt(self) -> None:
        """Stop the running task and put unsent messages back into the input line."""
        if self._scripted:
            self._stop()
        elif self._task.cancel() or not self._task.running:
            if unsent := self._waiting.take_all():
                self.screen.restore("\n".join(unsent))
            self.screen.request_repaint()

    def earlier(self, message: str) -> str | None:
        self.screen.request_repaint()
        return self._waiting.earlier(message)

    def later(self, message: str) -> str | None:
        self.screen.request_repaint()
        return self._waiting.later(message)

    def drop(self) -> None:
        self._waiting.drop()

    async def offers(self, place: str) -> Sequence[Offer]:
        return await completions_for(self._context, place)

    @property
    def runs_command(self) -> bool:
        return self.conversation.runs_command

    def send_to_background(self) -> None:
        try:
            self.conversation.send_to_background()
        except CtxagentError as error:
            self.show_error(error)

    @property
    def asks_to_leave(self) -> bool:
        return bool(self.conversation.background_tasks) and not self.is_leaving

    @property
    def is_leaving(self) -> bool:
        return self._context.is_leaving

    def leave(self) -> None:
        if self.asks_to_leave:
            self._background.start(self._finish_work(self._context.leave()))
        else:
            self.screen.exit()

    def finish(self) -> None:
        async def leave_when_done() -> None:
            await self._waiting.idle()
            self.screen.exit()

        if not self._scripted:
            self._background.start(leave_when_done())

    def unfold(self) -> None:
        self._background.start(self._finish_work(self._context.unfold()))

    def withdraw(self) -> bool:
        offered, self._questions.offered_mode = self._questions.offered_mode, None
        self.screen.request_repaint()
        return offered is not None

    def cycle_mode(self) -> None:
        asked = self._questions
        mode = self.conversation.next_mode(asked.offered_mode)
        if mode is not None and asked.asks_permission:
            asked.offered_mode = None if mode == self.conversation.agent.approval.mode else mode
        elif mode is not None:
            self.conversation.set_mode(mode)
        self.screen.request_repaint()

    def live(self) -> "list[RenderableType]":
        queued = [(self._sending, "")] if self._sending else []
        queued += [(each.text, self._when(each.mid_turn)) for each in self._waiting]
        if not queued and self._shown is None:
            return []
        from ..render import render

        shown = self._transcript().live()
        return [*shown, *([""] if queued else []), *render.queue(queued)]

    def status_command_line(self, width: int) -> list[status.Fragment]:
        return self._status_command.line(width)

    def status(self, width: int) -> list[status.Fragment]:
        if self._status_command.is_set and self.conversation.is_open:
            asks = self._questions.is_asking
            state = "question" if asks else "working" if self.working else "idle"
            facts = {**self.conversation.facts(), "state": state}
            self._status_command.refresh(self.conversation.agent, facts)
        return self.conversation.status(width)

    def notice_given(self, title: str, text: str) -> None:
        if self.conversation.is_open:
            self._notice_command.run_for_notice(self.conversation.agent, title, text)

    # Events of the conversation.

    def emit(self, event: Event) -> None:
        """Show an event. May be called from any thread."""
        if threading.get_ident() == self._thread:
            self._show(event)
        else:
            self._events.call_soon_threadsafe(self._show, event)

    def _warn(self, text: str) -> None:
        self.emit(Notice("warning", text))

    def _show(self, event: Event) -> None:
        if isinstance(event, UserSaid):
            self._sending = ""
        self._transcript().show(event)
        if self._ended and isinstance(event, Waiting) and event.what:
            self.screen.print_line(f"waiting for {event.what}")
        self.screen.request_repaint()

    # Serving submitted input.

    async def _serve(self) -> None:
        """Open the session, then serve submitted input until cancelled."""
        await asyncio.to_thread(_load_transcript)
        try:
            if not await self._open_first():
                self.leave()
                return
        except CtxagentError as error:
            self.show_error(error)
        if self._asks_provider:
            form = first_start(self._context, has_task=bool(self._waiting))
            await self._task.run(self._finish_work(form))
        while True:
            self.screen.request_repaint()
            await self._serve_one(await self._waiting.next())
            if not self._waiting:
                self.screen.show_prompt()

    async def _open_first(self) -> bool:
        """Open the requested session. Return False if the user should pick one and did not."""
        choice = self._services.choice
        if choice.pick:
            return bool(await self._task.run(pick_session(self._context, fork=choice.fork)))
        if choice.pick_recording:
            return bool(await self._task.run(pick_recording(self._context)))
        async with self._task.redrawing():
            await self._context.switch_session()
        return True

    async def _serve_one(self, message: str) -> None:
        if message.startswith("/"):
            await read_command_files(self._context)
        try:
            found = self._parse(message)
        except UsageError as error:
            self._echo(message)
            self.show_error(error)
            return
        if found and found[0].run is not None:
            await self._task.run(self._command(message, *found))
            self._context.show_activity("")
        else:
            if found:  # a skill: use its full name
                message = f"/{found[0].name} {found[1]}".rstrip()
            self._sending = message
            await self._take_turn(message)
            if self._sending:
                self.screen.restore(self._sending)
                self._sending = ""
        if not self._watching:
            self._background.start(self._watch())

    async def _take_turn(self, message: str) -> None:
        """Run one turn until it finishes or is interrupted."""
        # Loaded with the session, after the first paint.
        from ...loop.turn import run_turn

        self._in_turn, began, by_itself = True, time.monotonic(), True
        try:
            if not self.conversation.is_open:
                async with self._task.redrawing():
                    await self._context.switch_session()
            turn = run_turn(self.conversation.agent, message, self._next_mid_turn)
            finished = await self._task.run(turn)
            by_itself = finished is not None and finished.status != "interrupted"
            if finished is not None:
                self._set_exit_code(EXIT_CODES[finished.status])
                if finished.error and self.screen.paints:
                    again = ask_key_again(self._context, finished.error)
                    await self._task.run(self._finish_work(again))
        except CtxagentError as error:
            self._transcript().abandon()
            self.show_error(error)
        self._in_turn = False
        self.conversation.end_turn()
        if by_itself and not (self._waiting or self._scripted):
            self.screen.turn_ended(time.monotonic() - began)

    def _next_mid_turn(self) -> str | None:
        """Remove the next message to send during the running turn; None if there is none."""
        message = self._waiting.next_mid_turn()
        self._sending = message or ""
        return message

    def _is_for_turn(self, message: str) -> bool:
        """Return True if `message` can be sent during the running turn. Commands cannot. Lines from
        a pipe cannot either, because each line is a turn.
        """
        try:
            is_command = self._parse(message) is not None
        except UsageError:
            return False
        return self._in_turn and not is_command and (self.screen.paints or self.screen.echoes)

    def _parse(self, message: str) -> tuple[Command, str] | None:
        return parse(message, all_commands(self._context))

    def _when(self, mid_turn: bool) -> str:
        """Return the label for when a queued message is sent; "" if it is next."""
        return (AFTER_CALL if mid_turn else AFTER_TURN) if self._in_turn else ""

    async def _watch(self) -> None:
        """Redraw the status line while background work continues, and report jobs that end."""
        self._watching = True
        while self.conversation.works_in_background:
            running = self.conversation.running_jobs
            await asyncio.sleep(REDRAW_INTERVAL_S)
            for ended in self.conversation.ended_jobs(running):
                seen = f"/tasks {ended.id} shows its output"
                self.emit(Notice("info", f"{ended.id} has ended: {ended.status} · {seen}"))
            self.screen.request_repaint()
        self._watching = False

    def _at_once(self, message: str) -> bool:
        """Start a command that need not wait for the running task; return True if started."""
        try:
            found = self._parse(message)
        except UsageError:
            return False
        if not found or not found[0].anytime:
            return False
        if not (self._task.running or found[0].name == LEAVE_COMMAND):
            return False
        self._background.start(self._command(message, *found))
        return True

    def _command_at_question(self, message: str) -> bool:
        """Handle a command typed at a question: run it now, queue it until after the turn, or show
        its error. Return False if `message` is not a command.
        """
        try:
            found = self._parse(message)
        except UsageError as error:
            if " " in message.strip():  # a reason may begin with a path
                return False
            self.show_error(error)
            return True
        if not found:
            return False
        self.submit(message)
        if self._waiting and not found[0].anytime:
            told = f"/{found[0].name} waits for the end of the turn; the question is still open"
            self._transcript().show(Notice("info", told))
        return True

    async def _command(self, message: str, command: Command, argument: str) -> None:
        self._echo(message)
        session = self.conversation.session
        try:
            await self._finish_work(self._context.run(command, argument))
        except asyncio.CancelledError:
            same = self.conversation.session == session
            became = "nothing has changed" if same else "another session is open now"
            self._transcript().show(Notice("info", f"interrupted; {became}"))
            raise

    async def _finish_work(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a command to its end. Show its errors without ending the REPL."""
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
            self.show_error(error)
        elif isinstance(error, Exception):
            self.show_error(self.conversation.record_fault(error))
        elif error is not None:
            raise error

    def _echo(self, message: str) -> None:
        from ..render import render

        if not self.screen.echoes:
            self._transcript().put("user", render.user_message(message))

    async def _play(self, script: Sequence[str], pace: float) -> None:
        for message in script:
            await self._waiting.idle()
            await self.screen.type(message, pace)
            self.submit(message)
        await self._waiting.idle()
        self.screen.exit()

    def _stop(self) -> None:
        self._exit_code = EXIT_CODES["interrupted"]
        self.screen.exit()

    async def _end(self) -> None:
        """Stop everything that runs, and close the session."""
        unsent = self._waiting.take_all()
        await self._task.end(INTERRUPT_TIMEOUT_S)
        await self._background.end()
        try:
            if unsent:
                from ..render import render

                self._context.put(
                    *(render.notice("info", f"not sent: {message}") for message in unsent)
                )
            if self.conversation.is_open and not self._scripted:
                await self._finish_session(self.conversation.agent)
        finally:
            self._ended = True
            await self.conversation.close()

    async def _finish_session(self, agent: "AgentState") -> None:
        """Write the summary or checkpoint that the policy requires at the end of a session. Then
        print the command that resumes the session.
        """
        if not agent.totals.turns:
            return
        try:
            await self.conversation.finish()
        except (CtxagentError, TimeoutError) as error:
            self.screen.print_line(f"no summary at the end: {error or 'it took too long'}")
        self.screen.print_line(f"Resume with: ctxagent --resume {self.conversation.session}")

    def show_error(self, error: CtxagentError) -> None:
        from ..render import render

        self._set_exit_code(error.exit_code)
        self._transcript().put("error", render.failure(error.message, error.hint))
        self.screen.request_repaint()

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
                keys=self.screen.keys,
            )
        return self._shown


def _load_transcript() -> None:
    """Import the rendering modules in a thread while the user already types."""
    from .. import transcript  # noqa: F401
