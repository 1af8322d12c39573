"""The output to a real terminal or a pipe, without waiting for its reader; and its clipboard.

Several paints are combined into one write. A paused terminal (a slow line, or selected text)
accepts no output, and a normal write would block everything. So the file behind the stream is
opened a second time in non-blocking mode, and unaccepted output is sent later, in order. Where that
is impossible (a file on disk, a socket, a terminal of another user), writes block.

The clipboard is set by OSC 52, which works over ssh, because the local terminal sets it. Source:
https://invisible-island.net/xterm/ctlseqs/ctlseqs.html
"""

import asyncio
import contextlib
import os
import select
import stat
import time
import weakref
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TextIO

from prompt_toolkit.application import Application
from prompt_toolkit.data_structures import Size
from prompt_toolkit.filters import Filter
from prompt_toolkit.layout import Layout
from prompt_toolkit.layout.screen import Char
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.renderer import Renderer
from prompt_toolkit.styles import Attrs, BaseStyle

from ....tools.system.unicode import to_ascii_marks
from ..capabilities import Capabilities, Colours
from ..cells import wrap_words
from ..signals import ignore_lost_terminal


def clipboard_sequence(text: str) -> str:
    """Return the escape sequence that copies a text to the terminal's clipboard."""
    return f"\x1b]52;c;{b64encode(text.encode(errors='replace')).decode()}\a"


DRAIN_TIMEOUT_S = 2.0  # limit without progress


class NonBlockingWriter:
    """A writer for `stream`, which nothing else may write to at the same time. Writes to a terminal
    that has gone fail silently, so that the rest of the work still ends.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._fd = _reopened(stream)
        self._unsent = bytearray()
        self._stuck = False
        self._loop: asyncio.AbstractEventLoop | None = None  # calls `_send` when there is room
        if self._fd is not None:
            weakref.finalize(self, os.close, self._fd)

    @property
    def busy(self) -> bool:
        """Whether there is unsent output."""
        return bool(self._unsent)

    def write(self, text: str) -> None:
        """Write a text. Raises OSError if the reader of a pipe or file has gone."""
        encoding = self._stream.encoding or "utf-8"
        if self._fd is None:
            with ignore_lost_terminal():
                self._stream.write(text.encode(encoding, "replace").decode(encoding))
                self._stream.flush()
            return
        self._unsent += text.encode(encoding, "replace")
        if self._loop is None:
            self._send()

    def drain(self) -> None:
        """Wait until all output is sent, as long as there is progress. Do not wait if the previous
        call timed out.
        """
        until = time.monotonic() + (0.0 if self._stuck else DRAIN_TIMEOUT_S)
        while self._fd is not None and self._unsent and time.monotonic() < until:
            if select.select([], [self._fd], [], 0.05)[1]:
                before = len(self._unsent)
                self._send()
                if len(self._unsent) < before:
                    until = time.monotonic() + DRAIN_TIMEOUT_S
        self._stuck = self.busy

    def _send(self) -> None:
        assert self._fd is not None
        try:
            with ignore_lost_terminal():
                while self._unsent:
                    sent = os.write(self._fd, self._unsent)
                    del self._unsent[:sent]
            self._unsent.clear()
        except BlockingIOError:
            pass
        except OSError:
            self._unsent.clear()
            self._wait_for_room(False)
            raise
        self._wait_for_room(bool(self._unsent))

    def _wait_for_room(self, wanted: bool) -> None:
        assert self._fd is not None
        if self._loop is not None and not wanted:
            self._loop.remove_writer(self._fd)
            self._loop = None
        elif self._loop is None and wanted:
            with contextlib.suppress(RuntimeError):  # no running loop: `drain` sends it
                self._loop = asyncio.get_running_loop()
                self._loop.add_writer(self._fd, self._send)


def _reopened(stream: TextIO) -> int | None:
    """Return a separate file descriptor with its own modes; None if that is impossible."""
    try:
        fd = stream.fileno()
        if os.isatty(fd):
            path = os.ttyname(fd)
        elif stat.S_ISFIFO(os.fstat(fd).st_mode):
            path = f"/dev/fd/{fd}"
        else:
            return None
        stream.flush()
        return os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:  # no file behind it, or no permission
        return None


RESET_MODES = (
    "\x1b[0m"  # colours
    "\x1b[?25h"  # show the cursor
    "\x1b[?7h"  # fold long lines
    "\x1b[?2004l"  # no bracketed paste
    "\x1b[?1000;1002;1003;1006l"  # no mouse reports
    "\x1b[?1004l"  # no reports of the focus
    "\x1b[?1l\x1b>"  # cursor keys and keypad as in a shell
)

_DEPTHS: dict[Colours, ColorDepth] = {
    0: ColorDepth.DEPTH_1_BIT, 16: ColorDepth.DEPTH_4_BIT, 256: ColorDepth.DEPTH_8_BIT
}  # fmt: skip


class BatchedOutput(Vt100_Output):
    """A terminal output that can combine several paints into one write. It never asks for the
    cursor position. `reflows` means that the terminal rewraps rows when it gets narrower, `unicode`
    that it shows non-ASCII characters.
    """

    def __init__(
        self,
        stream: TextIO,
        size: Callable[[], Size],
        depth: ColorDepth | None,
        *,
        reflows: bool = False,
        unicode: bool = True,
    ) -> None:
        super().__init__(stream, size, default_color_depth=depth, enable_cpr=False)
        self.reflows = reflows
        self.unicode = unicode
        self._writer = NonBlockingWriter(stream)
        self._batching = False

    @property
    def busy(self) -> bool:
        """Whether the terminal has not yet accepted all output."""
        return self._writer.busy

    def flush(self) -> None:
        if self._buffer and not self._batching:
            text = "".join(self._buffer)
            self._buffer.clear()
            self._writer.write(text if self.unicode else to_ascii_marks(text, self.encoding()))

    def write_line(self, line: str, look: Attrs, depth: ColorDepth) -> None:
        """Write a line, wrapped between words, and wait until the terminal accepts it."""
        for part in wrap_words(line, self.get_size().columns).split("\n"):
            self.set_attributes(look, depth)
            self.write(part)
            self.reset_attributes()
            self.write_raw("\r\n")
        self.drain()

    def drain(self) -> None:
        """Wait until the terminal accepts all output, unless it accepts none."""
        self.flush()
        self._writer.drain()

    @contextmanager
    def batched(self) -> Iterator[None]:
        """Combine all output of the block into one write at its end."""
        self._batching = True
        try:
            yield
        finally:
            self._batching = False
            self.flush()

    def scroll_away(self) -> None:
        """Scroll everything into the scrollback, and move the cursor to the first row."""
        self.write_raw("\r\n" * self.get_size().rows + "\x1b[H")

    def save_cursor(self) -> None:
        """Save the cursor position in the terminal, and wait until all output is accepted."""
        self.write_raw("\x1b7")
        self.drain()

    def restore_cursor(self) -> None:
        """Leave the alternate screen, if it is shown, and return to the saved cursor position."""
        self.write_raw("\x1b[?1049l")

    def enable_mouse_support(self) -> None:
        """Let the terminal report clicks and the wheel, but no movements."""
        self.write_raw("\x1b[?1000h\x1b[?1006h")

    def disable_mouse_support(self) -> None:
        self.write_raw("\x1b[?1006l\x1b[?1000l")

    def reset_modes(self) -> None:
        """Reset the terminal modes that another program may have left set."""
        self.write_raw(RESET_MODES)
        self._cursor_visible = True
        self.flush()


def output_for(
    stream: TextIO,
    *,
    can: Capabilities | None = None,
    size: Callable[[], Size] | None = None,
    reflows: bool | None = None,
) -> BatchedOutput:
    """Return the output for a stream whose terminal has the capabilities `can`. Unknown reflow
    counts as no reflow, because finished text must never be erased.
    """

    def measure() -> Size:
        columns = rows = 0
        with ignore_lost_terminal():
            columns, rows = os.get_terminal_size(stream.fileno())
        return Size(rows=rows or 24, columns=columns or 80)

    return BatchedOutput(
        stream,
        size or measure,
        _DEPTHS[can.colours] if can else ColorDepth.from_env(),
        reflows=bool(can and can.reflows) if reflows is None else reflows,
        unicode=can is None or can.unicode,
    )


class InlineRenderer(Renderer):
    """A renderer that paints below finished text and erases only its own paint, even if the
    terminal folded painted rows because it got narrower.

    `may_paint` is called before each paint. If it returns False, the paint is skipped and the
    caller must repaint later. `painted` is called after each paint. `mouse` is the condition for
    reports of the mouse.
    """

    def __init__(
        self,
        style: BaseStyle,
        output: BatchedOutput,
        may_paint: Callable[[], bool],
        painted: Callable[[], None],
        mouse: Filter,
    ) -> None:
        self._may_paint = may_paint
        self._painted = painted
        self._steady = output
        super().__init__(style, output, mouse_support=mouse)

    def render(self, app: Application[Any], layout: Layout, is_done: bool = False) -> None:
        if self._may_paint():
            super().render(app, layout, is_done)
            self._painted()

    def erase(self, leave_alternate_screen: bool = True) -> None:
        self.output.cursor_up(self._folded_rows())
        super().erase(leave_alternate_screen)

    def _folded_rows(self) -> int:
        """Return the number of extra rows that folding added above the cursor."""
        screen, at = self._last_screen, self._cursor_pos
        width = self.output.get_size().columns
        if screen is None or not self._steady.reflows:
            return 0
        rows = [rows_taken(screen.data_buffer[y], None, width) for y in range(at.y)]
        return sum(rows) + rows_taken(screen.data_buffer[at.y], at.x, width) - 1 - at.y


def rows_taken(row: Mapping[int, Char], end: int | None, width: int) -> int:
    """Return the number of terminal rows a painted row takes at `width`, up to the column `end`.
    None means up to the last non-blank character, because some terminals drop trailing blanks.
    """
    if end is None:
        end = max((x for x, cell in row.items() if cell.char.strip()), default=-1) + 1
    rows, filled = 1, 0
    for x in range(end):
        cells = row[x].width if x in row else 1
        if filled + cells > width and filled:
            rows, filled = rows + 1, 0
        filled += cells
    return rows


MIN_SEEN_S = 0.4  # minimum time a question is visible before keys answer
MIN_QUIET_S = 0.7  # minimum time without a key before keys answer; longer than key repeat
RECHECK_S = 0.02  # interval to check a busy terminal again


class Readiness:
    """Whether single keys answer the open question. `busy` returns True while the terminal has not
    accepted all output. `changed` is called when keys start to answer.
    """

    def __init__(self, busy: Callable[[], bool], changed: Callable[[], None]) -> None:
        self.clock = time.monotonic
        self._busy = busy
        self._changed = changed
        self._follows = False
        self._painted = False
        self._seen_at: float | None = None
        self._pressed_at = -MIN_QUIET_S
        self._timer: asyncio.TimerHandle | None = None
        self.accepts_keys = False  # whether single keys answer

    @property
    def seen(self) -> bool:
        """Whether the question has reached the terminal, so that it can be answered at all."""
        if self._painted and self._seen_at is None and not self._busy():
            self._seen_at = self.clock()
        return self._seen_at is not None

    def ask(self, *, follows: bool) -> None:
        """Start with a new question. If it `follows` the user's own answer, it is expected, and
        keys answer it as soon as it is visible.
        """
        self.end()
        self._follows, self._painted, self._seen_at = follows, False, None

    def end(self) -> None:
        self._painted = self.accepts_keys = False
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def painted(self) -> None:
        """Record that the question and everything above it was written to the terminal."""
        self._painted = True
        if not self.accepts_keys and self._timer is None:
            self._check()

    def pressed(self) -> None:
        self._pressed_at = self.clock()
        if self._painted and not self._follows:
            self.accepts_keys = False
            if self._timer is None:
                self._check()

    def _check(self) -> None:
        self._timer = None
        delay = self._delay()
        if delay > 0:
            self._timer = asyncio.get_running_loop().call_later(delay, self._check)
        else:
            self.accepts_keys = True
            self._changed()

    def _delay(self) -> float:
        """Return the seconds until keys may answer, or until the next check."""
        if not self.seen or self._seen_at is None:
            return RECHECK_S
        if self._follows:
            return 0
        return max(self._seen_at + MIN_SEEN_S, self._pressed_at + MIN_QUIET_S) - self.clock()
