"""A bar of the parts of a whole, as wide as the terminal, and the table that is its legend. Colours
only help: each part begins with its own letter, and what is not in use has marks of its own."""

from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_lowercase, ascii_uppercase, digits

from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ...compaction.filling import apportioned
from ..visible import clean

FILL = "━"
NARROW = 60  # columns that the whole table needs
_LETTERS = ascii_lowercase + ascii_uppercase + digits
_INDENT = 2


@dataclass(frozen=True, slots=True)
class Segment:
    """A part. `fill` is what it is drawn with when it has no letter of its own, since it is not in
    use. `count` and `saved` are told in the table, when they are not 0; `style` is a role."""

    name: str
    size: int
    style: str = ""
    count: int = 0
    saved: int = 0
    fill: str = ""


@dataclass(frozen=True, slots=True)
class Bar:
    """The segments side by side. One that is too small for a column is in the table only."""

    segments: Sequence[Segment]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max(1, options.max_width - 2 * _INDENT)
        line = Text(" " * _INDENT, no_wrap=True)
        cells = apportioned(width, [segment.size for segment in self.segments])
        for mark, segment, room in zip(_marks(self.segments), self.segments, cells, strict=True):
            line.append((mark + (segment.fill or FILL) * room)[:room], style=segment.style)
        yield line


@dataclass(frozen=True, slots=True)
class Legend:
    """A row for each segment; shares are of all of them together."""

    segments: Sequence[Segment]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        wide = options.max_width >= NARROW
        saved = any(segment.saved for segment in self.segments)
        grid = Table(box=None, header_style="dim", padding=(0, 2 if wide else 1, 0, 0))
        grid.add_column("", no_wrap=True)
        grid.add_column("", overflow="fold")
        names = ["items"] * wide + ["tokens", "share"] + ["saved"] * (wide and saved)
        for name in names:
            grid.add_column(name, justify="right", no_wrap=True)
        whole = sum(segment.size for segment in self.segments)
        for mark, segment in zip(_marks(self.segments), self.segments, strict=True):
            cells = [f"{segment.count:,}" if segment.count else ""] * wide
            cells += [f"{segment.size:,}", share(segment.size, whole)]
            told = f"{segment.saved:,}" if segment.saved else ""
            cells += [told] * (wide and saved)
            grid.add_row(Text(mark, style=segment.style), Text(clean(segment.name)), *cells)
            if told and not wide:
                grid.add_row("", Text("saved", style="dim"), Text(told, style="dim"))
        yield Padding(grid, (0, 0, 0, _INDENT), expand=False)


def share(part: int, whole: int) -> str:
    """A part as a percentage; one that is there is never 0 %."""
    told = f"{part / whole if whole else 0.0:.0%}"
    return "<1%" if part and told == "0%" else told


def _marks(segments: Sequence[Segment]) -> list[str]:
    letters = iter(_LETTERS)
    return [segment.fill or next(letters, "?") for segment in segments]
