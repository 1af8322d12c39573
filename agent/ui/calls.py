"""How calls of tools look: running, finished and folded, asked about; and the subagents that a call
of Task starts. As in render.py, each function makes one renderable from plain values.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.text import Text

from ..events import Answer, Question, ToolFinished
from .render import duration, one_line
from .subagents import Subagent
from .visible import clean

HEAD, TAIL = 4, 2  # lines of a folded result
DIFF = 40  # lines of a folded diff
QUIET = ("Read", "Write", "Edit")  # results whose text says nothing that the title does not

_LEVELS = {"YELLOW": "yellow", "ORANGE": "yellow", "RED": "red", "CRITICAL": "bold red"}
_MARKS = {"completed": "✔", "in_progress": "▸", "pending": "○"}


def running(name: str, title: str, seconds: float, output: Sequence[str]) -> RenderableType:
    """A tool that runs: its headline and the last lines of its output."""
    facts = f"{duration(seconds)} · esc to stop" if seconds >= 1 else ""
    head = _headline(name, title, "cyan", facts)
    return Group(head, *(one_line(Text(f"  {clean(line)}", style="dim")) for line in output))


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
    return one_line(Text(f"  {clean(name + agent.ending)}", style=style))


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
    return [head, *(one_line(Text(f"  {line}", style=style)) for line in fold(event.text))]


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


@dataclass(frozen=True, slots=True)
class _Headline:
    """One line: a text that is cut to leave room for the facts after it."""

    text: Text
    facts: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        facts = f"  {self.facts}" if self.facts else ""
        line = self.text.copy()
        line.truncate(max(options.max_width - cell_len(facts), 10), overflow="ellipsis")
        yield one_line(line.append(facts, style="dim"))


def _headline(name: str, title: str, style: str, facts: str) -> RenderableType:
    first, *more = clean(title).split("\n")
    mark, end = ("● ", style), " …" if more else ""
    return _Headline(Text.assemble(mark, (clean(name), "bold"), f"  {first}", end), facts)


def _progress(agent: Subagent) -> RenderableType:
    now, line = agent.progress, Text(f"  {clean(agent.name)} · ", style="dim")
    if now is None:
        return one_line(line.append("starting"))
    line.append(f"{now.calls:,} call{'s' * (now.calls != 1)} · {now.tokens:,} tokens ")
    line.append(now.level, style=_LEVELS.get(now.level, "green"))
    return one_line(line.append(f" · {' '.join(clean(now.doing).split())}" if now.doing else ""))


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
        parts.append(duration(event.seconds))
    return " · ".join(parts)


def _verb(asked: Question) -> str:
    return {"Bash": "run", "Write": "write", "Edit": "change"}.get(asked.tool, "be used with")
