"""How things look: each function makes one renderable from plain values, and `ink` turns
renderables into text for a terminal of a given width. Styles are roles of the theme. What comes
from a model, a tool or a file is cleaned first: no escape sequence of theirs reaches the terminal.
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

from ...events import Compacted
from .. import report
from ..visible import clean
from . import theme
from .lines import Headline

Depth = Literal["color", "mono", "plain", "spoken"]

NARROW = 80  # columns that a table of many cells needs
LINE = 1_000  # characters that no line of a terminal holds
SAID, ANSWERED = 3, 7  # lines of what was said last, where a session goes on
WORDS, WAITING = 30, 5  # lines of what is said now, and of what waits to be sent
MOST_WAITING = 8  # words that are shown of those that wait

_FIGURE = re.compile(r"[<$]?[\d,.]+[%kM]?|not known")
_BLANK_END = re.compile(r"[ ]+((?:\x1b\[[0-9;]*m)*)$", re.MULTILINE)


def ink(
    renderables: Iterable[RenderableType],
    *,
    width: int,
    depth: Depth,
    palette: theme.Palette = "ansi",
) -> str:
    """Text for a terminal. `mono` keeps bold and dim, `plain` has no escape sequence at all, and
    `spoken` says in words what marks and lines show: it may be read aloud."""
    colours: Literal["standard", "256"] = "standard" if palette == "ansi" else "256"
    console = Console(
        file=io.StringIO(),
        width=max(width, 10),
        force_terminal=depth != "spoken",
        color_system=colours if depth in ("color", "mono") else None,
        no_color=depth != "color",
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
        theme=theme.for_rich(palette),
        _environ={},
    )
    with console.capture() as captured:
        for renderable in renderables:
            console.print(Group(renderable))  # a bare Text would lose its own wrapping
    return _BLANK_END.sub(r"\1", captured.get())


def words(text: str) -> RenderableType:
    """What the person said; long words by their beginning, as /log has them whole."""
    return _hanging("❯ ", Text(_begun(text, WORDS), style="words"), "prompt", "> ")


def waiting(text: str) -> RenderableType:
    """Words that wait to be sent, by their beginning: they are painted again and again."""
    return _hanging("❯ ", Text(_begun(text, WAITING), style="dim"), "dim")


def queue(words: Sequence[str]) -> list[RenderableType]:
    """All that waits to be sent: the newest of it, and how much stands before that."""
    before = len(words) - MOST_WAITING
    told = f"  {before:,} more wait before these"
    head: list[RenderableType] = [Text(told, style="dim")] if before > 0 else []
    return [*head, *map(waiting, words[-MOST_WAITING:])]


def recap(said: str, answer: str) -> RenderableType:
    """Where a session was left: the person's last words and the answer to them, cut short."""
    words = _Beginning(Text(clean(said.strip()), style="dim"), SAID)
    parts = [_hanging("❯ ", words, "dim", "You said: ")]
    if answer.strip():
        text = _Beginning(Text(clean(answer.strip()), style="dim"), ANSWERED)
        parts.append(Padding(text, (0, 0, 0, 2), expand=False))
    return Group(*parts)


def thought(text: str, seconds: float, way: str = "") -> RenderableType:
    """Finished thinking, folded to one line; `way` says how to see the rest."""
    first = " ".join(clean(text[:LINE]).split())
    line = f"thought for {duration(seconds)}: {first}"
    return Either(*(Headline(Text(text, style="thought"), way) for text in (f"∴ {line}", line)))


def notice(level: str, text: str) -> RenderableType:
    style = level if level in ("warning", "error") else "dim"
    spoken = "" if level == "info" else f"{level.capitalize()}: "
    mark = "· " if level == "info" else "! "
    return _hanging(mark, Text(clean(text), style=style), style, spoken)


def failure(message: str, hint: str = "") -> RenderableType:
    """An error: what is wrong, the next step below it."""
    what = Text(clean(message), style="error")
    parts: list[RenderableType] = [_hanging("✗ ", what, "error", "Error: ")]
    if hint:
        parts.append(Padding(Text(clean(hint)), (0, 0, 0, 2), expand=False))
    return Group(*parts)


def doing(text: str) -> RenderableType:
    """What is being waited for."""
    return one_line(Text(f"◌ {clean(text)}", style="dim"))


def receipt(
    usage: Mapping[str, int],
    cost_usd: float | None,
    tools: int,
    seconds: float,
    *,
    share: float | None = None,
) -> RenderableType:
    """One quiet line of what a turn has taken, and how full the context is after it."""
    cached = usage.get("cache_read", 0)
    prompt = usage.get("input", 0) + usage.get("cache_creation", 0) + cached
    parts = [f"{count(prompt)} in" + (f" ({count(cached)} cached)" if cached else "")]
    parts.append(f"{count(usage.get('output', 0))} out")
    if tools:
        parts.append(f"{tools} tool call{'s' * (tools > 1)}")
    parts.append(duration(seconds))
    parts.append("price not known" if cost_usd is None else dollars(cost_usd))
    if share is not None:
        parts.append(f"context {share:.0%}")
    shown = Padding(Text(" · ".join(parts), style="dim"), (0, 0, 0, 2), expand=False)
    return Either(shown, Text(f"This turn: {', '.join(parts)}."))


def table(
    rows: Iterable[Sequence[str]], *, head: Sequence[str] = (), wrap: bool = True
) -> RenderableType:
    """Rows in columns without lines, the first in bold, those of figures to the right. The last
    column wraps, or is cut."""
    listed = [[clean(cell) for cell in row] for row in rows]
    grid = Table(box=None, show_header=bool(head), header_style="dim", padding=(0, 2, 0, 0))
    columns = max((len(row) for row in listed), default=len(head))
    for place in range(columns):
        cells = [row[place] for row in listed if place < len(row) and row[place]]
        figures = place > 0 and bool(cells) and all(map(_FIGURE.fullmatch, cells))
        grid.add_column(
            head[place] if place < len(head) else "",
            style="bold" if place == 0 else "",
            justify="right" if figures else "left",
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
    return inset(Text(clean(text)))


def inset(what: RenderableType) -> RenderableType:
    return Padding(what, (0, 0, 0, 2), expand=False)


def compacted(event: Compacted, agent: str = "") -> RenderableType:
    """The receipt of a compaction. Layers that act often leave one quiet line, and so does what
    goes on in the subagent of that name."""
    line = clean(f"{agent}: {report.receipt(event)}" if agent else report.receipt(event))
    if agent or event.layer != "summary":
        return one_line(Text(f"  {line}", style="dim"))
    ways = Text(
        "/log shows it · /uncompact takes it back · /compact --show asks first", style="dim"
    )
    return Group(
        _hanging("↧ ", Text(line), "compaction"), Padding(ways, (0, 0, 0, 2), expand=False)
    )


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
            last = f"{self.head[-1]} {last}" if _FIGURE.fullmatch(last) else last
            yield Padding(Text(first, style="bold"), (0, 0, 0, 2), expand=False)
            yield Padding(Text(" · ".join([*named, last])), (0, 0, 0, 4), expand=False)


def _begun(text: str, most: int) -> str:
    """The first lines of a text, none of them longer than a few of the terminal's."""
    lines = text.split("\n", most)
    shown = [
        clean(line) if len(line) <= LINE else f"{clean(line[:LINE])}…" for line in lines[:most]
    ]
    more = f"\n… +{lines[most].count(chr(10)) + 1:,} lines" if len(lines) > most else ""
    return "\n".join(shown) + more


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


@dataclass(frozen=True, slots=True)
class Either:
    """What is seen, and what stands for it where it is spoken."""

    shown: RenderableType
    spoken: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self.shown if options.is_terminal else self.spoken


def _hanging(mark: str, text: RenderableType, style: str, spoken: str = "") -> RenderableType:
    """A mark, and the text beside it; `spoken` stands for the mark."""
    return Either(_beside(mark, text, style), _beside(spoken, text, style) if spoken else text)


def _beside(mark: str, text: RenderableType, style: str) -> RenderableType:
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
