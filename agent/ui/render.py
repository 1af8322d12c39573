"""How things look: each function makes one renderable from plain values, and `ink` turns
renderables into text for a terminal of a given width. Only the sixteen colours of the terminal are
used, so that everything holds on dark and on light backgrounds. What comes from a model, a tool or
a file is cleaned first: no escape sequence of theirs reaches the terminal.
"""

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from rich.theme import Theme

from ..events import Answer, Compacted, Question, ToolFinished
from . import report
from .subagents import Subagent
from .visible import clean

Depth = Literal["color", "mono", "plain"]

HEAD, TAIL = 4, 2  # lines of a folded result
NARROW = 80  # columns that a table of many cells needs
DIFF = 40  # lines of a folded diff
SAID, ANSWERED = 3, 7  # lines of what was said last, where a session goes on
QUIET = ("Read", "Write", "Edit")  # results whose text says nothing that the title does not

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
_LEVELS = {"YELLOW": "yellow", "ORANGE": "yellow", "RED": "red", "CRITICAL": "bold red"}
_MARKS = {"completed": "✔", "in_progress": "▸", "pending": "○"}


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
    return _one_line(Text(f"∴ thought for {_seconds(seconds)}: {first}", style="dim italic"))


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
    return _one_line(Text(f"◌ {clean(text)}", style="dim"))


def running(name: str, title: str, seconds: float, output: Sequence[str]) -> RenderableType:
    """A tool that runs: its headline and the last lines of its output."""
    facts = f"{_seconds(seconds)} · esc to stop" if seconds >= 1 else ""
    head = _headline(name, title, "cyan", facts)
    return Group(head, *(_one_line(Text(f"  {clean(line)}", style="dim")) for line in output))


def delegating(titles: Sequence[str], agents: Sequence[Subagent], seconds: float) -> RenderableType:
    """Calls of Task that run: one headline for all, and a line for each subagent."""
    waiting = len(titles) - len(agents) if agents else 0
    several = f"{len(titles)} subagents" + (f", {waiting} of them waiting" if waiting else "")
    head = running("Task", titles[0] if len(titles) == 1 else several, seconds, ())
    return Group(head, *map(_progress, agents))


def delegated(agent: Subagent, *, named: bool = False) -> RenderableType:
    """How a subagent ended and what it took."""
    style = "dim" if agent.finished and agent.finished.status == "done" else "yellow"
    name = f"{agent.name} · " if named else ""
    return _one_line(Text(f"  {clean(name + agent.ending)}", style=style))


def result(event: ToolFinished) -> list[RenderableType]:
    """A finished tool call: its headline and, where there is more to see, its result folded."""
    head = _headline(event.name, event.title, "red" if event.is_error else "green", _facts(event))
    details = event.details
    if not event.is_error and isinstance(details.get("diff"), str):
        return [head, diff(details["diff"], limit=DIFF)]
    if not event.is_error and isinstance(details.get("todos"), list):
        return [head, todos(details["todos"])]
    if not event.is_error and event.name in QUIET:
        return [head]
    # What a failed command printed is not all error; what a tool itself says then is.
    style = "red" if event.is_error and "exit_code" not in details else "dim"
    return [head, *(_one_line(Text(f"  {line}", style=style)) for line in fold(event.text))]


def fold(text: str) -> list[str]:
    """The first and last lines of a text; one line says how many stand between."""
    lines = clean(text).strip("\n").split("\n")
    if len(lines) <= HEAD + TAIL + 1:
        return [line for line in lines if line or len(lines) > 1]
    hidden = len(lines) - HEAD - TAIL
    return [*lines[:HEAD], f"… +{hidden:,} lines", *lines[-TAIL:]]


def diff(text: str, *, limit: int | None = None) -> RenderableType:
    """A unified diff in colour; from `limit` lines on, the rest is counted."""
    lines = clean(text).rstrip("\n").split("\n")
    if [line[:3] for line in lines[:3]] == ["---", "+++", "@@ "]:  # the title names the file
        del lines[:2]
    shown = lines if limit is None or len(lines) <= limit else lines[:limit]
    styles = {"+": "green", "-": "red", "@": "cyan"}
    out = [Text(f"  {line}", style=styles.get(line[:1], "dim")) for line in shown]
    if len(shown) < len(lines):
        out.append(Text(f"  … +{len(lines) - len(shown):,} lines", style="dim"))
    return Group(*out)


def todos(items: Sequence[Mapping[str, Any]]) -> RenderableType:
    out = []
    for item in items:
        status = str(item.get("status"))
        style = {"completed": "dim", "in_progress": "bold"}.get(status, "")
        line = f"{_MARKS.get(status, '○')} {clean(str(item.get('content', '')))}"
        out.append(Padding(Text(line, style=style), (0, 0, 0, 2), expand=False))
    return Group(*out)


def question(asked: Question, agent: str = "") -> RenderableType:
    """Exactly what would run or change: never cut. `agent` names the subagent that asks."""
    who = f"{agent}: {asked.tool}" if agent else asked.tool
    parts: list[RenderableType] = [
        Text.assemble(("? ", "bold yellow"), (f"{clean(who)} wants to ", "bold"), _verb(asked))
    ]
    if asked.diff:
        parts.append(Padding(Text(clean(asked.title), style="bold"), (0, 0, 0, 2), expand=False))
        parts.append(diff(asked.diff))
    else:
        for name, value in asked.input.items():
            label = "" if len(asked.input) == 1 else f"{name}: "
            line = Text.assemble((label, "dim"), clean(str(value)))
            parts.append(Padding(line, (0, 0, 0, 2), expand=False))
    if asked.reason:
        parts.append(Padding(Text(clean(asked.reason), style="dim"), (0, 0, 0, 2), expand=False))
    return Group(*parts)


def answer(given: Answer, rule: str) -> RenderableType:
    """What the person decided."""
    if given.remember:
        return Text(f"  ✓ allowed, and for this session: {clean(rule)}", style="green")
    if given.allow:
        return Text("  ✓ allowed", style="green")
    why = f": {clean(given.reason)}" if given.reason else ""
    return Text(f"  ✗ declined{why}", style="red")


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
    parts.append(_seconds(seconds))
    if cost_usd is not None:
        parts.append(dollars(cost_usd))
    return _one_line(Text("  " + " · ".join(parts), style="dim"))


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
        grid.add_row(*cells, Text(last) if wrap else _one_line(Text(last)))
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
        return _one_line(Text(f"  {line}", style="dim"))
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
class _Headline:
    """One line: a text that is cut to leave room for the facts after it."""

    text: Text
    facts: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        facts = f"  {self.facts}" if self.facts else ""
        line = self.text.copy()
        line.truncate(max(options.max_width - cell_len(facts), 10), overflow="ellipsis")
        yield _one_line(line.append(facts, style="dim"))


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


def _headline(name: str, title: str, style: str, facts: str) -> RenderableType:
    first, *more = clean(title).split("\n")
    mark, end = ("● ", style), " …" if more else ""
    return _Headline(Text.assemble(mark, (clean(name), "bold"), f"  {first}", end), facts)


def _progress(agent: Subagent) -> RenderableType:
    now, line = agent.progress, Text(f"  {clean(agent.name)} · ", style="dim")
    if now is None:
        return _one_line(line.append("starting"))
    line.append(f"{now.calls:,} call{'s' * (now.calls != 1)} · {now.tokens:,} tokens ")
    line.append(now.level, style=_LEVELS.get(now.level, "green"))
    return _one_line(line.append(f" · {' '.join(clean(now.doing).split())}" if now.doing else ""))


def _facts(event: ToolFinished) -> str:
    details, parts = event.details, []
    if details.get("added") is not None and details.get("removed") is not None:
        parts.append(f"+{details['added']} −{details['removed']}")
    elif event.name == "Read" and not event.is_error:
        lines = event.text.count("\n") + 1
        parts.append(f"{lines:,} line{'s' * (lines > 1)}")
    if details.get("interrupted"):
        parts.append("interrupted")
    elif details.get("exit_code"):
        parts.append(f"exit {details['exit_code']}")
    if details.get("denied") is True:  # a list: calls of a subagent
        parts.append("not run")
    if event.seconds >= 1:
        parts.append(_seconds(event.seconds))
    return " · ".join(parts)


def _verb(asked: Question) -> str:
    return {"Bash": "run", "Write": "write", "Edit": "change"}.get(asked.tool, "be used with")


def _hanging(mark: str, text: RenderableType, style: str) -> RenderableType:
    """A mark, and the text beside it."""
    grid = Table.grid()
    grid.add_column(width=len(mark), no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(Text(mark, style=style), text)
    return grid


def _one_line(text: Text) -> Text:
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def _seconds(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
