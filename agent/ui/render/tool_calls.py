"""Tool calls as renderables: running, finished and folded, or in a question; and the subagents that
Task calls start.

A permission question marks the parts of a command that caused it. A long command is shown in a few
rows: its beginning, these parts, and its end.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Column, Table
from rich.text import Text

from ....tools.image import image_size
from ....tools.system.phrasing import count_of
from ....tools.system.unicode import clean, reveal_invisible
from ...config.keyboard import KeyboardSettings, key_name
from ...events import Answer, Question, ToolFinished
from ...lazy import dataclass, regex
from ...session.searches import SEARCH_TOOL
from ..cells import first_cells
from ..status import short_path
from ..tasks import Subagent
from .diffs import diff
from .markdown import report
from .render import Headline, ScreenOrSpoken, duration, indented, notice, one_line

MAX_ROWS = 10  # a command of up to this many rows is shown whole
MIN_LONG_CHARS = 300  # a longer command may need more rows on a narrow terminal
COMMAND_HEAD_LINES = 2  # first lines shown of a long command
MAX_PARTS = 3  # parts shown
MARGIN = 2  # cells for the mark left of a line
MARK = "!"

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class CommandText:
    """A command. With an `unfold_hint`, which says how to see the rest, a long one is cut."""

    command: str
    parts: Sequence[str]  # the parts that caused the question, dangerous ones first
    unfold_hint: str = ""

    @property
    def is_long(self) -> bool:
        """Whether the command may be too long to be shown in full."""
        return len(self.command) > MIN_LONG_CHARS or self.command.count("\n") >= MAX_ROWS

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max(options.max_width - MARGIN, MARGIN * 4)
        lines = self.command.split("\n")
        rows = sum(max(1, math.ceil(cell_len(line) / width)) for line in lines)
        grid = Table.grid(Column(width=MARGIN), Column(overflow="fold"))
        if not self.unfold_hint or rows <= MAX_ROWS:
            for line in lines:
                grid.add_row(*self._row(line, marks=len(lines) > 1))
        else:
            self._add_kept(grid, lines, width)
        yield grid

    def _add_kept(self, grid: Table, lines: Sequence[str], width: int) -> None:
        before = -1
        for number in _kept(lines, self.parts):
            if number - before > 1:
                left_out = f"… {count_of(number - before - 1, 'line')}"
                grid.add_row("", Text(left_out, style="dim"))
            for piece in _pieces(lines[number], _spans(lines[number], self.parts), width):
                grid.add_row(*self._row(piece, marks=True))
            before = number
        size = f"{count_of(len(lines), 'line')}, {len(self.command):,} characters"
        grid.add_row("", Text(f"shown in part: {size}{self.unfold_hint}", style="dim"))

    def _row(self, line: str, *, marks: bool) -> tuple[Text, Text]:
        spans, text = _spans(line, self.parts), Text(line, style="bold")
        for start, stop in spans:
            text.stylize("cause", start, stop)
        return Text(MARK if spans and marks else "", style="cause"), text


def _spans(line: str, parts: Sequence[str]) -> list[Span]:
    """Return the positions of the parts in a line. Only the first line of each part is searched."""
    firsts = [part.partition("\n")[0] for part in parts]
    patterns = [rf"(?<!\w){re.escape(first)}(?![\w-])" for first in firsts if first]
    return [found.span() for each in patterns for found in re.finditer(each, line)]


def _kept(lines: Sequence[str], parts: Sequence[str]) -> list[int]:
    """Return the numbers of the lines to show: the first, those with parts, the last."""
    kept = {*range(min(COMMAND_HEAD_LINES, len(lines))), len(lines) - 1}
    for part in parts[:MAX_PARTS]:
        kept |= {next((n for n, line in enumerate(lines) if _spans(line, [part])), 0)}
    return sorted(kept)


def _pieces(line: str, spans: Sequence[Span], width: int) -> Iterator[str]:
    """Yield a line that fits, or the beginning, the parts and the end of a longer line."""
    if cell_len(line) <= (2 if spans else 1) * width:
        yield line
        return
    head = first_cells(line, width - 1)
    yield f"{head}…"
    for start, stop in [span for span in spans if span[1] > len(head)][:MAX_PARTS]:
        begin = max(0, start - width // 4)
        yield f"…{first_cells(line[begin : stop + width // 4], 2 * width - 2)}…"
    yield f"…{line[-width // 2 :]}"


HEAD_LINES, TAIL_LINES = 4, 2  # lines shown of a folded result
MAX_UNCUT_CHARS = 76  # longer lines may be cut on a usual terminal
TASK_TOOL = "Task"  # starts subagents
COMMAND_TOOLS = ("Bash", "Shell", TASK_TOOL)  # tools that can go to the background
BACKGROUND_HINT_S = 10  # running time after which the background key is shown
QUIET_TOOLS = ("Read", "Write", "Edit")  # tools whose title says enough about the result

_OFFLOADED = regex(r"^\*\*Preview:\*\* .* of ([\d,]+) lines", re.MULTILINE)
_VERBS = {
    "Bash": "run", "Write": "write", "Edit": "change", "Read": "open", "Grep": "search",
    "Glob": "list files in", "Task": "start a subagent",
    "Memory": "change what is remembered:", "Sampling": "ask the model for an MCP server:",
}  # fmt: skip
_SPOKEN = {"running": "starts", "done": "is done", "error": "failed"}
SANDBOXED_MEANS = (
    "sandboxed: from now on, such commands run without a question; they can write only to this "
    "project and temporary files, and have no network"
)
_BLOCKED = {
    "network": "the sandbox has no network", "files": "the sandbox may forbid it",
    "repository": "the sandbox keeps .git read-only",
}  # fmt: skip
_MARKS = {"completed": ("✔", "done:"), "in_progress": ("▸", "now:"), "pending": ("○", "to do:")}


def started(name: str, title: str) -> RenderableType:
    """Announce a tool that starts, for screens that do not show it running."""
    return _headline(name, title, "running", "")


def running(
    name: str, title: str, seconds: float, output: Sequence[str], keys: KeyboardSettings
) -> RenderableType:
    """Show a running tool: its headline and the last lines of its output."""
    facts = f"{duration(seconds)} · {key_name(keys.interrupt)} to stop" if seconds >= 1 else ""
    if name in COMMAND_TOOLS and seconds >= BACKGROUND_HINT_S:
        facts += f" · {key_name(keys.background)}: to the background"
    head = _headline(name, title, "running", facts)
    return Group(head, *(one_line(Text(f"  {clean(line)}", style="dim")) for line in output))


def tasks(
    titles: Sequence[str], agents: Sequence[Subagent], seconds: float, keys: KeyboardSettings
) -> RenderableType:
    """Show running Task calls: one headline for all, and a line for each subagent."""
    waiting = len(titles) - len(agents) if agents else 0
    several = f"{len(titles)} subagents" + (f", {waiting} waiting to start" if waiting else "")
    head = running(TASK_TOOL, titles[0] if len(titles) == 1 else several, seconds, (), keys)
    return Group(head, *map(_progress, agents))


def finished_subagent(agent: Subagent, *, named: bool = False) -> RenderableType:
    """Show the result and the usage of a subagent."""
    style = "dim" if agent.finished and agent.finished.status == "done" else "warning"
    name = f"{agent.name} · " if named else ""
    return one_line(Text(f"  {clean(name + agent.ending)}", style=style))


def ended_in_background(agent: Subagent) -> RenderableType:
    """Show that a background subagent has ended, and how to see its answer."""
    return notice("info", f"{agent.name} has ended: {agent.ending} · /tasks {agent.id} shows more")


@dataclass(frozen=True, slots=True)
class ShownResult:
    """The visible part of a finished call."""

    parts: list[RenderableType]
    folded: bool = False


def result(event: ToolFinished, *, unfold_hint: str = "") -> ShownResult:
    """Show a finished call: its headline and, if there is more to see, its folded result."""
    head = _headline(event.name, event.title, "error" if event.is_error else "done", _facts(event))
    details = event.details
    if details.get("declined") or details.get(
        "plan"
    ):  # the question and answer are already shown above
        return ShownResult([head])
    if not event.is_error and isinstance(details.get("diff"), str):
        change = diff(details["diff"], fold=True, path=event.title, unfold_hint=unfold_hint)
        return ShownResult([head, change] if change.lines else [head], bool(change.hidden))
    if not event.is_error and isinstance(details.get("todos"), list):
        return ShownResult([head, todos(details["todos"])])
    if not event.is_error and event.name in QUIET_TOOLS:
        return ShownResult([head], bool(event.text))
    # The output of a failed command is not all an error; a tool's own message is.
    style = "error" if event.is_error and "exit_code" not in details else "dim"
    lines, total = _lines(event.text, offloaded=bool(details.get("tokens_saved")))
    shown = _head_and_tail(lines, total, unfold_hint)
    hidden = total > len(lines) or len(shown) < len(lines)
    folded = hidden or any(len(line) > MAX_UNCUT_CHARS for line in shown)
    rows = [one_line(Text(f"  {line}", style=style)) for line in shown]
    return ShownResult([head, *rows], folded)


def _lines(text: str, *, offloaded: bool) -> tuple[list[str], int]:
    """Return the lines of a result, and its total number of lines. For an offloaded result, return
    the beginning and end that are quoted in the text for the model.
    """
    found = _OFFLOADED.search(text) if offloaded else None
    if found:
        preview = [clean(line[2:]) for line in text.split("\n") if line.startswith("> ")]
        return preview, max(int(found[1].replace(",", "")), len(preview) + 1)
    lines = clean(text).strip("\n").split("\n")
    lines = [] if lines == [""] else lines
    return lines, len(lines)


def _head_and_tail(lines: Sequence[str], total: int, unfold_hint: str) -> list[str]:
    """Return the first and the last of `total` lines, with a line that counts those in between."""
    if total <= HEAD_LINES + TAIL_LINES + 1 and total == len(lines):
        return list(lines)
    head, tail = lines[:HEAD_LINES], lines[HEAD_LINES:][-TAIL_LINES:]
    return [*head, f"… +{count_of(total - len(head) - len(tail), 'line')}{unfold_hint}", *tail]


def unfolded(title: str, shown: Iterable[RenderableType]) -> RenderableType:
    """Show a folded output in full, under its title."""
    first = clean(title).partition("\n")[0]
    head = Headline(Text.assemble(("▾ ", "dim"), (first, "bold")))
    return Group(ScreenOrSpoken(head, Text(f"In full: {first}")), *shown)


def todos(items: Sequence[Mapping[str, Any]]) -> RenderableType:
    out = []
    for item in items:
        status = str(item.get("status"))
        style = {"completed": "dim", "in_progress": "bold"}.get(status, "")
        lines = [
            Text(f"{mark} {clean(str(item.get('content', '')))}", style=style)
            for mark in _MARKS.get(status, _MARKS["pending"])
        ]
        out.append(indented(ScreenOrSpoken(*lines)))
    return Group(*out)


def question(
    asked: Question, agent: str = "", *, explains: bool = False, unfold_hint: str = ""
) -> RenderableType:
    """Show the call or change in a permission question. `agent` names the subagent that asks.
    `explains` adds how the sandbox makes such questions unnecessary, if it can confine the call. An
    `unfold_hint` allows a long command to be cut; nothing else is cut.
    """
    who = f"{agent}: {asked.tool}" if agent else asked.tool
    verb = _VERBS.get(asked.tool, "run with")
    head = Text.assemble(("? ", "question"), (f"{_whole(who)} wants to ", "bold"), verb)
    parts: list[RenderableType] = []
    if asked.diff:
        parts.append(indented(Text(_whole(asked.title), style="bold")))
        parts.append(diff(reveal_invisible(asked.diff.replace("\r\n", "\n")), path=asked.title))
    else:
        parts += _arguments(asked, unfold_hint)
    why = [indented(line) for line in _reasons(asked)]
    parts = [head, *why, *parts] if command_text(asked).parts else [head, *parts, *why]
    if explains and asked.may_be_sandboxed:
        parts.append(indented(Text(SANDBOXED_MEANS, style="dim")))
    return Group(*parts)


def command_text(asked: Question, unfold_hint: str = "") -> CommandText:
    """Return the command in a question, with the parts that caused the question."""
    command = _whole(asked.input.get("command", ""))
    sources = [_whole(source) for source, _ in asked.causes]
    return CommandText(command, [each for each in sources if each != command], unfold_hint)


def _reasons(asked: Question) -> Iterator[Text]:
    """Yield the reasons for a question, one per part of the command, dangerous parts first."""
    found = [reason for _, reason in asked.causes]
    if asked.reason and asked.reason not in found:
        found.insert(0, asked.reason)
    for place, reason in enumerate(found[:MAX_PARTS]):
        style = "warning" if any(each in reason for each in asked.effects) else "dim"
        line = Text(f"{'     ' if place else 'why: '}{_whole(reason)}", style=style)
        if len(found) > 1 and place == 0:
            line.highlight_regex(r"`[^`]+`", "cause")
        yield line
    if len(found) > MAX_PARTS:
        yield Text(f"     and {count_of(len(found) - MAX_PARTS, 'more part')}", style="dim")


def plan(text: str) -> list[RenderableType]:
    """Show a proposed plan."""
    head = Text.assemble(("? ", "question"), ("The agent proposes this plan", "bold"))
    return [head, indented(report(reveal_invisible(text)))]


def answer(given: Answer) -> RenderableType:
    """Show the user's decision and the rule that was added, if any."""
    why = f": {clean(given.reason)}" if given.reason else ""
    if not given.allow:
        return indented(Text(f"✗ declined{why}", style="declined"))
    if given.mode:
        why = f", in mode {given.mode}"
    if given.where:
        session = given.where == "session"
        where = "for this session" if session else f"saved in {short_path(Path(given.where))}"
        what = "everything that the sandbox confines" if given.sandboxed else clean(given.rule)
        why = f", from now on {what} · {clean(where)}"
    return indented(Text(f"✓ allowed{why}", style="allowed"))


def _arguments(asked: Question, unfold_hint: str) -> Iterator[RenderableType]:
    """Yield all arguments of the tool, the command first."""
    given = dict(asked.input)
    if asked.tool == "Bash" and given.pop("command", None) is not None:
        yield command_text(asked, unfold_hint)
    yield from map(indented, _other_arguments(asked, given))


def _other_arguments(asked: Question, given: dict[str, Any]) -> Iterator[Text]:
    if asked.tool == "Bash":
        if given.get("run_in_background") is True:
            yield Text("in the background: the agent continues meanwhile")
            del given["run_in_background"]
        if given.pop("unsandboxed", False):
            yield Text("runs OUTSIDE the sandbox", style="warning")
        if given.pop("network", False):
            yield Text("reaches the network", style="warning")
        if given.pop("repository", False):
            yield Text("writes .git", style="warning")
        if timeout := given.pop("timeout", None):
            yield Text(f"for at most {_whole(timeout)} s")
        if about := given.pop("description", None):
            yield Text(f"the model says: {_whole(about)}", style="dim")
    for name, value in given.items():
        label = "" if len(asked.input) == 1 else f"{_whole(name)}: "
        shown = {True: "yes", False: "no"}[value] if isinstance(value, bool) else _whole(value)
        yield Text.assemble((label, "dim"), shown)


def _whole(value: object) -> str:
    return clean(reveal_invisible(str(value)))


def _headline(name: str, title: str, style: str, facts: str) -> RenderableType:
    first, *more = clean(title).split("\n")
    title = first + (" …" if more else "")
    shown = Text.assemble(("● ", style), (clean(name), "bold"), f"  {title}" if title else "")
    spoken = Text(f"{clean(name)} {_SPOKEN[style]}" + (f": {title}" if title else ""))
    facts = f"  {facts}" if facts else ""
    return ScreenOrSpoken(Headline(shown, facts), Headline(spoken, facts))


def _progress(agent: Subagent) -> RenderableType:
    now, line = agent.progress, Text(f"  {clean(agent.name)} · ", style="dim")
    if agent.questions:
        return one_line(line.append("waiting for your answer", style="question"))
    if now is None:
        return one_line(line.append("starting"))
    line.append(f"{count_of(now.calls, 'call')} · {now.tokens:,} tokens")
    return one_line(line.append(f" · {' '.join(clean(now.doing).split())}" if now.doing else ""))


def _facts(event: ToolFinished) -> str:
    details, parts = event.details, []
    if details.get("added") is not None and details.get("removed") is not None:
        parts.append(f"+{details['added']} −{details['removed']}")
    elif details.get("image") and not event.is_error:
        parts.append(image_size(details))
    elif event.name == "Read" and not event.is_error:
        parts.append(count_of(event.text.count("\n") + 1, "line"))
    elif event.name == SEARCH_TOOL and not event.is_error:
        parts.append(count_of(details.get("results", 0), "result"))
    if errors := details.get("new_errors"):
        parts.append(count_of(errors, "new error"))
    if details.get("backgrounded"):
        parts.append(f"continues in the background as {details.get('job') or details.get('agent')}")
    elif details.get("interrupted") and not details.get("not_run"):
        parts.append("interrupted")
    elif details.get("exit_code"):
        parts.append(f"exit {details['exit_code']}")
    if blocked := details.get("blocked"):
        parts.append(_BLOCKED.get(blocked, "in the sandbox"))
    if details.get("denied") is True or details.get(
        "not_run"
    ):  # True, not the list of a subagent's calls
        parts.append("not run")
    elif event.is_error and not parts:
        parts.append("failed")
    if event.seconds >= 1:
        parts.append(duration(event.seconds))
    return " · ".join(parts)
