"""The screen of a real terminal, inline and append-only.

One prompt_toolkit application stays at the bottom while the REPL runs: the live region, the input
(or an open question), the search line, the status line and the completion menu. Finished text is
printed above it once and belongs to the scrollback. Each frame is one write: erase the application,
print the text, paint the application again.
"""

import asyncio
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prompt_toolkit.application import in_terminal
from prompt_toolkit.application.current import set_app
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.data_structures import Size
from prompt_toolkit.document import Document
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples
from prompt_toolkit.input import Input
from prompt_toolkit.layout import UIControl
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.search import stop_search

from ....tools.system.unicode import clean
from ...errors import CtxagentError
from .. import signals, status
from ..capabilities import Colours, TerminalBackground
from ..input.completion import InputCompleter, mention_of
from ..input.editor import EditorKilled, edit
from ..input.history import open_history
from ..input.keys import mode_name
from ..input.pasted import PastedTexts
from ..render.theme import choose_palette, prompt_toolkit_style
from ..screen import BACK, ChoiceRow, Choices, OpenQuestion, ScreenHost, row_of
from .application import make_application
from .input_filter import FilteredInput
from .output import BatchedOutput, Readiness, clipboard_sequence
from .picker import MIN_QUESTION_ROWS, MIN_ROOMY_ROWS, Picker
from .window import ASKING_MARK, WORKING_MARK, Notices, TerminalWindow, TtyModes, notice_sequence

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ...config.keyboard import KeyboardSettings
    from ...config.settings import EditingMode as EditingSetting
    from ...config.settings import NoticeStyle, Theme
    from ..context_rows import ContextSource
    from ..render.render import Depth
    from ..screen import Menu, Option
    from .context_screen import ContextScreen

FRAME_S = 0.04  # interval between paints of streamed output
RESIZE_SETTLE_S = 0.3  # a size is final after this time; tmux reports it late
ANSWER_TIMEOUT_S = 0.3  # wait for query answers before leaving


class Terminal:
    """A `Screen` for a real terminal, and the state that its keys and layout use."""

    echoes = False
    paints = True
    speaks = False
    context: "ContextScreen | None" = None  # while it is open

    def __init__(
        self,
        host: ScreenHost,
        *,
        input: Input,
        output: BatchedOutput,
        cwd: Path,
        history: Path | None,
        keys: "KeyboardSettings",
        vi: bool,
        window: TerminalWindow,
        theme: "Theme" = "auto",
        colours: Colours = 16,
        background: TerminalBackground = "",
        notify: "NoticeStyle" = "off",
        notify_after_s: float = 0,
    ) -> None:
        self.host, self.keys = host, keys
        self.output = output
        self._window = window
        self._notices = Notices(window, self._notify, after_s=notify_after_s)
        self._notify_style = notify
        self._theme, self._colours, self._background = theme, colours, background
        self.palette = choose_palette(theme, colours, background)
        self.pasted = PastedTexts()
        self._cwd, self._image_folder = cwd, history and history.parent / "pasted"
        self._completer = InputCompleter(host, cwd)
        self.draft = Buffer(
            multiline=True,
            history=open_history(history, self.pasted, host.show_error),
            completer=self._completer,
            complete_while_typing=True,
            on_text_changed=self._typed,
        )
        self.reply = Buffer(multiline=False, accept_handler=self._answered)
        self.picker = Picker(output.get_size, self.request_repaint, self._picked)
        self.asked = OpenQuestion()
        self._instant = ""
        self._question: asyncio.Future[str] | None = None
        self._pending: list[RenderableType] = []
        self._scheduled: asyncio.TimerHandle | None = None
        self.live: StyleAndTextTuples = []
        self.printed = 0
        self._hint: str = ""
        self.away = False  # whether another program has the terminal
        self._painted_for: Size | None = None
        self._size: Size | None = None
        self._resized_at = -RESIZE_SETTLE_S
        self._modes = TtyModes(input.fileno())
        self._answers, self._queries = None, ""
        if isinstance(input, FilteredInput):
            self._queries = input.queries
            self._answers = input.answers if self._queries else None
            input.answers.on_background = self._set_background
            input.answers.on_focus = window.take_focus
            input.answers.on_keyboard = window.enable_key_protocol
        self._queried_at = -ANSWER_TIMEOUT_S
        self.app = make_application(self, input=input, vi=vi)
        self._ready = Readiness(lambda: output.busy, self.app.invalidate)
        self.app.key_processor.after_key_press += lambda _: self._ready.pressed()

    @property
    def unfinished(self) -> bool:
        return bool(self.live)

    @property
    def asking(self) -> bool:
        return self._question is not None

    @property
    def drafting(self) -> bool:
        return self.asking and self.app.layout.current_buffer is self.draft

    def focus_question(self) -> None:
        self._focus(self.reply)

    @property
    def instant(self) -> str:
        """The keys that answer now: none before the question is visible or while text is typed."""
        return "" if self.reply.text or not self._ready.accepts_keys else self._instant

    @property
    def waits(self) -> bool:
        """Whether single keys will answer the question soon, but not yet."""
        return bool(self._instant.strip(BACK)) and not (self.reply.text or self._ready.accepts_keys)

    @property
    def takes_rows(self) -> bool:
        """Whether the arrows select rows: once single keys answer or a row is selected, and while
        the reply is empty.
        """
        engaged = bool(self.asked.number) or (bool(self.asked.rows) and self._ready.accepts_keys)
        return engaged and not self.reply.text

    def choices(self) -> StyleAndTextTuples:
        size, style = self.output.get_size(), "class:dim" if self.waits else "class:choices"
        typed = self.reply.text
        room = size.rows - 2 - self.drafting  # minus the reply, the status line and the input
        return [*self.asked.shown(typed, size.columns, room, style, drafting=self.drafting)]

    @property
    def is_short(self) -> bool:
        return self.output.get_size().rows < MIN_QUESTION_ROWS

    def status(self) -> StyleAndTextTuples:
        if self._hint:
            return [("", self._hint)]
        columns = self.output.get_size().columns - 1
        if self.picker.is_open:
            return self.picker.keys_line(columns)
        mode = f"{name}{status.SEPARATOR}" if (name := mode_name(self.app)) else ""
        return [("", mode), *self.host.status(columns - len(mode))]

    def status_command_line(self) -> StyleAndTextTuples:
        """Return the line of the user's status command, if there is room for it."""
        size = self.output.get_size()
        return (
            [*self.host.status_command_line(size.columns - 1)]
            if size.rows >= MIN_ROOMY_ROWS
            else []
        )

    def send_keys(self) -> StyleAndTextTuples:
        """Return the line that shows which key sends the typed message at which time."""
        if self.asking or not self.draft.text.strip():
            return []
        columns = self.output.get_size().columns - 1
        line = self.host.send_keys(self.draft.text)
        while len(line) > columns:
            line = line.rpartition(" · ")[0]
        return [("class:dim", f"{line} ")]

    def print_line(self, line: str) -> None:
        quiet = prompt_toolkit_style(self.palette).get_attrs_for_style_str("class:dim")
        self.output.write_line(clean(line), quiet, self.app.color_depth)

    async def run(self, ready: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()

        def painted(_: object) -> None:
            self.app.after_render -= painted
            self._modes.keep()
            self._window.enter()
            self._query()
            loop.call_soon(ready)

        def failed(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            if "handle" in context and "exception" in context:  # from a paint or a key handler
                self.exit(context["exception"])
            else:
                loop.default_exception_handler(context)

        self.app.after_render += painted
        loop.set_exception_handler(failed)
        try:
            with (
                signals.call_on_signals(self.suspend, signal.SIGTSTP),
                signals.call_on_signals(self._resume, signal.SIGCONT),
            ):
                await self.app.run_async(set_exception_handler=False)
        except EOFError:  # the terminal has gone away
            pass
        finally:
            loop.set_exception_handler(None)
            if self.draft.text.strip() and not self.draft.text[0].isspace():
                self.draft.append_to_history()  # so that unsent text is not lost
            if self._scheduled:
                self._scheduled.cancel()
            self._modes.release()
            self._window.leave()
            self.output.reset_modes()
            self.output.drain()

    def resized(self) -> None:
        self._resized_at = time.monotonic()
        self.request_repaint()

    def paintable(self) -> bool:
        """Return True if the terminal can be painted now; otherwise schedule a paint. It cannot
        before it has accepted the last paint, nor while its size changes, because the height of a
        paint is unknown then.
        """
        size = self.output.get_size()
        if self._size not in (size, None):
            self._resized_at = time.monotonic()
        self._size = size
        if self.output.busy or time.monotonic() - self._resized_at < RESIZE_SETTLE_S:
            self.request_repaint()
            return False
        return True

    def painted(self) -> None:
        layout = self.app.layout
        if self.asking and not self._pending and layout.current_window in layout.visible_windows:
            self._ready.painted()

    def suspend(self) -> None:
        """Stop the process until the shell continues it."""
        if not self.away:
            self.app.renderer.erase()
            self._window.leave()
            self.output.drain()
            self._modes.release()
        signals.stop_process_group()
        if not self.away:
            self._resume()

    def _resume(self) -> None:
        """Paint again below the output of the shell."""
        if self.away:
            return
        if self._modes.repair():
            self.app.renderer.reset()
        else:  # no other program had the terminal
            self.app.renderer.erase()
        self._window.enter()
        self.request_repaint()

    def put(self, renderable: "RenderableType") -> None:
        self._pending.append(renderable)
        self.printed += 1
        if self.app.is_running:
            self.request_repaint()
        else:
            self._print()
            self.output.drain()

    def request_repaint(self) -> None:
        if self._scheduled is None and self.app.is_running:
            self._scheduled = asyncio.get_running_loop().call_later(FRAME_S, self._paint)

    show_prompt = request_repaint

    async def answer(
        self, choices: Choices, keys: str, texts: Sequence[str] = (),
        rows: Sequence[ChoiceRow] = (), *, hidden: bool = False,
    ) -> str:  # fmt: skip
        self.picker.leave()
        self._close_context()
        self.asked = OpenQuestion(choices, keys, texts, rows, hidden)
        # Text being typed must not answer a question that appears meanwhile: keys go to the
        # input until its text is sent, or Tab moves to the question.
        self._instant = "" if self.draft.text else self.asked.instant
        question: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._question = question
        self.reply.reset(Document(self.asked.text))
        self._focus(self.draft if self.draft.text else self.reply)
        self._ready.ask(follows=BACK in keys)
        self._notices.question_waits()
        self._paint()
        try:
            return await question
        finally:
            self._question = None
            self._notices.question_is_over()
            self._ready.end()
            self.app.layout.focus(self.draft)
            self.request_repaint()

    async def pick(self, menu: "Menu") -> "Option | None":
        if self.asking:  # the question needs the place of the menu
            return None
        typed = "" if "\n" in self.draft.text else self.draft.text
        if typed:  # typed before the menu opened: search for it, but do not choose
            self.draft.reset()
            self.host.drop()
        self._focus(self.picker.search)
        self.request_repaint()
        return await self.picker.pick(menu, typed)

    async def browse(self, source: "ContextSource") -> bool:
        if not self.asking:  # a question needs the place of the screen
            from .context_screen import ContextScreen

            size, changed = self.output.get_size, self.request_repaint
            self.context = ContextScreen(size, changed, self._focus, self._close_context)
            await self.context.show(source)
        return True

    def _close_context(self) -> None:
        if self.context:
            context, self.context = self.context, None
            context.leave()
            self._picked("")

    def _picked(self, unused: str) -> None:
        self.app.layout.focus(self.draft)
        if unused:
            self.restore(unused)
        self.request_repaint()

    def _focus(self, buffer: Buffer | UIControl) -> None:
        """Move the focus. End a history search, whose line would stay visible otherwise."""
        with set_app(self.app):
            stop_search()
        self.app.vi_state.reset()
        self.app.layout.focus(buffer)

    async def paste_image(self) -> str:
        from ..input.pasted import PASTE_HINT, save_clipboard_image

        if self._image_folder is None:
            raise CtxagentError("no image can be kept here", hint=PASTE_HINT)
        path = await asyncio.to_thread(save_clipboard_image, self._image_folder)
        about = f"{path.suffix[1:].upper()}, {path.stat().st_size:,} bytes"
        return self.pasted.add_image(mention_of(str(path)), about)

    def dropped(self, text: str) -> str:
        from ..input.pasted import mentions_of_dropped

        return mentions_of_dropped(text, self._cwd)

    def completes_mention(self) -> bool:
        return self._completer.is_unfinished(self.draft.document.text_before_cursor)

    async def edit(self, text: str, name: str) -> str:
        async with in_terminal():
            self.away = True
            self._window.leave()
            self.output.save_cursor()
            try:
                try:
                    return await edit(text, name)
                finally:  # Ctrl-C that ended the editor is not for the input
                    await signals.handle_arrived()
            except EditorKilled:
                self.output.restore_cursor()
                raise
            finally:
                self.away = False
                self.output.reset_modes()
                self._window.enter()
                self.request_repaint()

    def give_answer(self, text: str) -> None:
        """Answer the open question; further keys go to the input. For a row that needs a text,
        begin the reply instead.
        """
        row = row_of(text, self.asked.rows)
        if row is not None and row.reply_prefix:
            self.reply.document = Document(row.reply_prefix)
        elif self._question is not None and not self._question.done():
            self._question.set_result(row.key if row else text)
            self._question = None
            self.app.layout.focus(self.draft)

    async def type(self, message: str, pace: float) -> None:
        for character in message:
            self.draft.insert_text(character)
            if pace:
                await asyncio.sleep(pace)
        self.draft.reset()

    def restore(self, message: str) -> None:
        typed, message = self.draft.text, self.pasted.fold(message)
        self.draft.text = f"{message}\n{typed}" if typed else message
        self.draft.cursor_position = len(self.draft.text)

    def hint(self, text: str) -> None:
        self._hint = text
        self.app.invalidate()

    def copy(self, text: str) -> None:
        self.output.write_raw(clipboard_sequence(text))
        self.output.flush()

    def title(self, text: str) -> None:
        self._window.rename(text)
        self.request_repaint()

    def clean(self) -> None:
        if self.app.is_running and not self.away:
            with self.output.batched():
                self.app.renderer.erase()
                self._print()
                self.output.scroll_away()
        self.request_repaint()

    def turn_ended(self, seconds: float) -> None:
        self._notices.turn_ended(seconds)

    def _notify(self, text: str) -> None:
        if not self.away:  # otherwise the user is at the terminal
            self.output.write_raw(notice_sequence(self._notify_style, self._window.name, text))
            self.output.flush()
            self.host.notice_given(self._window.name, text)

    def exit(self, error: BaseException | None = None) -> None:
        if not self.app.is_running or self.app.is_done:
            return
        wait = self._queried_at + ANSWER_TIMEOUT_S - time.monotonic()
        if self._answers and not self._answers.done and wait > 0:
            # A late answer would go to the shell.
            asyncio.get_running_loop().call_later(wait, self.exit, error)
            return
        try:
            if not self.away:
                self.app.renderer.erase()
                self._print()
        finally:
            if error is None:
                self.app.exit()
            else:
                self.app.exit(exception=error)

    def _query(self) -> None:
        """Query the terminal without waiting for its answers."""
        if self._answers:
            self._queried_at = time.monotonic()
            self.output.write_raw(self._queries)
            self.output.flush()

    def _set_background(self, background: TerminalBackground) -> None:
        self._background = background
        self.use_theme(self._theme)

    def use_theme(self, theme: "Theme") -> None:
        self._theme = theme
        self.palette = choose_palette(theme, self._colours, self._background)
        self.app.style = prompt_toolkit_style(self.palette)
        self.request_repaint()

    def use_editing_mode(self, mode: "EditingSetting") -> None:
        if mode != "vi":
            self.output.reset_cursor_shape()
        self.app.vi_state.reset()
        self.app.editing_mode = EditingMode.VI if mode == "vi" else EditingMode.EMACS
        self.request_repaint()

    def _typed(self, draft: Buffer) -> None:
        self._completer.cancel()
        if not draft.text:
            self.host.drop()

    def _answered(self, buffer: Buffer) -> bool:
        if not self._ready.seen:  # keep the text until the question is visible
            return True
        text = buffer.text
        if self.asked.hidden:
            buffer.reset()  # keep a secret out of later answers
        self.give_answer(text or self.asked.number)
        return self.asking

    def _paint(self) -> None:
        self._scheduled = None
        if self.away or not self.app.is_running or self.app.is_done or not self.paintable():
            return
        self._modes.repair()
        if self.context:
            self.context.refresh()
        asks = self.asking or self.picker.is_open
        self._window.show(ASKING_MARK if asks else WORKING_MARK if self.host.working else "")
        if self.drafting and not self.draft.text:
            self.focus_question()
        finished = self._finished()  # first, because it may finish live output
        self.live = self._render_live()
        size = self.output.get_size()
        if not finished and size == self._painted_for:
            self.app.invalidate()
            return
        with self.output.batched():
            self.app.renderer.erase()
            self.output.write_raw(finished)
            self.app.render_counter += 1  # so that controls do not reuse cached content
            self.app.renderer.render(self.app, self.app.layout)
        self._painted_for = size

    def _print(self) -> None:
        self.output.write_raw(self._finished())
        self.output.flush()

    def _finished(self) -> str:
        """Return the output put since the last call, as terminal text."""
        pending, self._pending = self._pending, []
        return self._to_text(pending).replace("\n", "\r\n")

    def _render_live(self) -> StyleAndTextTuples:
        size = self.output.get_size()
        lines = self._to_text(self.host.live()).rstrip("\n").split("\n")
        if size.rows < MIN_ROOMY_ROWS and not lines[0]:
            del lines[0]
        room = max(1, min(size.rows // 2, size.rows - 6))
        shown = "\n".join(lines[-room:])
        return list(ANSI(shown).__pt_formatted_text__()) if shown else []

    def _to_text(self, renderables: "Sequence[RenderableType]") -> str:
        if not renderables:
            return ""
        from ..render.render import render_text

        mono = self.output.get_default_color_depth() == ColorDepth.DEPTH_1_BIT
        depth: Depth = "mono" if mono else "color"
        columns = self.output.get_size().columns
        return render_text(renderables, width=columns, depth=depth, palette=self.palette)
