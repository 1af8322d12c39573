"""The output side of a real terminal: several paints as one write, never a question to it, never a
wait for it. And what becomes of what was painted when the terminal gets narrower: `Inline` takes
away all of it, where the terminal has folded rows that no longer fit."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from textwrap import wrap
from typing import Any, TextIO

from prompt_toolkit.application import Application
from prompt_toolkit.data_structures import Size
from prompt_toolkit.layout import Layout
from prompt_toolkit.layout.screen import Char
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.renderer import Renderer
from prompt_toolkit.styles import Attrs, BaseStyle

from ..visible import spell
from .capabilities import Capabilities, Colours
from .outlet import Outlet
from .signals import unseen

UNDO = (
    "\x1b[0m"  # colours
    "\x1b[?25h"  # the cursor is seen
    "\x1b[?7h"  # long lines are folded
    "\x1b[?2004l"  # what is pasted is typed
    "\x1b[?1000;1002;1003;1006l"  # the mouse is the terminal's
    "\x1b[?1l\x1b>"  # cursor keys and keypad send what they do in a shell
)

_DEPTHS: dict[Colours, ColorDepth] = {
    0: ColorDepth.DEPTH_1_BIT, 16: ColorDepth.DEPTH_4_BIT, 256: ColorDepth.DEPTH_8_BIT
}  # fmt: skip


class SteadyOutput(Vt100_Output):
    """A terminal to which several paints can go as one write. Never asks where the cursor is.
    `reflows` says whether it folds rows anew when it gets narrower, `unicode` whether it can show
    more marks than those of ASCII."""

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
        self._outlet = Outlet(stream)
        self._held = False

    @property
    def busy(self) -> bool:
        """Whether the terminal has not taken yet all that was written."""
        return self._outlet.busy

    def flush(self) -> None:
        if self._buffer and not self._held:
            text = "".join(self._buffer)
            self._buffer.clear()
            self._outlet.write(text if self.unicode else spell(text, self.encoding()))

    def say(self, line: str, look: Attrs, depth: ColorDepth) -> None:
        """Write a line that is broken between words where there is no room, and wait for the
        terminal to take it."""
        for part in wrap(line, max(self.get_size().columns, 2), break_on_hyphens=False):
            self.set_attributes(look, depth)
            self.write(part)
            self.reset_attributes()
            self.write_raw("\r\n")
        self.drain()

    def drain(self) -> None:
        """Wait for the terminal to take it all, if it takes any."""
        self.flush()
        self._outlet.drain()

    @contextmanager
    def held(self) -> Iterator[None]:
        self._held = True
        try:
            yield
        finally:
            self._held = False
            self.flush()

    def leave(self) -> None:
        """Have the terminal keep this place, and take all that was written."""
        self.write_raw("\x1b7")
        self.drain()

    def come_back(self) -> None:
        """Back to the place kept, from the alternate screen if it is shown."""
        self.write_raw("\x1b[?1049l")

    def undo(self) -> None:
        """Put right what a program that had the terminal may have left behind."""
        self.write_raw(UNDO)
        self._cursor_visible = True
        self.flush()


def steady(
    stream: TextIO,
    *,
    can: Capabilities | None = None,
    size: Callable[[], Size] | None = None,
    reflows: bool | None = None,
) -> SteadyOutput:
    """The output for a stream that `can` do so much; `size` is asked of the terminal when not
    given. Where it is not known to reflow it does not: what is finished must never be erased."""

    def measure() -> Size:
        columns = rows = 0
        with unseen():
            columns, rows = os.get_terminal_size(stream.fileno())
        return Size(rows=rows or 24, columns=columns or 80)

    return SteadyOutput(
        stream,
        size or measure,
        _DEPTHS[can.colours] if can else ColorDepth.from_env(),
        reflows=bool(can and can.reflows) if reflows is None else reflows,
        unicode=can is None or can.unicode,
    )


class Inline(Renderer):
    """Paints below what is finished, and erases no more than was painted. `may` says before each
    paint whether the terminal can take it; what is left out then is for the caller to bring up
    again. `painted` is told of each paint that was not left out."""

    def __init__(
        self,
        style: BaseStyle,
        output: SteadyOutput,
        may: Callable[[], bool],
        painted: Callable[[], None],
    ) -> None:
        self._may = may
        self._painted = painted
        self._steady = output
        super().__init__(style, output)

    def render(self, app: Application[Any], layout: Layout, is_done: bool = False) -> None:
        if self._may():
            super().render(app, layout, is_done)
            self._painted()

    def erase(self, leave_alternate_screen: bool = True) -> None:
        self.output.cursor_up(self._folded())
        super().erase(leave_alternate_screen)

    def _folded(self) -> int:
        """How many rows more the terminal has made of those painted above the cursor."""
        screen, at = self._last_screen, self._cursor_pos
        width = self.output.get_size().columns
        if screen is None or not self._steady.reflows:
            return 0
        rows = [rows_taken(screen.data_buffer[y], None, width) for y in range(at.y)]
        return sum(rows) + rows_taken(screen.data_buffer[at.y], at.x, width) - 1 - at.y


def rows_taken(row: Mapping[int, Char], end: int | None, width: int) -> int:
    """Rows that a painted row takes at a width, up to the column `end` (None: to its last
    character). Blanks at its end count for nothing: not every terminal keeps them."""
    if end is None:
        end = max((x for x, cell in row.items() if cell.char.strip()), default=-1) + 1
    rows, filled = 1, 0
    for x in range(end):
        cells = row[x].width if x in row else 1
        if filled + cells > width and filled:
            rows, filled = rows + 1, 0
        filled += cells
    return rows
