"""Renderables cut to a number of lines: a headline that keeps the facts at its end, and the last
rows of what is longer."""

from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.text import Text


@dataclass(frozen=True, slots=True)
class Headline:
    """One line: a text that is cut to leave room for the facts after it."""

    text: Text
    facts: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        line = self.text.copy()
        room = max(options.max_width - cell_len(self.facts), 10)
        line.truncate(room, overflow="ellipsis")
        line.append(self.facts, style="dim")
        line.no_wrap, line.overflow = True, "ellipsis"
        yield line


@dataclass(frozen=True, slots=True)
class Tail:
    """The last rows of a renderable."""

    renderable: RenderableType
    rows: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for row in console.render_lines(self.renderable, options, pad=False)[-self.rows :]:
            yield from row
            yield Segment.line()
