"""A bar of the parts of a whole, as wide as the terminal, and the table that is its legend. Each
part has a letter of its own, so that colours are not needed."""

from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_lowercase, ascii_uppercase, digits

from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ....tools.system.unicode import clean
from ...compaction.breakdown import apportion

FILL = "━"
MIN_FULL_COLUMNS = 60  # of the terminal, for all columns of the table
_LETTERS = ascii_lowercase + ascii_uppercase + digits
_INDENT = 2


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of the whole."""

    name: str
    size: int
    style: str = ""  # a role of the theme
    count: int = 0  # items; shown in the table if not 0
    saved: int = 0  # tokens; shown in the table if not 0
    fill: str = ""  # drawn in place of a letter: for what is not in use


@dataclass(frozen=True, slots=True)
class Bar:
    """The segments side by side; one that is too small for a column is in the table only."""

    segments: Sequence[Segment]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max(1, options.max_width - 2 * _INDENT)
        line = Text(" " * _INDENT, no_wrap=True)
        cells = apportion(width, [segment.size for segment in self.segments])
        for mark, segment, room in zip(_marks(self.segments), self.segments, cells, strict=True):
            line.append((mark + (segment.fill or FILL) * room)[:room], style=segment.style)
        yield line


@dataclass(frozen=True, slots=True)
class Legend:
    """A row for each segment; shares are of all segments together."""

    segments: Sequence[Segment]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        wide = options.max_width >= MIN_FULL_COLUMNS
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
            cells += [f"{segment.size:,}", percentage(segment.size, whole)]
            shown = f"{segment.saved:,}" if segment.saved else ""
            cells += [shown] * (wide and saved)
            grid.add_row(Text(mark, style=segment.style), Text(clean(segment.name)), *cells)
            if shown and not wide:
                grid.add_row("", Text("saved", style="dim"), Text(shown, style="dim"))
        yield Padding(grid, (0, 0, 0, _INDENT), expand=False)


def percentage(part: int, whole: int) -> str:
    """Return a part as a percentage; one that is not nothing is never 0 %."""
    shown = f"{part / whole if whole else 0.0:.0%}"
    return "<1%" if part and shown == "0%" else shown


def _marks(segments: Sequence[Segment]) -> list[str]:
    letters = iter(_LETTERS)
    return [segment.fill or next(letters, "?") for segment in segments]
