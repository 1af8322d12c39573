"""Renderables for rich: each function makes one from plain values; `render_text` prints them.
Styles are roles of the theme. Text of models, tools and files is cleaned first: no escape sequence
of theirs reaches the terminal."""

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from ....tools.system.unicode import clean
from ...events import Compacted
from .. import compaction_report
from . import theme


@dataclass(frozen=True, slots=True)
class Headline:
    """One line: a text, cut to leave room for the facts after it."""

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
class LastRows:
    """The last rows of a renderable."""

    renderable: RenderableType
    rows: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for row in console.render_lines(self.renderable, options, pad=False)[-self.rows :]:
            yield from row
            yield Segment.line()


Depth = Literal["color", "mono", "plain", "spoken"]

MIN_TABLE_COLUMNS = 80  # of the terminal, for a table of many columns
MAX_LINE_CHARS = 1_000  # more than a few lines of a terminal hold
RECAP_WORDS_LINES, RECAP_ANSWER_LINES = 3, 7  # of the last turn, when a session is resumed
MAX_WORDS_LINES, MAX_WAITING_LINES = 30, 5  # of what the person says, and of what waits
MAX_SHOWN_WAITING = 8  # the newest of the words that wait

_FIGURE = re.compile(r"[<$]?[\d,.]+[%kM]?|not known")
_BLANK_END = re.compile(r"[ ]+((?:\x1b\[[0-9;]*m)*)$", re.MULTILINE)


def render_text(
    renderables: Iterable[RenderableType],
    *,
    width: int,
    depth: Depth,
    palette: theme.Palette = "ansi",
) -> str:
    """Return renderables as text for a terminal. `mono` keeps bold and dim, `plain` has no escape
    sequences, `spoken` may be read aloud: it says in words what marks and lines show."""
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
        theme=theme.rich_theme(palette),
        _environ={},
    )
    with console.capture() as captured:
        for renderable in renderables:
            console.print(Group(renderable))  # a bare Text would lose its own wrapping
    return _BLANK_END.sub(r"\1", captured.get())


def words(text: str) -> RenderableType:
    """Show what the person said; of a long text the beginning, since /log has all of it."""
    return _hanging("❯ ", Text(_first_lines(text, MAX_WORDS_LINES), style="words"), "prompt", "> ")


def waiting(text: str) -> RenderableType:
    """Show the beginning of words that wait to be sent: they are painted again and again."""
    return _hanging("❯ ", Text(_first_lines(text, MAX_WAITING_LINES), style="dim"), "dim")


def queue(words: Sequence[str]) -> list[RenderableType]:
    """Show what waits to be sent: the newest words, and how many wait before them."""
    before = len(words) - MAX_SHOWN_WAITING
    more = f"  {before:,} more wait before these"
    head: list[RenderableType] = [Text(more, style="dim")] if before > 0 else []
    return [*head, *map(waiting, words[-MAX_SHOWN_WAITING:])]


def recap(said: str, answer: str) -> RenderableType:
    """Show where a session was left: the person's last words and the answer, cut short."""
    words = _Beginning(Text(clean(said.strip()), style="dim"), RECAP_WORDS_LINES)
    parts = [_hanging("❯ ", words, "dim", "You said: ")]
    if answer.strip():
        text = _Beginning(Text(clean(answer.strip()), style="dim"), RECAP_ANSWER_LINES)
        parts.append(indented(text))
    return Group(*parts)


def thought(text: str, seconds: float, unfold_hint: str = "") -> RenderableType:
    """Show finished thinking as one line; `unfold_hint` says how to see the rest."""
    first = " ".join(clean(text[:MAX_LINE_CHARS]).split())
    line = f"thought for {duration(seconds)}: {first}"
    return Either(
        *(Headline(Text(text, style="thought"), unfold_hint) for text in (f"∴ {line}", line))
    )


def notice(level: str, text: str) -> RenderableType:
    style = level if level in ("warning", "error") else "dim"
    spoken = "" if level == "info" else f"{level.capitalize()}: "
    mark = "· " if level == "info" else "! "
    return _hanging(mark, Text(clean(text), style=style), style, spoken)


def failure(message: str, hint: str = "") -> RenderableType:
    """Show an error: what is wrong, and the next step below it."""
    what = Text(clean(message), style="error")
    parts: list[RenderableType] = [_hanging("✗ ", what, "error", "Error: ")]
    if hint:
        parts.append(indented(Text(clean(hint))))
    return Group(*parts)


def activity(text: str) -> RenderableType:
    """Show what is being waited for."""
    return one_line(Text(f"◌ {clean(text)}", style="dim"))


def receipt(
    usage: Mapping[str, int],
    cost_usd: float | None,
    tools: int,
    seconds: float,
    *,
    share: float | None = None,
) -> RenderableType:
    """Show in one quiet line what a turn has used, and how full the context is after it."""
    cached = usage.get("cache_read", 0)
    prompt = usage.get("input", 0) + usage.get("cache_creation", 0) + cached
    parts = [f"{token_count(prompt)} in" + (f" ({token_count(cached)} cached)" if cached else "")]
    parts.append(f"{token_count(usage.get('output', 0))} out")
    if tools:
        parts.append(f"{tools} tool call{'s' * (tools > 1)}")
    parts.append(duration(seconds))
    parts.append("price not known" if cost_usd is None else dollars(cost_usd))
    if share is not None:
        parts.append(f"context {share:.0%}")
    shown = indented(Text(" · ".join(parts), style="dim"))
    return Either(shown, Text(f"This turn: {', '.join(parts)}."))


def table(
    rows: Iterable[Sequence[str]], *, head: Sequence[str] = (), wrap: bool = True
) -> RenderableType:
    """Show rows in columns without lines: the first column bold, figures to the right. The last
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
    return indented(grid)


def listing(
    rows: Iterable[Sequence[str]], *, head: Sequence[str], wrap: bool = True
) -> RenderableType:
    """Show rows as `table` does, or each with its cells below it where there is no room."""
    listed = [tuple(map(clean, row)) for row in rows]
    return _Listing(listed, head, table(listed, head=head, wrap=wrap))


def dim(text: str) -> RenderableType:
    return Text(clean(text), style="dim")


def verbatim(text: str) -> RenderableType:
    """Show a text as it is, wrapped and indented."""
    return indented(Text(clean(text)))


def indented(what: RenderableType) -> RenderableType:
    return Padding(what, (0, 0, 0, 2), expand=False)


def compaction_receipt(event: Compacted, agent: str = "") -> RenderableType:
    """Show the receipt of a compaction: one quiet line for frequent layers and for subagents."""
    line = clean(f"{agent}: " * bool(agent) + compaction_report.receipt(event))
    if agent or event.layer != "summary":
        return one_line(Text(f"  {line}", style="dim"))
    ways = "/log shows it · /uncompact takes it back · /compact --show asks first"
    return Group(_hanging("↧ ", Text(line), "compaction"), indented(Text(ways, style="dim")))


def token_count(tokens: int) -> str:
    """Return a count of tokens for people: 940, 12.3k, 1.2M."""
    if tokens < 1_000:
        return str(tokens)
    if tokens < 999_950:
        return f"{tokens / 1_000:.1f}k"
    return f"{tokens / 1_000_000:.1f}M"


def dollars(amount: float) -> str:
    return f"${amount:.4f}" if amount < 0.1 else f"${amount:.2f}"


def price(amount: float | None) -> str:
    """Return an amount as `dollars` does, for a cell of a table."""
    return "not known" if amount is None else dollars(amount)


@dataclass(frozen=True, slots=True)
class _Listing:
    rows: Sequence[Sequence[str]]
    head: Sequence[str]
    table: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if options.max_width >= MIN_TABLE_COLUMNS:
            yield self.table
            return
        for first, *middle, last in self.rows:
            named = [f"{n} {c}" for n, c in zip(self.head[1:], middle, strict=False) if c]
            last = f"{self.head[-1]} {last}" if _FIGURE.fullmatch(last) else last
            yield indented(Text(first, style="bold"))
            yield Padding(Text(" · ".join([*named, last])), (0, 0, 0, 4), expand=False)


def _first_lines(text: str, limit: int) -> str:
    """Return the first lines of a text, each cut after some lines of the terminal."""
    lines = text.split("\n", limit)
    shown = [
        clean(line) if len(line) <= MAX_LINE_CHARS else f"{clean(line[:MAX_LINE_CHARS])}…"
        for line in lines[:limit]
    ]
    more = f"\n… +{lines[limit].count(chr(10)) + 1:,} lines" if len(lines) > limit else ""
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
    """A renderable for the eye, and another for where it is read aloud."""

    shown: RenderableType
    spoken: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self.shown if options.is_terminal else self.spoken


def _hanging(mark: str, text: RenderableType, style: str, spoken: str = "") -> RenderableType:
    """Show a mark and the text beside it; `spoken` replaces the mark where it is read aloud."""
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
