"""The terminal, inline and append-only. One prompt_toolkit application lives at the bottom for as
long as the REPL does: the live region, the input (or the answer to a question), the status line,
the menu of completions. Finished text is printed above it, once, and belongs to the scrollback.

What is printed within a frame goes out together, as one write: the application is taken away, the
text printed, the application painted again. A screen knows nothing of sessions; it tells its
`Host` what the person does.
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
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples
from prompt_toolkit.input import Input
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.search import stop_search

from ..input.completion import WordsCompleter
from ..input.editor import EditorKilled, edit
from ..input.history import history_of
from ..input.pasted import Pasted
from ..look.theme import Palette, choose
from ..visible import clean
from . import signals
from .asked import BACK, Asked, Choices
from .background import QUESTION, SiftedInput
from .base import Host
from .capabilities import Background
from .layout import ROOMY, application, style_of
from .modes import Modes
from .output import SteadyOutput
from .picker import Picker
from .readiness import Readiness

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ..look.render import Depth
    from .menu import Menu, Option

FRAME = 0.04  # seconds between two paints of what streams in
SETTLED = 0.3  # seconds without a change of size after which it counts as chosen; tmux tells late
PATIENCE = 0.3  # seconds that leaving waits for an answer of the terminal


class Terminal:
    """The screen of a real terminal."""

    echoes = False
    paints = True
    speaks = False

    def __init__(
        self,
        host: Host,
        *,
        input: Input,
        output: SteadyOutput,
        cwd: Path,
        history: Path | None,
        vi: bool,
        palette: Palette = "ansi",
    ) -> None:
        self.host = host
        self.output = output
        self.palette = palette
        self.pasted = Pasted()
        self._completer = WordsCompleter(host, cwd)
        self.words = Buffer(
            multiline=True,
            history=history_of(history, self.pasted, host.tell),
            completer=self._completer,
            complete_while_typing=True,
            on_text_changed=self._typed,
        )
        self.reply = Buffer(multiline=False, accept_handler=self._answered)
        self.picker = Picker(output.get_size, self.touch, self._picked)
        self.asked = Asked()
        self._instant = ""
        self._question: asyncio.Future[str] | None = None
        self._pending: list[RenderableType] = []
        self._scheduled: asyncio.TimerHandle | None = None
        self.unfinished: StyleAndTextTuples = []
        self._hint: str = ""
        self._away = False  # while another program has the terminal
        self._painted_for: Size | None = None
        self._size: Size | None = None
        self._resized_at = -SETTLED
        self._modes = Modes(input.fileno())
        self._answers = input.answers if isinstance(input, SiftedInput) else None
        self._asked_at = -PATIENCE
        self.app = application(self, input=input, vi=vi)
        self._ready = Readiness(lambda: output.busy, self.app.invalidate)
        self.app.key_processor.after_key_press += lambda _: self._ready.pressed()

    @property
    def away(self) -> bool:
        return self._away

    @property
    def asking(self) -> bool:
        return self._question is not None

    @property
    def drafting(self) -> bool:
        return self.asking and self.app.layout.current_buffer is self.words

    def take_keys(self) -> None:
        self._focus(self.reply)

    @property
    def instant(self) -> str:
        """Those of the question, once it has been seen, while nothing else is typed."""
        return "" if self.reply.text or not self._ready.by_key else self._instant

    @property
    def waits(self) -> bool:
        """Whether keys will answer at once, and do not yet."""
        return bool(self._instant.strip(BACK)) and not (self.reply.text or self._ready.by_key)

    @property
    def choices(self) -> str:
        columns = self.output.get_size().columns
        return self.asked.shown(self.reply.text, columns, drafting=self.drafting)

    def status(self) -> StyleAndTextTuples:
        if self._hint:
            return [("", self._hint)]
        columns = self.output.get_size().columns - 1
        return self.picker.keys_line(columns) or list(self.host.status(columns))

    def greet(self, line: str) -> None:
        quiet = style_of(self.palette).get_attrs_for_style_str("class:dim")
        self.output.say(clean(line), quiet, self.app.color_depth)

    async def run(self, ready: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()

        def painted(_: object) -> None:
            self.app.after_render -= painted
            self._modes.keep()
            self._ask()
            loop.call_soon(ready)

        def failed(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            if "handle" in context and "exception" in context:  # in a paint, or at a key
                self.exit(context["exception"])
            else:
                loop.default_exception_handler(context)

        self.app.after_render += painted
        loop.set_exception_handler(failed)
        try:
            with (
                signals.heard(self.suspend, signal.SIGTSTP),
                signals.heard(self._resume, signal.SIGCONT),
            ):
                await self.app.run_async(set_exception_handler=False)
        except EOFError:  # the terminal has gone away
            self.host.leave()
        finally:
            loop.set_exception_handler(None)
            if self.words.text.strip() and not self.words.text[0].isspace():
                self.words.append_to_history()  # it is not lost by leaving
            if self._scheduled:
                self._scheduled.cancel()
            self._modes.release()
            self.output.undo()
            self.output.drain()

    def resized(self) -> None:
        self._resized_at = time.monotonic()
        self.touch()

    def paintable(self) -> bool:
        """Whether the terminal can be painted on now. Not while it has not taken what was painted
        before; nor while its size changes, as what is painted for one size and arrives in another
        stands in rows that nobody can count. What is left out is painted later."""
        size = self.output.get_size()
        if self._size not in (size, None):
            self._resized_at = time.monotonic()
        self._size = size
        if self.output.busy or time.monotonic() - self._resized_at < SETTLED:
            self.touch()
            return False
        return True

    def painted(self) -> None:
        layout = self.app.layout
        if self.asking and not self._pending and layout.current_window in layout.visible_windows:
            self._ready.painted()

    def suspend(self) -> None:
        """Stop until the shell lets us go on."""
        if not self._away:
            self.app.renderer.erase()
            self.output.drain()
            self._modes.release()
        signals.stop()
        if not self._away:
            self._resume()

    def _resume(self) -> None:
        """Go on, below whatever a shell has written meanwhile."""
        if self._away:
            return
        if self._modes.mend():
            self.app.renderer.reset()
        else:  # nobody else has had the terminal
            self.app.renderer.erase()
        self.touch()

    def put(self, renderable: "RenderableType") -> None:
        self._pending.append(renderable)
        if self.app.is_running:
            self.touch()
        else:
            self._print()
            self.output.drain()

    def touch(self) -> None:
        if self._scheduled is None and self.app.is_running:
            self._scheduled = asyncio.get_running_loop().call_later(FRAME, self._paint)

    async def answer(self, choices: Choices, keys: str, texts: Sequence[str] = ()) -> str:
        self.asked = Asked(choices, keys, texts)
        # Words that are being typed must not answer a question that pops up under the fingers:
        # the keyboard stays with them until they are sent, or left by Tab.
        self._instant = "" if self.words.text else keys
        question: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._question = question
        self.reply.reset(Document(self.asked.text))
        self._focus(self.words if self.words.text else self.reply)
        self._ready.ask(follows=BACK in keys)
        self._paint()
        try:
            return await question
        finally:
            self._question = None
            self._ready.end()
            self.app.layout.focus(self.words)
            self.touch()

    async def pick(self, menu: "Menu") -> "Option | None":
        typed = "" if "\n" in self.words.text else self.words.text
        if typed:  # ahead of the menu, or under the fingers when it came: it must open nothing
            self.words.reset()
            self.host.drop()
        self._focus(self.picker.search)
        self.touch()
        return await self.picker.pick(menu, typed)

    def _picked(self, left: str) -> None:
        self.app.layout.focus(self.words)
        if left:
            self.restore(left)
        self.touch()

    def _focus(self, buffer: Buffer) -> None:
        """As at the beginning: a search in the history ends, or its line would stay."""
        with set_app(self.app):
            stop_search()
        self.app.vi_state.reset()
        self.app.layout.focus(buffer)

    async def edit(self, text: str) -> str:
        async with in_terminal():
            self._away = True
            self.output.leave()
            try:
                return await edit(text)
            except EditorKilled:
                self.output.come_back()
                raise
            finally:
                self._away = False
                self.output.undo()
                self.touch()

    def give(self, text: str) -> None:
        """Answer the open question. Keys that follow, even in the same moment, are other words."""
        if self._question is not None and not self._question.done():
            self._question.set_result(text)
            self._question = None
            self.app.layout.focus(self.words)

    async def type(self, words: str, pace: float) -> None:
        for character in words:
            self.words.insert_text(character)
            if pace:
                await asyncio.sleep(pace)
        self.words.reset()

    def restore(self, words: str) -> None:
        typed, words = self.words.text, self.pasted.fold(words)
        self.words.text = f"{words}\n{typed}" if typed else words
        self.words.cursor_position = len(self.words.text)

    def hint(self, text: str) -> None:
        self._hint = text
        self.app.invalidate()

    def rest(self) -> None:
        self.touch()

    def exit(self, error: BaseException | None = None) -> None:
        if not self.app.is_running or self.app.is_done:
            return
        patience = self._asked_at + PATIENCE - time.monotonic()
        if self._answers and not self._answers.done and patience > 0:
            # An answer that comes later would be read by the shell.
            asyncio.get_running_loop().call_later(patience, self.exit, error)
            return
        try:
            if not self._away:
                self.app.renderer.erase()
                self._print()
        finally:
            if error is None:
                self.app.exit()
            else:
                self.app.exit(exception=error)

    def _ask(self) -> None:
        """Have the terminal tell its background, and go on."""
        if self._answers:
            self._answers.told = self._learn
            self._asked_at = time.monotonic()
            self.output.write_raw(QUESTION)
            self.output.flush()

    def _learn(self, background: Background) -> None:
        self.palette = choose("auto", 256, background)
        self.app.style = style_of(self.palette)
        self.touch()

    def _typed(self, words: Buffer) -> None:
        self._completer.give_up()
        if not words.text:
            self.host.drop()

    def _answered(self, buffer: Buffer) -> bool:
        if not self._ready.seen:  # what is typed stays, for when it is
            return True
        self.give(buffer.text)
        return False

    def _paint(self) -> None:
        self._scheduled = None
        if self._away or not self.app.is_running or self.app.is_done or not self.paintable():
            return
        self._modes.mend()
        if self.drafting and not self.words.text:
            self.take_keys()
        self.unfinished = self._render_live()
        size = self.output.get_size()
        if not self._pending and size == self._painted_for:
            self.app.invalidate()
            return
        with self.output.held():
            self.app.renderer.erase()
            self._print()
            self.app.render_counter += 1  # controls keep what they made for the last one
            self.app.renderer.render(self.app, self.app.layout)
        self._painted_for = size

    def _print(self) -> None:
        pending, self._pending = self._pending, []
        self.output.write_raw(self._ink(pending).replace("\n", "\r\n"))
        self.output.flush()

    def _render_live(self) -> StyleAndTextTuples:
        size = self.output.get_size()
        lines = self._ink(self.host.live()).rstrip("\n").split("\n")
        if size.rows < ROOMY and not lines[0]:
            del lines[0]
        room = max(1, min(size.rows // 2, size.rows - 6))
        shown = "\n".join(lines[-room:])
        return list(ANSI(shown).__pt_formatted_text__()) if shown else []

    def _ink(self, renderables: "Sequence[RenderableType]") -> str:
        if not renderables:
            return ""
        from ..look.render import ink

        mono = self.output.get_default_color_depth() == ColorDepth.DEPTH_1_BIT
        depth: Depth = "mono" if mono else "color"
        columns = self.output.get_size().columns
        return ink(renderables, width=columns, depth=depth, palette=self.palette)
