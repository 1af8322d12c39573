"""How calls of tools look: running, finished and folded, asked about; and the subagents that a call
of Task starts. As in render.py, each function makes one renderable from plain values.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from ...events import Answer, Question, ToolFinished
from ...unseen import revealed
from ..status import short
from ..subagents import Subagent
from ..visible import clean
from .diffs import diff
from .lines import Headline
from .render import Either, duration, one_line

HEAD, TAIL = 4, 2  # lines of a folded result
CUT = 76  # characters that a line of any terminal may have no room for
QUIET = ("Read", "Write", "Edit")  # results whose text says nothing that the title does not

_OFFLOADED = re.compile(r"^\*\*Preview:\*\* .* of ([\d,]+) lines", re.MULTILINE)
_SPOKEN = {"running": "starts", "done": "is done", "error": "failed"}
_MARKS = {"completed": ("✔", "done:"), "in_progress": ("▸", "now:"), "pending": ("○", "to do:")}


def starting(name: str, title: str) -> RenderableType:
    """A tool that begins to run, where nobody sees that it does."""
    return _headline(name, title, "running", "")


def running(name: str, title: str, seconds: float, output: Sequence[str]) -> RenderableType:
    """A tool that runs: its headline and the last lines of its output."""
    facts = f"{duration(seconds)} · esc to stop" if seconds >= 1 else ""
    head = _headline(name, title, "running", facts)
    return Group(head, *(one_line(Text(f"  {clean(line)}", style="dim")) for line in output))


def delegating(titles: Sequence[str], agents: Sequence[Subagent], seconds: float) -> RenderableType:
    """Calls of Task that run: one headline for all, and a line for each subagent."""
    waiting = len(titles) - len(agents) if agents else 0
    several = f"{len(titles)} subagents" + (f", {waiting} of them waiting" if waiting else "")
    head = running("Task", titles[0] if len(titles) == 1 else several, seconds, ())
    return Group(head, *map(_progress, agents))


def delegated(agent: Subagent, *, named: bool = False) -> RenderableType:
    """How a subagent ended and what it took."""
    style = "dim" if agent.finished and agent.finished.status == "done" else "warning"
    name = f"{agent.name} · " if named else ""
    return one_line(Text(f"  {clean(name + agent.ending)}", style=style))


@dataclass(frozen=True, slots=True)
class Result:
    """What is shown of a finished call, and whether there is more to it."""

    parts: list[RenderableType]
    folded: bool = False


def result(event: ToolFinished, *, way: str = "") -> Result:
    """A finished tool call: its headline and, where there is more to see, its result folded, with
    the way to see it unfolded."""
    head = _headline(event.name, event.title, "error" if event.is_error else "done", _facts(event))
    details = event.details
    if not event.is_error and isinstance(details.get("diff"), str):
        change = diff(details["diff"], fold=True, path=event.title, way=way)
        return Result([head, change] if change.lines else [head], bool(change.hidden))
    if not event.is_error and isinstance(details.get("todos"), list):
        return Result([head, todos(details["todos"])])
    if not event.is_error and event.name in QUIET:
        return Result([head], bool(event.text))
    # What a failed command printed is not all error; what a tool itself says then is.
    style = "error" if event.is_error and "exit_code" not in details else "dim"
    lines, total = _lines(event.text, offloaded=bool(details.get("tokens_saved")))
    shown = _ends(lines, total, way)
    folded = total > len(lines) or len(shown) < len(lines) or any(len(x) > CUT for x in shown)
    return Result([head, *(one_line(Text(f"  {line}", style=style)) for line in shown)], folded)


def _lines(text: str, *, offloaded: bool) -> tuple[list[str], int]:
    """The lines of a result, and how many there are in all. Of an offloaded one the model reads
    where it is and how it begins and ends; people are shown the latter."""
    found = _OFFLOADED.search(text) if offloaded else None
    if found:
        preview = [clean(line[2:]) for line in text.split("\n") if line.startswith("> ")]
        return preview, max(int(found[1].replace(",", "")), len(preview) + 1)
    lines = clean(text).strip("\n").split("\n")
    lines = [] if lines == [""] else lines
    return lines, len(lines)


def _ends(lines: Sequence[str], total: int, way: str) -> list[str]:
    """The first and the last of `total` lines; one line says how many stand between."""
    if total <= HEAD + TAIL + 1 and total == len(lines):
        return list(lines)
    head, tail = lines[:HEAD], lines[HEAD:][-TAIL:]
    return [*head, f"… +{total - len(head) - len(tail):,} lines{way}", *tail]


def unfolded(title: str, lines: Sequence[str], style: str = "") -> RenderableType:
    """What was folded, in full, under what it is."""
    rows = (Text(f"  {line}", style=style, overflow="fold") for line in lines)
    return Group(_unfolding(title), *rows)


def unfolded_diff(title: str, difference: str, path: str) -> RenderableType:
    return Group(_unfolding(title), diff(difference, path=path))


def _unfolding(title: str) -> RenderableType:
    head = clean(title).partition("\n")[0]
    return Either(Headline(Text.assemble(("▾ ", "dim"), (head, "bold"))), Text(f"In full: {head}"))


def todos(items: Sequence[Mapping[str, Any]]) -> RenderableType:
    out = []
    for item in items:
        status = str(item.get("status"))
        style = {"completed": "dim", "in_progress": "bold"}.get(status, "")
        lines = [
            Text(f"{mark} {clean(str(item.get('content', '')))}", style=style)
            for mark in _MARKS.get(status, _MARKS["pending"])
        ]
        out.append(_below(Either(*lines)))
    return Group(*out)


def question(asked: Question, agent: str = "") -> RenderableType:
    """Exactly what would run or change: never cut. `agent` names the subagent that asks."""
    who = f"{agent}: {asked.tool}" if agent else asked.tool
    head = (f"{_whole(who)} wants to ", "bold")
    parts: list[RenderableType] = [Text.assemble(("? ", "question"), head, _verb(asked))]
    if asked.diff:
        parts.append(_below(Text(_whole(asked.title), style="bold")))
        parts.append(diff(revealed(asked.diff.replace("\r\n", "\n")), path=asked.title))
    else:
        parts += [_below(line) for line in _arguments(asked)]
    if asked.reason:
        parts.append(_below(Text(f"why: {_whole(asked.reason)}", style="dim")))
    return Group(*parts)


def answer(given: Answer) -> RenderableType:
    """What was decided, and what is kept of it."""
    why = f": {clean(given.reason)}" if given.reason else ""
    if not given.allow:
        return _below(Text(f"✗ declined{why}", style="declined"))
    if given.where:
        session = given.where == "session"
        where = "for this session" if session else f"kept in {short(Path(given.where))}"
        why = f", from now on {clean(given.rule)} · {clean(where)}"
    return _below(Text(f"✓ allowed{why}", style="allowed"))


def _arguments(asked: Question) -> Iterator[Text]:
    """All that the tool is given; of a command first the command."""
    given = dict(asked.input)
    if asked.tool == "Bash":
        yield Text(_whole(given.pop("command", "")), style="bold")
        if given.get("run_in_background") is True:
            yield Text("in the background, where it goes on by itself")
            del given["run_in_background"]
        if timeout := given.pop("timeout", None):
            yield Text(f"for at most {_whole(timeout)} s")
        if about := given.pop("description", None):
            yield Text(f"said to be for: {_whole(about)}", style="dim")
    for name, value in given.items():
        label = "" if len(asked.input) == 1 else f"{_whole(name)}: "
        yield Text.assemble((label, "dim"), _whole(value))


def _whole(value: object) -> str:
    return clean(revealed(str(value)))


def _below(text: RenderableType) -> RenderableType:
    return Padding(text, (0, 0, 0, 2), expand=False)


def _headline(name: str, title: str, style: str, facts: str) -> RenderableType:
    first, *more = clean(title).split("\n")
    title = first + (" …" if more else "")
    shown = Text.assemble(("● ", style), (clean(name), "bold"), f"  {title}")
    spoken = Text(f"{clean(name)} {_SPOKEN[style]}: {title}")
    facts = f"  {facts}" if facts else ""
    return Either(Headline(shown, facts), Headline(spoken, facts))


def _progress(agent: Subagent) -> RenderableType:
    now, line = agent.progress, Text(f"  {clean(agent.name)} · ", style="dim")
    if now is None:
        return one_line(line.append("starting"))
    line.append(f"{now.calls:,} call{'s' * (now.calls != 1)} · {now.tokens:,} tokens ")
    line.append(now.level, style=f"level.{now.level.lower()}")
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
    elif event.is_error and not parts:
        parts.append("failed")
    if event.seconds >= 1:
        parts.append(duration(event.seconds))
    return " · ".join(parts)


def _verb(asked: Question) -> str:
    return {"Bash": "run", "Write": "write", "Edit": "change"}.get(asked.tool, "be used with")
