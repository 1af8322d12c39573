"""A bar that shows the parts of a whole across the terminal, and a table as its legend. Each part
has its own letter, so that no colours are needed.
"""

from collections.abc import Sequence
from string import ascii_lowercase, ascii_uppercase, digits

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from ...compaction.breakdown import apportion
from ...lazy import dataclass
from .render import table

FILL = "━"
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
    fill: str = ""  # drawn instead of a letter, for unused space


@dataclass(frozen=True, slots=True)
class Bar:
    """The segments next to each other. A segment below one column is only in the legend."""

    segments: Sequence[Segment]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max(1, options.max_width - 2 * _INDENT)
        line = Text(" " * _INDENT, no_wrap=True)
        cells = apportion(width, [segment.size for segment in self.segments])
        for mark, segment, room in zip(_marks(self.segments), self.segments, cells, strict=True):
            line.append((mark + (segment.fill or FILL) * room)[:room], style=segment.style)
        yield line


def legend(segments: Sequence[Segment]) -> RenderableType:
    """Return a table with a row per segment. Shares are relative to the sum of all segments."""
    whole = sum(segment.size for segment in segments)
    has_saved = any(segment.saved for segment in segments)
    rows: list[tuple[str | Text, ...]] = [
        (
            Text(mark, style=segment.style),
            segment.name,
            f"{segment.count:,}" if segment.count else "",
            f"{segment.size:,}",
            percentage(segment.size, whole),
            *([f"{segment.saved:,}" if segment.saved else ""] * has_saved),
        )
        for mark, segment in zip(_marks(segments), segments, strict=True)
    ]
    return table(rows, head=("", "", "items", "tokens", "share", *["saved"] * has_saved))


def percentage(part: int, whole: int) -> str:
    """Return a part as a percentage. A non-zero part is never shown as 0 %."""
    shown = f"{part / whole if whole else 0.0:.0%}"
    return "<1%" if part and shown == "0%" else shown


def _marks(segments: Sequence[Segment]) -> list[str]:
    letters = iter(_LETTERS)
    return [segment.fill or next(letters, "?") for segment in segments]
