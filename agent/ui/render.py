"""How things look: each function makes one renderable from plain values, and `ink` turns
renderables into text for a terminal of a given width. Only the sixteen colours of the terminal are
used, so that everything holds on dark and on light backgrounds. What comes from a model, a tool or
a file is cleaned first: no escape sequence of theirs reaches the terminal.
"""

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from rich.theme import Theme

from ..events import Compacted
from . import report
from .visible import clean

Depth = Literal["color", "mono", "plain"]

NARROW = 80  # columns that a table of many cells needs
SAID, ANSWERED = 3, 7  # lines of what was said last, where a session goes on

_BLANK_END = re.compile(r"[ ]+((?:\x1b\[[0-9;]*m)*)$", re.MULTILINE)
_THEME = Theme(
    {
        "markdown.code": "cyan",
        "markdown.h1": "bold underline",
        "markdown.h2": "bold",
        "markdown.table.border": "dim",
        "markdown.table.header": "bold",
        "markdown.item.number": "bold",
        "markdown.block_quote": "dim",
    }
)


def ink(renderables: Iterable[RenderableType], *, width: int, depth: Depth) -> str:
    """Text for a terminal. `mono` keeps bold and dim, `plain` has no escape sequence at all."""
    console = Console(
        file=io.StringIO(),
        width=max(width, 10),
        force_terminal=depth != "plain",
        color_system=None if depth == "plain" else "standard",
        no_color=depth != "color",
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
        theme=_THEME,
        _environ={},
    )
    with console.capture() as captured:
        for renderable in renderables:
            console.print(Group(renderable))  # a bare Text would lose its own wrapping
    return _BLANK_END.sub(r"\1", captured.get())


def words(text: str) -> RenderableType:
    """What the person said."""
    return _hanging("❯ ", Text(clean(text), style="bold"), "bold cyan")


def waiting(text: str) -> RenderableType:
    """Words that wait to be sent."""
    return _hanging("❯ ", Text(clean(text), style="dim"), "dim")


def recap(said: str, answer: str) -> RenderableType:
    """Where a session was left: the person's last words and the answer to them, cut short."""
    parts: list[RenderableType] = [
        _hanging("❯ ", _Beginning(Text(clean(said.strip()), style="dim"), SAID), "dim")
    ]
    if answer.strip():
        text = _Beginning(Text(clean(answer.strip()), style="dim"), ANSWERED)
        parts.append(Padding(text, (0, 0, 0, 2), expand=False))
    return Group(*parts)


def thought(text: str, seconds: float) -> RenderableType:
    """Finished thinking, folded to one line."""
    first = " ".join(clean(text).split())
    return one_line(Text(f"∴ thought for {duration(seconds)}: {first}", style="dim italic"))


def notice(level: str, text: str) -> RenderableType:
    style = {"warning": "yellow", "error": "red"}.get(level, "dim")
    return _hanging("! " if level != "info" else "· ", Text(clean(text), style=style), style)


def failure(message: str, hint: str = "") -> RenderableType:
    """An error: what is wrong in red, the next step below it."""
    parts: list[RenderableType] = [_hanging("✗ ", Text(clean(message), style="red"), "red")]
    if hint:
        parts.append(Padding(Text(clean(hint)), (0, 0, 0, 2), expand=False))
    return Group(*parts)


def doing(text: str) -> RenderableType:
    """What is being waited for."""
    return one_line(Text(f"◌ {clean(text)}", style="dim"))


def receipt(
    usage: Mapping[str, int], cost_usd: float | None, tools: int, seconds: float
) -> RenderableType:
    """One quiet line of what a turn has taken."""
    cached = usage.get("cache_read", 0)
    prompt = usage.get("input", 0) + usage.get("cache_creation", 0) + cached
    parts = [f"{count(prompt)} in" + (f" ({count(cached)} cached)" if cached else "")]
    parts.append(f"{count(usage.get('output', 0))} out")
    if tools:
        parts.append(f"{tools} tool call{'s' * (tools > 1)}")
    parts.append(duration(seconds))
    if cost_usd is not None:
        parts.append(dollars(cost_usd))
    return one_line(Text("  " + " · ".join(parts), style="dim"))


def table(
    rows: Iterable[Sequence[str]], *, head: Sequence[str] = (), wrap: bool = True
) -> RenderableType:
    """Rows in columns without lines, the first in bold. The last column wraps, or is cut."""
    listed = [[clean(cell) for cell in row] for row in rows]
    grid = Table(box=None, show_header=bool(head), header_style="dim", padding=(0, 2, 0, 0))
    columns = max((len(row) for row in listed), default=len(head))
    for place in range(columns):
        grid.add_column(
            head[place] if place < len(head) else "",
            style="bold" if place == 0 else "",
            no_wrap=place < columns - 1,
            overflow="fold",
        )
    for *cells, last in listed:
        grid.add_row(*cells, Text(last) if wrap else one_line(Text(last)))
    return Padding(grid, (0, 0, 0, 2), expand=False)


def listing(
    rows: Iterable[Sequence[str]], *, head: Sequence[str], wrap: bool = True
) -> RenderableType:
    """As `table`, and where that has no room each row by itself: its first cell, the rest below."""
    listed = [tuple(map(clean, row)) for row in rows]
    return _Listing(listed, head, table(listed, head=head, wrap=wrap))


def dim(text: str) -> RenderableType:
    return Text(clean(text), style="dim")


def verbatim(text: str) -> RenderableType:
    """A text as it stands, wrapped and set in."""
    return Padding(Text(clean(text)), (0, 0, 0, 2), expand=False)


def compacted(event: Compacted, agent: str = "") -> RenderableType:
    """The receipt of a compaction. Layers that act often leave one quiet line, and so does what
    goes on in the subagent of that name."""
    line = clean(f"{agent}: {report.receipt(event)}" if agent else report.receipt(event))
    if agent or event.layer != "summary":
        return one_line(Text(f"  {line}", style="dim"))
    ways = "/log shows it · /compact --show lets you read one first · /uncompact takes it back"
    return Group(_hanging("↧ ", Text(line), "cyan"), Text(f"  {ways}", style="dim"))


def count(tokens: int) -> str:
    """Tokens for people: 940, 12.3k, 1.2M."""
    if tokens < 1_000:
        return str(tokens)
    if tokens < 999_950:
        return f"{tokens / 1_000:.1f}k"
    return f"{tokens / 1_000_000:.1f}M"


def dollars(amount: float) -> str:
    return f"${amount:.4f}" if amount < 0.1 else f"${amount:.2f}"


def price(amount: float | None) -> str:
    """As `dollars`, for a cell of a table."""
    return "not known" if amount is None else dollars(amount)


@dataclass(frozen=True, slots=True)
class _Listing:
    rows: Sequence[Sequence[str]]
    head: Sequence[str]
    table: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if options.max_width >= NARROW:
            yield self.table
            return
        for first, *middle, last in self.rows:
            named = [f"{n} {c}" for n, c in zip(self.head[1:], middle, strict=False) if c]
            yield Padding(Text(first, style="bold"), (0, 0, 0, 2), expand=False)
            yield Padding(Text(" · ".join([*named, last])), (0, 0, 0, 4), expand=False)


@dataclass(frozen=True, slots=True)
class _Beginning:
    """The first lines of a text as it is wrapped; one more counts the others."""

    text: Text
    limit: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = list(self.text.wrap(console, options.max_width))
        yield from lines[: self.limit]
        if len(lines) > self.limit:
            yield Text(f"… +{len(lines) - self.limit:,} lines", style="dim")


def _hanging(mark: str, text: RenderableType, style: str) -> RenderableType:
    """A mark, and the text beside it."""
    grid = Table.grid()
    grid.add_column(width=len(mark), no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(Text(mark, style=style), text)
    return grid


def one_line(text: Text) -> Text:
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def duration(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
