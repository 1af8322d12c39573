"""The output of a real terminal. Several paints are combined into one write, without blocking."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TextIO

from prompt_toolkit.application import Application
from prompt_toolkit.data_structures import Size
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
from .writer import NonBlockingWriter

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
    caller must repaint later. `painted` is called after each paint.
    """

    def __init__(
        self,
        style: BaseStyle,
        output: BatchedOutput,
        may_paint: Callable[[], bool],
        painted: Callable[[], None],
    ) -> None:
        self._may_paint = may_paint
        self._painted = painted
        self._steady = output
        super().__init__(style, output)

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
