"""Tables of Markdown, made to fit: in columns where these have room, otherwise each row by itself
as a short record. Nothing in a cell is ever lost."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from .grammar import cells

NARROWEST = 10  # cells of a column that had to give way
BETWEEN = 2  # cells between two columns
SLACK = 4  # cells that a column gets besides where more rows follow

Justify = Literal["left", "center", "right"]


@dataclass(frozen=True, slots=True)
class Layout:
    """What all rows of a table have in common. `sample` are the first of them, the head included,
    which say how wide the columns are; `open` says that more may follow."""

    head: Sequence[str]
    sample: Sequence[Sequence[Text]]
    justify: Sequence[Justify]
    open: bool

    def widths(self, room: int) -> list[int] | None:
        """Of the columns in `room` cells; None where they have no room side by side."""
        wanted = [max(row[n].cell_len for row in self.sample) or 1 for n in range(len(self.head))]
        room -= BETWEEN * (len(wanted) - 1)
        if self.open:
            slack = min(SLACK, max(0, room - sum(wanted)) // len(wanted))
            wanted = [width + slack for width in wanted]
        if sum(wanted) <= room:
            return wanted
        left, widest = room, len(wanted)
        for width in sorted(wanted):  # the narrow ones keep theirs, the others share what is left
            if width * widest > left:
                break
            left, widest = left - width, widest - 1
        most = left // widest
        return [min(width, most) for width in wanted] if most >= NARROWEST else None


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of a table, under its head where they are the first."""

    layout: Layout
    rows: Sequence[Sequence[Text]]
    first: bool

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        # What is spoken is better heard with the name of its column.
        widths = self.layout.widths(options.max_width) if options.is_terminal else None
        if widths is None:
            yield from self._records()
            return
        table = Table(
            box=SIMPLE_HEAD,
            show_edge=False,
            pad_edge=False,
            padding=(0, BETWEEN - 1, 0, 0),
            show_header=self.first,
            header_style="markdown.table.header",
            border_style="markdown.table.border",
        )
        for name, width, justify in zip(
            self.layout.sample[0], widths, self.layout.justify, strict=True
        ):
            table.add_column(name, width=width, justify=justify, overflow="fold")
        for row in self.rows:
            table.add_row(*row)
        yield table

    def _records(self) -> RenderResult:
        for first, *others in self.rows:
            yield Text.assemble((f"{self.layout.head[0]}: ", "dim"), first, style="bold")
            for name, cell in zip(self.layout.head[1:], others, strict=True):
                if cell.plain:
                    yield Padding(
                        Text.assemble((f"{name}: ", "dim"), cell), (0, 0, 0, 2), expand=False
                    )


def begun(lines: Sequence[str], inline: Callable[[str], Text], *, open: bool) -> Layout:
    """The layout of a table that begins with these lines: its head, the line below it, rows."""
    head, columns = cells(lines[0]), cells(lines[1])
    sample = [[inline(cell) for cell in head], *rows(lines[2:], len(head), inline)]
    return Layout([cell.plain for cell in sample[0]], sample, [_justify(c) for c in columns], open)


def rows(lines: Sequence[str], columns: int, inline: Callable[[str], Text]) -> list[list[Text]]:
    """Each with as many cells as the table has columns; what is too much joins the last."""
    found = []
    for line in lines:
        parts = cells(line)
        parts = [*parts[: columns - 1], " | ".join(parts[columns - 1 :])]
        found.append([inline(part) for part in parts + [""] * (columns - len(parts))])
    return found


def _justify(mark: str) -> Justify:
    if mark.endswith(":"):
        return "center" if mark.startswith(":") else "right"
    return "left"
