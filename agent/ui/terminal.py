"""The terminal, inline and append-only. One prompt_toolkit application lives at the bottom for as
long as the REPL does: the live region, the input (or the answer to a question), the status line,
the menu of completions. Finished text is printed above it, once, and belongs to the scrollback.

What is printed within a frame goes out together, as one write: the application is taken away, the
text printed, the application painted again. A screen knows nothing of sessions; it tells its
`Host` what the person does.
"""

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from prompt_toolkit.application import in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples
from prompt_toolkit.input import Input, create_input
from prompt_toolkit.output import ColorDepth

from .editor import edit
from .input import WordsCompleter, history_of
from .layout import application
from .output import SteadyOutput, steady
from .plain import Plain
from .screen import Host, Screen

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ..settings import UiSettings
    from .render import Depth

FRAME = 0.04  # seconds between two paints of what streams in


class Terminal:
    """The screen of a real terminal."""

    echoes = False
    paints = True

    def __init__(
        self,
        host: Host,
        *,
        input: Input,
        output: SteadyOutput,
        cwd: Path,
        history: Path | None,
        vi: bool,
    ) -> None:
        self.host = host
        self.output = output
        self.words = Buffer(
            multiline=True,
            history=history_of(history),
            completer=WordsCompleter(cwd),
            complete_while_typing=True,
        )
        self.reply = Buffer(multiline=False, accept_handler=self._answered)
        self.choices = ""
        self._instant = ""
        self._question: asyncio.Future[str] | None = None
        self._pending: list[RenderableType] = []
        self._scheduled: asyncio.TimerHandle | None = None
        self.unfinished: StyleAndTextTuples = []
        self._hint: str = ""
        self._away = False  # while another program has the terminal
        self.app = application(self, input=input, vi=vi)

    @property
    def asking(self) -> bool:
        return self._question is not None

    @property
    def instant(self) -> str:
        """The keys that answer at once: those of the question, while nothing else is typed."""
        return "" if self.reply.text else self._instant

    def status(self) -> StyleAndTextTuples:
        if self._hint:
            return [("", self._hint)]
        return list(self.host.status(self.output.get_size().columns - 1))

    def greet(self, line: str) -> None:
        self.output.write_raw("\x1b[2m")
        self.output.write(line)
        self.output.write_raw("\x1b[0m\r\n")
        self.output.flush()

    async def run(self, ready: Callable[[], None]) -> None:
        def painted(_: object) -> None:
            self.app.after_render -= painted
            asyncio.get_running_loop().call_soon(ready)

        self.app.after_render += painted
        try:
            await self.app.run_async(set_exception_handler=False)
        except EOFError:  # the terminal has gone away
            self.host.leave()
        finally:
            if self._scheduled:
                self._scheduled.cancel()

    def put(self, renderable: "RenderableType") -> None:
        self._pending.append(renderable)
        if self.app.is_running:
            self.touch()
        else:
            self._print()

    def touch(self) -> None:
        if self._scheduled is None and self.app.is_running:
            self._scheduled = asyncio.get_running_loop().call_later(FRAME, self._paint)

    async def answer(self, choices: str, keys: str, text: str = "") -> str:
        self.choices = choices
        # Words that are being typed must not answer a question that pops up under the fingers.
        self._instant = "" if self.words.text else keys
        self._question = asyncio.get_running_loop().create_future()
        self.reply.reset(Document(text))
        self.app.vi_state.reset()
        self.app.layout.focus(self.reply)
        self._paint()  # what is asked must be seen before it can be answered
        try:
            return await self._question
        finally:
            self._question = None
            self.app.layout.focus(self.words)
            self.touch()

    async def edit(self, text: str) -> str:
        async with in_terminal():
            self._away = True
            try:
                return await edit(text)
            finally:
                self._away = False
                self.touch()

    def give(self, text: str) -> None:
        """Answer the open question."""
        if self._question is not None and not self._question.done():
            self._question.set_result(text)

    async def type(self, words: str, pace: float) -> None:
        for character in words:
            self.words.insert_text(character)
            if pace:
                await asyncio.sleep(pace)
        self.words.reset()

    def restore(self, words: str) -> None:
        typed = self.words.text
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
        self._paint()
        if error is None:
            self.app.exit()
        else:
            self.app.exit(exception=error)

    def _answered(self, buffer: Buffer) -> bool:
        self.give(buffer.text)
        return False

    def _paint(self) -> None:
        self._scheduled = None
        if self._away or not self.app.is_running or self.app.is_done:
            return
        self.unfinished = self._render_live()
        if not self._pending:
            self.app.invalidate()
            return
        with self.output.held():
            self.app.renderer.erase()
            self._print()
            self.app.render_counter += 1  # controls keep what they made for the last one
            self.app.renderer.render(self.app, self.app.layout)

    def _print(self) -> None:
        pending, self._pending = self._pending, []
        self.output.write_raw(self._ink(pending).replace("\n", "\r\n"))
        self.output.flush()

    def _render_live(self) -> StyleAndTextTuples:
        size = self.output.get_size()
        lines = self._ink(self.host.live()).rstrip("\n").split("\n")
        room = max(1, min(size.rows // 2, size.rows - 6))
        return list(ANSI("\n".join(lines[-room:])).__pt_formatted_text__()) if lines[-1] else []

    def _ink(self, renderables: "Sequence[RenderableType]") -> str:
        if not renderables:
            return ""
        from .render import ink

        mono = self.output.get_default_color_depth() == ColorDepth.DEPTH_1_BIT
        depth: Depth = "mono" if mono else "color"
        return ink(renderables, width=self.output.get_size().columns, depth=depth)


def screen_for(
    host: Host,
    *,
    cwd: Path,
    ui: "UiSettings",
    history: Path | None,
    input: Input | TextIO | None,
    output: SteadyOutput | TextIO | None,
) -> Screen:
    """The screen that the terminal can carry. None stands for the process's own streams."""
    source = sys.stdin if input is None else input
    target = sys.stdout if output is None else output
    if not isinstance(target, SteadyOutput):
        if isinstance(source, Input):
            raise TypeError("keys need a SteadyOutput")
        dumb = os.environ.get("TERM", "dumb") in ("", "dumb")
        if ui.plain or dumb or not (source.isatty() and target.isatty()):
            return Plain(host, source=source.fileno(), stream=target)
        target = steady(target)
    return Terminal(
        host,
        input=source if isinstance(source, Input) else create_input(source),
        output=target,
        cwd=cwd,
        history=history,
        vi=ui.editing_mode == "vi",
    )
