"""The choice between two screens: the inline terminal with its colours, or plain lines.

The plain screen is for simple terminals, pipes and screen readers. It reads and writes lines,
without escape sequences or repainting. The terminal itself edits the input line.
"""

import asyncio
import codecs
import contextlib
import os
import re
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, TextIO

from prompt_toolkit.input import Input, create_input
from prompt_toolkit.output import ColorDepth

from ....tools.system.files import read_next
from ....tools.system.unicode import clean, to_ascii_marks
from ...errors import CtxagentError
from ...lazy import regex
from ..capabilities import Colours, TerminalBackground, detect_for_process
from ..cells import wrap_words
from ..screen import (
    BACK,
    LEAVE_WINDOW_S,
    ChoiceRow,
    Choices,
    Screen,
    ScreenHost,
    answer_from_line,
    as_lines,
    row_of,
)
from ..signals import call_on_signals
from .input_filter import BACKGROUND_QUERY, KEYBOARD_QUERY, LAST_QUERY, FilteredInput
from .output import BatchedOutput, NonBlockingWriter, output_for
from .terminal import Terminal
from .window import TerminalWindow, notice_style, without_echo

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ...config.keyboard import KeyboardSettings
    from ...config.settings import UiSettings
    from ..render.render import Depth
    from ..screen import Menu, Option, ScreenHost

_CHOICE = regex(r"^(\d+\. )?\[(\w)\](\w*) *")
MAX_LISTED_OPTIONS = 20
NOBODY_ANSWER = "n nobody is there to answer"


class PlainScreen(Screen):
    """A screen that reads lines from the file descriptor `source` (None: no input) and writes to
    `stream`. Without `unicode`, marks are replaced by ASCII.
    """

    paints = False
    palette = ""
    unfinished = False

    def __init__(
        self, host: "ScreenHost", *, source: int | None, stream: TextIO, unicode: bool = True
    ) -> None:
        self.host = host
        self.source = source
        self.stream = stream
        self.unicode = unicode
        self.speaks = stream.isatty()
        self.echoes = source is not None and os.isatty(source)
        self.printed = 0
        self._question: asyncio.Future[str] | None = None
        self._ask_again: Callable[[], None] = _do_nothing
        self._asking_again: asyncio.Handle | None = None
        self._ended = asyncio.Event()
        self._input_ended = False
        self._error: BaseException | None = None
        self._leave_asked_at = -LEAVE_WINDOW_S
        self._writer = NonBlockingWriter(stream)

    def print_line(self, line: str) -> None:
        line = clean(line)
        if self.speaks:  # a terminal would break the line inside a word
            line = wrap_words(line, _columns())
        self._write(f"{line}\n")

    async def run(self, ready: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        if self.source is not None:
            threading.Thread(target=self._read, args=(loop, self.source), daemon=True).start()
        with call_on_signals(self._sigint, signal.SIGINT):
            self.show_prompt()
            ready()
            await self._ended.wait()
        self._writer.drain()
        if self._error:
            raise self._error

    def put(self, renderable: "RenderableType") -> None:
        from ..render.render import render_text

        depth: Depth = "spoken" if self.speaks else "plain"
        self._write(render_text([renderable], width=_columns(), depth=depth))
        self.printed += 1
        if self._question is not None and self._asking_again is None:
            self._asking_again = asyncio.get_running_loop().call_soon(self._ask_again)

    async def answer(
        self, choices: Choices, keys: str, texts: Sequence[str] = (),
        rows: Sequence[ChoiceRow] = (), *, hidden: bool = False,
    ) -> str:  # fmt: skip
        back = BACK in keys

        def ask() -> None:
            self._asking_again = None
            asked = clean(as_lines(choices, texts, rows, back=back))
            self._write((_spoken(asked) if self.speaks else asked) + "\n? ")

        ask()
        nobody = BACK if back else NOBODY_ANSWER
        if self._input_ended or self.source is None:
            return nobody
        self._question, self._ask_again = asyncio.get_running_loop().create_future(), ask
        try:
            with without_echo(self.source) if hidden else contextlib.nullcontext():
                line = await self._question
        finally:
            self._question = None
            if self._asking_again is not None:
                self._asking_again.cancel()
                self._asking_again = None
        if line == NOBODY_ANSWER or (back and line.strip().lower() == "back"):
            return nobody
        row = row_of(line, rows)
        if row and row.reply_prefix:
            more = await self.answer(lambda typed: choices(row.reply_prefix), keys)
            return more if more == nobody else row.reply_prefix + more
        return row.key if row else answer_from_line(line, texts)

    async def pick(self, menu: "Menu") -> "Option | None":
        from ..render.render import dim, table

        all_of_them = chain.from_iterable(menu.load(0))
        options = await asyncio.to_thread(lambda: [*islice(all_of_them, MAX_LISTED_OPTIONS)])
        if not options:
            self.put(dim(menu.empty_text))
            return None
        # Options with numeric keys keep their numbers.
        numbered = all(option.key.isdecimal() for option in options)
        named = {o.key if numbered else str(n): o for n, o in enumerate(options, 1)}
        self.put(table([(n, *o.facts, o.title) for n, o in named.items()], wrap=False))
        line = await self.answer(lambda typed: f"{menu.title}: a number, or Enter for none", "")
        line = "" if line == NOBODY_ANSWER else line.strip()
        if line in named:
            return named[line]
        if other := menu.other(line):
            return other
        if line:  # other text is a message, not a choice
            self.host.submit(line)
        return None

    async def edit(self, text: str, name: str) -> str:
        # An editor would compete with the reader thread for keys.
        raise CtxagentError(
            "there is no editor on a plain terminal",
            hint="Say no, and what to change.",
        )

    def restore(self, message: str) -> None:
        self._write(f"Not sent: {clean(message)}\n")

    def hint(self, text: str) -> None:
        self._write(clean(text) + "\n")
        self.show_prompt()

    def show_prompt(self) -> None:
        if self.echoes and not self.host.working:
            self._write("> ")

    def exit(self, error: BaseException | None = None) -> None:
        self._error = error
        self._ended.set()

    def _line(self, line: str) -> None:
        if self._question is not None and not self._question.done():
            self._question.set_result(line)
        elif line.strip():
            self.host.submit(line)
        else:
            self.show_prompt()

    def _may_go_on(self) -> bool:
        """Handle an end of input. Return True if more input may come: on a terminal, the user may
        be asked before leaving.
        """
        if self.echoes and self.host.asks_to_leave:
            self.host.leave()
            return True
        self._end()
        return False

    def _end(self) -> None:
        self._input_ended = True
        if self._question is not None and not self._question.done():
            self._question.set_result(NOBODY_ANSWER)
        self.host.finish()

    def _sigint(self) -> None:
        now = asyncio.get_running_loop().time()
        if self.host.working:
            self.host.interrupt()
        elif now - self._leave_asked_at < LEAVE_WINDOW_S:
            self.host.leave()
        else:
            self._leave_asked_at = now
            try:
                self.hint("\nPress Ctrl-C again to leave.")
            except OSError as error:  # the same Ctrl-C ended the reader of the output
                self.exit(error)

    def _write(self, text: str) -> None:
        if not self.unicode:
            text = to_ascii_marks(text, self.stream.encoding or "utf-8")
        self._writer.write(text)
        if self._ended.is_set():
            self._writer.drain()

    def _read(self, loop: asyncio.AbstractEventLoop, source: int) -> None:
        # RuntimeError: the loop is closed, because the REPL has ended.
        with contextlib.suppress(RuntimeError):
            more = SimpleQueue[bool]()
            more.put(True)
            while more.get():
                for line in _lines(source):
                    loop.call_soon_threadsafe(self._line, line)
                loop.call_soon_threadsafe(lambda: more.put(self._may_go_on()))


def _do_nothing() -> None:
    """Do nothing, because no question is open."""


def _columns() -> int:
    return shutil.get_terminal_size((100, 24)).columns


def _spoken(choices: str) -> str:
    """Return choices such as `[y]es · [n]o` as sentences for a screen reader. Other lines are
    quoted content and stay unchanged.
    """
    lines = map(_spoken_line, choices.split("\n"))
    return "\n".join(wrap_words(line, _columns()) for line in lines)


def _spoken_line(line: str) -> str:
    if not _CHOICE.match(line):
        return line
    said = [_CHOICE.sub(_spoken_choice, choice).rstrip() for choice in line.split(" · ")]
    return f"Type {', '.join(said)}." if len(said) > 1 else said[0]


def _spoken_choice(found: re.Match[str]) -> str:
    number, key, rest = found.groups("")
    keys = f"{number.rstrip('. ')} or {key}" if number else key
    word = f"{key}{rest}{' ' * found[0].endswith(' ')}" if rest else ""
    return f"{keys} for {word}"


def _lines(source: int) -> Iterator[str]:
    """Yield the lines of a file descriptor. It bypasses Python's buffers, because a thread that
    waits in them would block the end of the process.
    """
    decoder = codecs.getincrementaldecoder(sys.getfilesystemencoding())("replace")
    rest = ""
    while True:
        data = read_next(source, 65_536)
        *lines, rest = (rest + decoder.decode(data, not data)).split("\n")
        yield from lines
        if not data:
            if rest:
                yield rest
            return


_COLOURS: dict[ColorDepth, Colours] = {ColorDepth.DEPTH_1_BIT: 0, ColorDepth.DEPTH_4_BIT: 16}


def screen_for(
    host: ScreenHost,
    *,
    cwd: Path,
    ui: "UiSettings",
    keys: "KeyboardSettings",
    history: Path | None,
    input: Input | TextIO | None,
    output: BatchedOutput | TextIO | None,
) -> Screen:
    """Return the screen that suits the terminal. None means the process's own stream."""
    source = sys.stdin if input is None else input
    target = sys.stdout if output is None else output
    background: TerminalBackground = ""
    titled = False
    if not isinstance(target, BatchedOutput):
        if isinstance(source, Input):
            raise TypeError("keys need a BatchedOutput")
        can = detect_for_process(ui, source, target)
        if can.plain:
            return PlainScreen(host, source=source.fileno(), stream=target, unicode=can.unicode)
        asks = ui.theme in ("auto", "high-contrast")
        queries = (BACKGROUND_QUERY if asks else "") + KEYBOARD_QUERY + LAST_QUERY
        source = FilteredInput(source, queries=queries if can.can_query else "")
        target, background = output_for(target, can=can), can.background
        titled = ui.title and can.window_title
    colours = _COLOURS.get(target.get_default_color_depth(), 256)
    return Terminal(
        host,
        input=source if isinstance(source, Input) else create_input(source),
        output=target,
        cwd=cwd,
        history=history,
        keys=keys,
        vi=ui.editing_mode == "vi",
        window=TerminalWindow(
            target,
            project=cwd.name or str(cwd),
            titled=titled,
            reports=isinstance(source, FilteredInput),
        ),
        theme=ui.theme,
        colours=colours,
        background=background,
        notify=notice_style(ui.notify, os.environ),
        notify_after_s=ui.notify_after,
    )
