"""A command in a permission question, with a mark on the parts that caused the question. A long
command is shown in a few rows: its beginning, these parts, and its end.
"""

import math
import re
from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Column, Table
from rich.text import Text

from ....tools.system.plural import count_of
from ...lazy import dataclass
from ..cells import first_cells

MAX_ROWS = 10  # a command of up to this many rows is shown whole
MIN_LONG_CHARS = 300  # a longer command may need more rows on a narrow terminal
HEAD_LINES = 2  # first lines shown of a long command
MAX_PARTS = 3  # parts shown
MARGIN = 2  # cells for the mark left of a line
MARK = "!"

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class CommandText:
    """A command. With an `unfold_hint`, which says how to see the rest, a long one is cut."""

    command: str
    parts: Sequence[str]  # the parts that caused the question, dangerous ones first
    unfold_hint: str = ""

    @property
    def is_long(self) -> bool:
        """Whether the command may be too long to be shown in full."""
        return len(self.command) > MIN_LONG_CHARS or self.command.count("\n") >= MAX_ROWS

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max(options.max_width - MARGIN, MARGIN * 4)
        lines = self.command.split("\n")
        rows = sum(max(1, math.ceil(cell_len(line) / width)) for line in lines)
        grid = Table.grid(Column(width=MARGIN), Column(overflow="fold"))
        if not self.unfold_hint or rows <= MAX_ROWS:
            for line in lines:
                grid.add_row(*self._row(line, marks=len(lines) > 1))
        else:
            self._add_kept(grid, lines, width)
        yield grid

    def _add_kept(self, grid: Table, lines: Sequence[str], width: int) -> None:
        before = -1
        for number in _kept(lines, self.parts):
            if number - before > 1:
                left_out = f"… {count_of(number - before - 1, 'line')}"
                grid.add_row("", Text(left_out, style="dim"))
            for piece in _pieces(lines[number], _spans(lines[number], self.parts), width):
                grid.add_row(*self._row(piece, marks=True))
            before = number
        size = f"{count_of(len(lines), 'line')}, {len(self.command):,} characters"
        grid.add_row("", Text(f"shown in part: {size}{self.unfold_hint}", style="dim"))

    def _row(self, line: str, *, marks: bool) -> tuple[Text, Text]:
        spans, text = _spans(line, self.parts), Text(line, style="bold")
        for start, stop in spans:
            text.stylize("cause", start, stop)
        return Text(MARK if spans and marks else "", style="cause"), text


def _spans(line: str, parts: Sequence[str]) -> list[Span]:
    """Return the positions of the parts in a line. Only the first line of each part is searched."""
    firsts = [part.partition("\n")[0] for part in parts]
    patterns = [rf"(?<!\w){re.escape(first)}(?![\w-])" for first in firsts if first]
    return [found.span() for each in patterns for found in re.finditer(each, line)]


def _kept(lines: Sequence[str], parts: Sequence[str]) -> list[int]:
    """Return the numbers of the lines to show: the first, those with parts, the last."""
    kept = {*range(min(HEAD_LINES, len(lines))), len(lines) - 1}
    for part in parts[:MAX_PARTS]:
        kept |= {next((n for n, line in enumerate(lines) if _spans(line, [part])), 0)}
    return sorted(kept)


def _pieces(line: str, spans: Sequence[Span], width: int) -> Iterator[str]:
    """Yield a line that fits, or the beginning, the parts and the end of a longer line."""
    if cell_len(line) <= (2 if spans else 1) * width:
        yield line
        return
    head = first_cells(line, width - 1)
    yield f"{head}…"
    for start, stop in [span for span in spans if span[1] > len(head)][:MAX_PARTS]:
        begin = max(0, start - width // 4)
        yield f"…{first_cells(line[begin : stop + width // 4], 2 * width - 2)}…"
    yield f"…{line[-width // 2 :]}"
