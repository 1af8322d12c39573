"""Rich renderables, each made by a function from plain values; `render_text` prints them. Styles
are theme roles. Text from models, tools and files is cleaned first, so that no escape sequence in
it reaches the terminal.
"""

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from ....tools.system.phrasing import count_of
from ....tools.system.unicode import clean
from ...events import Compacted
from ...lazy import dataclass, regex
from .. import compaction_report, status
from ..cells import hang_lines
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


@dataclass(frozen=True, slots=True)
class FirstRows:
    """The first rows of a renderable, and a row that counts the remaining rows plus `more`."""

    renderable: RenderableType
    rows: int
    more: int = 0
    unfold_hint: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rows = console.render_lines(self.renderable, options, pad=False)
        for row in rows[: self.rows]:
            yield from row
            yield Segment.line()
        if (left := len(rows) - self.rows + self.more) > 0:
            yield Text(f"… +{count_of(left, 'line')}{self.unfold_hint}", style="dim")


Depth = Literal["color", "mono", "plain", "spoken"]

COLUMN_GAP = 2
MIN_TABLE_COLUMNS, MIN_CELL_COLUMNS = 50, 13  # minimum terminal width: in total, and per column
MAX_LINE_CHARS = 1_000  # more than a few terminal lines
RECAP_MESSAGE_LINES, RECAP_ANSWER_LINES = 3, 10  # shown of the last turn in a resumed session
MAX_RECAP_CHARS = 10_000  # used of a message or answer for these lines
MAX_MESSAGE_LINES, MAX_WAITING_LINES = 30, 5  # shown of a sent and of a queued message
MAX_SHOWN_WAITING = 8  # newest queued messages shown

_FIGURE = regex(r"[<$]?[\d,.]+[%kM]?|not known")
_BLANK_END = regex(r"[ ]+((?:\x1b\[[0-9;]*m)*)$", re.MULTILINE)


def render_text(
    renderables: Iterable[RenderableType],
    *,
    width: int,
    depth: Depth,
    palette: theme.Palette = "ansi",
) -> str:
    """Return renderables as text for a terminal. `mono` keeps bold and dim. `plain` has no escape
    sequences. `spoken` is for screen readers and replaces marks and lines by words.
    """
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
            # Group: a bare Text would lose its own wrapping. The terminal wraps long lines.
            console.print(Group(renderable), crop=False)
    return _BLANK_END.sub(r"\1", captured.get())


def user_message(text: str) -> RenderableType:
    """Show the user's message. A long one is cut; /log shows it in full."""
    return _hanging(
        "❯ ", Text(_first_lines(text, MAX_MESSAGE_LINES), style="message"), "prompt", "> "
    )


def queued_message(text: str, when: str = "") -> RenderableType:
    """Show the beginning of a queued message, and when it will be sent. It is short, because it is
    repainted often.
    """
    mark = f"{when} ❯ " if when else "❯ "
    return _hanging(mark, Text(_first_lines(text, MAX_WAITING_LINES), style="dim"), "dim")


def queue(messages: Sequence[tuple[str, str]]) -> list[RenderableType]:
    """Show the newest queued messages with the time each will be sent ("" for next), and the number
    of earlier ones.
    """
    before = len(messages) - MAX_SHOWN_WAITING
    more = f"  {before:,} more waiting before these"
    head: list[RenderableType] = [Text(more, style="dim")] if before > 0 else []
    return [*head, *(queued_message(text, when) for text, when in messages[-MAX_SHOWN_WAITING:])]


def last_user_message(text: str) -> RenderableType:
    """Show the beginning of the user's last message in a resumed session."""
    shown = FirstRows(
        Text(clean(text.strip()[:MAX_RECAP_CHARS]), style="message"), RECAP_MESSAGE_LINES
    )
    return _hanging("❯ ", shown, "prompt", "You said: ")


def thought(text: str, seconds: float, unfold_hint: str = "") -> RenderableType:
    """Show finished thinking as one line; `unfold_hint` says how to see the rest."""
    first = " ".join(clean(text[:MAX_LINE_CHARS]).split())
    line = f"thought for {duration(seconds)}: {first}"
    return ScreenOrSpoken(
        *(Headline(Text(text, style="thought"), unfold_hint) for text in (f"∴ {line}", line))
    )


def notice(level: str, text: str) -> RenderableType:
    style = level if level in ("warning", "error") else "dim"
    spoken = "" if level == "info" else f"{level.capitalize()}: "
    mark = "· " if level == "info" else "! "
    return _hanging(mark, Text(clean(text), style=style), style, spoken)


def failure(message: str, hint: str = "") -> RenderableType:
    """Show an error message with the next step below it."""
    what = Text(clean(message), style="error")
    parts: list[RenderableType] = [_hanging("✗ ", what, "error", "Error: ")]
    if hint:
        parts.append(indented(Text(clean(hint))))
    return Group(*parts)


def activity(text: str) -> RenderableType:
    """Show the current activity."""
    return one_line(Text(f"◌ {clean(text)}", style="dim"))


def receipt(
    usage: Mapping[str, int],
    cost_usd: float | None,
    tools: int,
    seconds: float,
    *,
    share: float | None = None,
    spends: bool = True,
) -> RenderableType:
    """Show the usage of a turn and the context usage after it, in one dim line. `spends` is False
    if a scripted model only simulates prices.
    """
    cached = usage.get("cache_read", 0)
    prompt = usage.get("input", 0) + usage.get("cache_creation", 0) + cached
    parts = [f"{token_count(prompt)} in" + (f" ({token_count(cached)} cached)" if cached else "")]
    parts.append(f"{token_count(usage.get('output', 0))} out")
    if tools:
        parts.append(count_of(tools, "tool call"))
    parts.append(duration(seconds))
    price = "price not known" if cost_usd is None else dollars(cost_usd)
    parts.append(price if spends or cost_usd is None else f"{status.WOULD_COST} {price}")
    if share is not None:
        parts.append(f"context {share:.0%}")
    return ScreenOrSpoken(indented(_Facts(parts)), Text(f"This turn: {', '.join(parts)}."))


@dataclass(frozen=True, slots=True)
class _Facts:
    """Short facts separated by dots, wrapped only between facts."""

    facts: Sequence[str]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        line = self.facts[0]
        for place, fact in enumerate(self.facts[1:], 2):
            mark = " ·" if place < len(self.facts) else ""
            if cell_len(f"{line} · {fact}{mark}") > options.max_width:
                yield Text(f"{line} ·", style="dim")
                line = fact
            else:
                line = f"{line} · {fact}"
        yield Text(line, style="dim")


def table(
    rows: Iterable[Sequence[str | Text]], *, head: Sequence[str] = (), wrap: bool = True
) -> RenderableType:
    """Show rows in columns without lines: the first column bold, numbers right-aligned. The last
    column wraps, or is cut if `wrap` is False. On a narrow terminal, the other cells of a row are
    below its first cell.
    """
    cells = [
        [cell if isinstance(cell, Text) else Text(clean(cell)) for cell in row] for row in rows
    ]
    count = max(map(len, [head, *cells]))
    grid = Table(
        box=None,
        show_header=bool(head),
        header_style="dim",
        padding=(0, COLUMN_GAP, 0, 0),
        pad_edge=False,
    )
    for place in range(count):
        column = [row[place].plain for row in cells if place < len(row) and row[place]]
        has_figures = bool(place and column) and all(map(_FIGURE.fullmatch, column))
        grid.add_column(
            head[place] if place < len(head) else "",
            style="" if place else "bold",
            justify="right" if has_figures else "left",
            no_wrap=has_figures,
            overflow="fold",
        )
    for row in cells:
        grid.add_row(*row if wrap else (*row[:-1], one_line(row[-1].copy())))
    return indented(_Table(grid, head, cells))


@dataclass(frozen=True, slots=True)
class _Table:
    """Rows as a grid or, on a narrow terminal, with the other cells below the first."""

    grid: Table
    head: Sequence[str]
    rows: Sequence[Sequence[Text]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        needed = max(MIN_TABLE_COLUMNS, MIN_CELL_COLUMNS * len(self.grid.columns))
        if options.max_width >= needed:
            yield self.grid
            return
        for first, *others in self.rows:
            names = [*self.head[1:], *[""] * len(others)][: len(others)]
            if others and not _FIGURE.fullmatch(others[-1].plain):
                names[-1] = ""
            named = zip(names, others, strict=True)
            cells = [Text.assemble(name, " " * bool(name), cell) for name, cell in named if cell]
            yield Text(first.plain, style="bold")
            yield Padding(Text(" · ").join(cells), (0, 0, 0, COLUMN_GAP))


def dim(text: str) -> RenderableType:
    return Text(clean(text), style="dim")


def verbatim(text: str) -> RenderableType:
    """Show a text unchanged, wrapped and indented."""
    return indented(Text(clean(text)))


@dataclass(frozen=True, slots=True)
class HangingLines:
    """Lines with labels, each wrapped with a hanging indent."""

    text: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(hang_lines(clean(self.text), options.max_width), overflow="fold")


def indented(what: RenderableType) -> RenderableType:
    return Padding(what, (0, 0, 0, 2), expand=False)


def compaction_receipt(event: Compacted, agent: str = "", *, spends: bool = True) -> RenderableType:
    """Show the receipt of a compaction. Frequent layers and subagents get one dim line."""
    line = clean(f"{agent}: " * bool(agent) + compaction_report.receipt(event, spends=spends))
    if agent or event.layer != "summary":
        return one_line(Text(f"  {line}", style="dim"))
    ways = "/log shows the details · /uncompact undoes it · /compact --show asks first"
    return Group(_hanging("↧ ", Text(line), "compaction"), indented(Text(ways, style="dim")))


def token_count(tokens: int) -> str:
    """Return a token count in short form: 940, 12.3k, 1.2M."""
    if tokens < 1_000:
        return str(tokens)
    if tokens < 999_950:
        return f"{tokens / 1_000:.1f}k"
    return f"{tokens / 1_000_000:.1f}M"


def dollars(amount: float) -> str:
    return f"${amount:.4f}" if amount < 0.1 else f"${amount:.2f}"


def price(amount: float | None) -> str:
    """Return an amount as `dollars` does, or "not known", for a table cell."""
    return "not known" if amount is None else dollars(amount)


def _first_lines(text: str, limit: int) -> str:
    """Return the first `limit` lines of a text, with long lines cut."""
    lines = text.split("\n", limit)
    shown = [
        clean(line) if len(line) <= MAX_LINE_CHARS else f"{clean(line[:MAX_LINE_CHARS])}…"
        for line in lines[:limit]
    ]
    if len(lines) > limit:
        shown.append(f"… +{count_of(lines[limit].count(chr(10)) + 1, 'line')}")
    return "\n".join(shown)


@dataclass(frozen=True, slots=True)
class ScreenOrSpoken:
    """A renderable for the screen, and an alternative for screen readers."""

    shown: RenderableType
    spoken: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self.shown if options.is_terminal else self.spoken


def _hanging(mark: str, text: RenderableType, style: str, spoken: str = "") -> RenderableType:
    """Show a mark and a text next to it. For screen readers, `spoken` replaces the mark."""
    return ScreenOrSpoken(
        _mark_and_text(mark, text, style), _mark_and_text(spoken, text, style) if spoken else text
    )


def _mark_and_text(mark: str, text: RenderableType, style: str) -> RenderableType:
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
