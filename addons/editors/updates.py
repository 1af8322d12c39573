"""Conversion of events, tool calls and logs to session updates of the protocol.

The updates from a log replay it.
"""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from acp.helpers import (
    image_block,
    plan_entry,
    start_tool_call,
    text_block,
    tool_content,
    tool_diff_content,
    tool_terminal_ref,
    update_agent_message_text,
    update_agent_thought_text,
    update_plan,
    update_tool_call,
    update_user_message,
    update_user_message_text,
)
from acp.schema import (
    AgentMessageChunk,
    AgentPlanUpdate,
    AgentThoughtChunk,
    AvailableCommandsUpdate,
    ContentToolCallContent,
    Cost,
    CurrentModeUpdate,
    FileEditToolCallContent,
    SessionInfoUpdate,
    ToolCallLocation,
    ToolCallProgress,
    ToolCallStart,
    ToolKind,
    UsageUpdate,
    UserMessageChunk,
)

from ...api.base import dataclass, regex
from ...api.front_ends import SubagentEvent, Subagents, receipt
from ...api.record import (
    FOUND,
    SEARCH_TOOL,
    Assistant,
    Entry,
    ToolResult,
    User,
    content_text,
    is_search,
    listing,
    query_of,
)
from ...api.session import events
from ...api.tools import steps_of

KINDS: dict[str, ToolKind] = {
    "Bash": "execute",
    "Shell": "execute",
    "Job": "execute",
    "Network": "fetch",
    "Read": "read",
    "Recall": "read",
    "Skill": "read",
    "Grep": "search",
    "Glob": "search",
    "Edit": "edit",
    "Write": "edit",
    "Todo": "think",
    "Plan": "switch_mode",
    "WebFetch": "fetch",
    "WebSearch": "fetch",
}
TERMINAL_TOOLS = ("Bash", "Shell", "Job")  # tools whose output is command output
MAX_CONTENT_CHARS = 50_000  # of a result shown in an editor
MAX_TITLE_CHARS = 300

_HUNK = regex(r"@@ -\d+(?:,(\d+))? \+(\d+)(?:,\d+)? @@")


def kind_of(name: str) -> ToolKind:
    """Return the protocol's kind of a tool."""
    return KINDS.get(name, "other")


def title_of_call(name: str, title: str) -> str:
    """Return a one-line title of a call."""
    line = " ".join(title.split())[:MAX_TITLE_CHARS]
    return line if name in TERMINAL_TOOLS and line else f"{name} {line}".rstrip()


def locations_of(
    name: str, given: Mapping[str, Any], details: Mapping[str, Any], cwd: Path
) -> list[ToolCallLocation]:
    """Return the files that a call reads or changes: absolute paths, with line numbers from 1."""
    changed = details.get("changes")
    rows = changed if isinstance(changed, list) else []
    paths = [row["path"] for row in rows if isinstance(row, dict) and row.get("path")]
    named = details.get("path") or given.get("path")
    line = given.get("offset") if name == "Read" else _first_line(details.get("diff"))
    found = [ToolCallLocation(path=str(cwd / str(path))) for path in paths if path != named]
    if named and isinstance(named, str):
        there = line if isinstance(line, int) and line > 0 else None
        found.insert(0, ToolCallLocation(path=str(cwd / Path(named).expanduser()), line=there))
    return found


def diff_contents(diff: object, named: object, cwd: Path) -> list[FileEditToolCallContent]:
    """Convert a unified diff of one file to the protocol's form: the old and new lines of each
    hunk. A new file has no old lines.
    """
    if not (isinstance(diff, str) and isinstance(named, str) and named):
        return []
    path, is_new = str(cwd / Path(named).expanduser()), diff.startswith("--- /dev/null")
    return [tool_diff_content(path, new, None if is_new else old) for old, new in _hunks(diff)]


def text_contents(text: str, *, fenced: bool = False) -> list[ContentToolCallContent]:
    """Return a text as the content of a call, `fenced` for program output; [] for an empty text."""
    shown = text.strip("\n")
    if len(shown) > MAX_CONTENT_CHARS:
        left = len(shown) - MAX_CONTENT_CHARS
        shown = f"{shown[:MAX_CONTENT_CHARS]}\n… {left:,} more characters"
    if not shown:
        return []
    if fenced:
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", shown)), default=0))
        shown = f"{fence}\n{shown}\n{fence}"
    return [tool_content(text_block(shown))]


def _first_line(diff: object) -> int | None:
    found = _HUNK.search(diff) if isinstance(diff, str) else None
    return int(found[2]) if found else None


def _hunks(diff: str) -> Iterator[tuple[str, str]]:
    """Yield the old and the new text of each hunk."""
    old, new = list[str](), list[str]()
    is_within, last = False, ""
    for line in diff.split("\n"):
        if _HUNK.match(line):
            if is_within:
                yield "".join(old), "".join(new)
            old, new, is_within = [], [], True
        elif is_within and line[:1] in (" ", "-", "+"):
            last = line[0]
            for side, marks in ((old, " -"), (new, " +")):
                if last in marks:
                    side.append(f"{line[1:]}\n")
        elif is_within and line.startswith("\\"):  # no newline at the end of the file
            for side, marks in ((old, " -"), (new, " +")):
                if last in marks and side:
                    side[-1] = side[-1].removesuffix("\n")
    if is_within:
        yield "".join(old), "".join(new)


OUTPUT_INTERVAL_S = 0.25  # interval between output updates of a running call
MAX_RUNNING_CHARS = 4_000  # shown of a running call's output, from its end
RESTART_NOTE = "\n\n[The connection was lost here; the answer starts again.]\n\n"

Update = (
    AgentMessageChunk
    | AgentThoughtChunk
    | UserMessageChunk
    | ToolCallStart
    | ToolCallProgress
    | AgentPlanUpdate
    | AvailableCommandsUpdate
    | CurrentModeUpdate
    | SessionInfoUpdate
    | UsageUpdate
)
Send = Callable[[Update], None]


@dataclass(slots=True)
class _Call:
    """A tool call that was sent to the editor and has not ended."""

    name: str
    input: Mapping[str, Any]
    output: str = ""  # the end of its output
    sent_at: float = 0.0  # time of the last output update


@dataclass(slots=True)
class UpdateStream:
    """The updates of a session. With `terminals`, command output is sent to display-only terminals
    of the editor (an extension: `_meta` with terminal_info, terminal_output and terminal_exit);
    otherwise it is sent as text.
    """

    send: Send
    cwd: Path
    terminals: bool = False
    _calls: dict[str, _Call] = field(default_factory=dict)
    _started: set[str] = field(default_factory=set)  # IDs of running calls
    _subagents: Subagents = field(default_factory=Subagents)
    _has_text: bool = False  # whether the current attempt has sent text

    def show(self, event: events.Event) -> None:
        """Send the updates for an event."""
        match event:
            case events.CallStarted():
                self._has_text = False
            case events.TextDelta():
                self._has_text = True
                self.send(update_agent_message_text(event.text))
            case events.ThinkingDelta():
                self.send(update_agent_thought_text(event.text))
            case events.Retrying():
                if self._has_text:
                    self.send(update_agent_message_text(RESTART_NOTE))
                self._has_text = False
                self.send(update_agent_thought_text(f"\n{event}\n"))
            case events.ToolStarted():
                self._begin(event.id, event.name, event.title, event.input)
            case events.ToolOutput():
                self._output(event)
            case events.ToolFinished():
                self._finish(event)
            case events.AgentStarted() | events.AgentProgress() | events.AgentFinished():
                self._follow(event)
            case events.Notice() if event.level != "info":
                prefix = f"{self._subagents.name(event.agent)}: " if event.agent else ""
                self.send(update_agent_thought_text(f"\n{event.level}: {prefix}{event.text}\n"))
            case events.Compacted():
                self._compacted(event)

    def ask(self, question: events.Question) -> str:
        """Send the tool call that a question is about, and return its ID."""
        running = (id for id, call in self._calls.items() if call.name == question.tool)
        id = question.call or next(running, "") or f"question-{time.monotonic_ns()}"
        if id not in self._calls:
            self._calls[id] = _Call(question.tool, question.input)
            start = self._start(id, question.tool, question.title, question.input, {})
            start.status = "pending"
            if diffs := diff_contents(question.diff, question.input.get("path"), self.cwd):
                start.content = [*diffs]
            self.send(start)
        return id

    def end_question(self, question: events.Question, id: str, *, allowed: bool) -> None:
        """End the call of a question if no event will end it: calls in a subagent have no events,
        and a network connection from the sandbox is not a call.
        """
        if question.agent or id not in (question.call, *self._started):
            self._calls.pop(id, None)
            self.send(update_tool_call(id, status="completed" if allowed else "failed"))

    def _begin(self, id: str, name: str, title: str, given: Mapping[str, Any]) -> None:
        self._started.add(id)
        if id in self._calls:  # a question has already sent it
            update = update_tool_call(id, status="in_progress")
            self.send(self._with_terminal(update, id, name))
            return
        self._calls[id] = _Call(name, given)
        self.send(self._with_terminal(self._start(id, name, title, given, {}), id, name))

    def _start(
        self, id: str, name: str, title: str, given: Mapping[str, Any], details: Mapping[str, Any]
    ) -> ToolCallStart:
        return start_tool_call(
            id,
            title_of_call(name, title),
            kind=kind_of(name),
            status="in_progress",
            locations=locations_of(name, given, details, self.cwd),
            raw_input=dict(given),
        )

    def _with_terminal(self, update: Any, id: str, name: str) -> Any:
        if self.terminals and name in TERMINAL_TOOLS:
            update.content = [tool_terminal_ref(id)]
            update.field_meta = {"terminal_info": {"terminal_id": id, "cwd": str(self.cwd)}}
        return update

    def _output(self, event: events.ToolOutput) -> None:
        call = self._calls.get(event.id)
        if call is None:
            return
        if self.terminals and call.name in TERMINAL_TOOLS:
            told = {"terminal_id": event.id, "data": event.text.replace("\n", "\r\n")}
            update = update_tool_call(event.id)
            update.field_meta = {"terminal_output": told}
            self.send(update)
            return
        call.output = (call.output + event.text)[-MAX_RUNNING_CHARS:]
        if (now := time.monotonic()) - call.sent_at >= OUTPUT_INTERVAL_S:
            call.sent_at = now
            self._send_running_text(event.id, call.output)

    def _send_running_text(self, id: str, text: str) -> None:
        fenced = self._calls[id].name in TERMINAL_TOOLS
        self.send(update_tool_call(id, content=text_contents(text, fenced=fenced)))

    def _finish(self, event: events.ToolFinished) -> None:
        call = self._calls.pop(event.id, None)
        self._started.discard(event.id)
        if call is None:  # refused before it started
            self.send(self._start(event.id, event.name, event.title, {}, event.details))
        given = call.input if call else {}
        for update in finished_call(event, given, self.cwd):
            if isinstance(update, ToolCallProgress) and call and self.terminals:
                self._end_terminal(update, event)
            self.send(update)

    def _end_terminal(self, update: ToolCallProgress, event: events.ToolFinished) -> None:
        if event.name in TERMINAL_TOOLS and not event.details.get("denied"):
            code = event.details.get("exit_code")
            ended = {"terminal_id": event.id, "exit_code": code, "signal": None}
            update.content, update.field_meta = None, {"terminal_exit": ended}

    def _follow(self, event: SubagentEvent) -> None:
        """Show a subagent's progress in its Task call."""
        subagent = self._subagents.follow(event)
        for id, call in self._calls.items():
            if call.name == "Task" and call.input.get("description") == subagent.description:
                doing = event.doing if isinstance(event, events.AgentProgress) else ""
                line = doing or subagent.ending or "started"
                self._send_running_text(id, f"{subagent.name}: {line}")
                return

    def _compacted(self, event: events.Compacted) -> None:
        id = f"compaction-{time.monotonic_ns()}"
        title = receipt(event)
        self.send(start_tool_call(id, title, kind="think", status="completed"))


def finished_call(
    event: events.ToolFinished, given: Mapping[str, Any], cwd: Path
) -> Iterator[Update]:
    """Yield the updates for a finished call: its result, and the plan if it made one."""
    fenced = event.name in TERMINAL_TOOLS
    diffs = diff_contents(event.details.get("diff"), event.details.get("path"), cwd)
    yield update_tool_call(
        event.id,
        title=title_of_call(event.name, event.title),
        status="failed" if event.is_error else "completed",
        locations=locations_of(event.name, given, event.details, cwd) or None,
        content=diffs or text_contents(event.text, fenced=fenced),
    )
    if (plan := plan_update(event.details)) is not None:
        yield plan


def plan_update(details: Mapping[str, Any]) -> AgentPlanUpdate | None:
    """Return the plan in the details of a Todo or Plan result or of a recorded plan, or None."""
    todos, plan = details.get("todos"), details.get("plan")
    if not isinstance(todos, list):
        text = plan.get("text") if isinstance(plan, dict) else None
        if not isinstance(text, str):
            return None
        todos = [{"content": step, "status": "pending"} for step in steps_of(text)]
    return update_plan([plan_entry(t["content"], status=t["status"]) for t in todos])


def message(text: str) -> AgentMessageChunk:
    """Return an update that shows a text as the agent's."""
    return update_agent_message_text(text)


def usage_update(used: int, size: int, cost: float | None) -> UsageUpdate:
    """Return the context usage (tokens) and the session's cost (US dollars)."""
    update = UsageUpdate(session_update="usage_update", used=max(0, used), size=max(0, size))
    if cost is not None:
        update.cost = Cost(amount=round(cost, 6), currency="USD")
    return update


def replay_updates(entries: Iterable[Entry], cwd: Path) -> Iterator[Update]:
    """Yield the updates that show a recorded conversation again. Blocks."""
    calls: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for entry in entries:
        if isinstance(entry, User):
            yield from _user_updates(entry)
        elif isinstance(entry, Assistant) and entry.purpose == "turn":
            yield from _agent_updates(entry.content, calls, cwd)
        elif isinstance(entry, ToolResult) and entry.tool_use_id in calls:
            name, given = calls.pop(entry.tool_use_id)
            text, details = content_text(entry.content), entry.details
            ended = events.ToolFinished(
                entry.tool_use_id, name, _title_of(given), entry.is_error, text, 0.0, details
            )
            yield from finished_call(ended, given, cwd)
    for id in calls:  # no result, because the process was killed
        yield update_tool_call(id, status="failed")


def _user_updates(entry: User) -> Iterator[Update]:
    """Yield the user's message, its images, and a plan in the entry."""
    if entry.source == "person":
        if text := content_text(entry.content):
            yield update_user_message_text(text)
    elif (plan := plan_update(entry.details)) is not None:
        yield plan
    for block in entry.content if isinstance(entry.content, list) else ():
        source = block.get("source")
        if block.get("type") == "image" and isinstance(source, dict) and source.get("data"):
            kind = str(source.get("media_type", "image/png"))
            yield update_user_message(image_block(str(source["data"]), kind))


def _agent_updates(
    blocks: Sequence[Mapping[str, Any]],
    calls: dict[str, tuple[str, Mapping[str, Any]]],
    cwd: Path,
) -> Iterator[Update]:
    for block in blocks:
        kind = block.get("type")
        if kind == "text" and block.get("text"):
            yield update_agent_message_text(str(block["text"]))
        elif kind == "thinking" and block.get("thinking"):
            yield update_agent_thought_text(str(block["thinking"]))
        elif kind == "tool_use":
            id, name, given = str(block["id"]), str(block["name"]), block.get("input")
            given = given if isinstance(given, dict) else {}
            calls[id] = (name, given)
            yield start_tool_call(
                id,
                title_of_call(name, _title_of(given)),
                kind=kind_of(name),
                status="in_progress",
                locations=locations_of(name, given, {}, cwd),
                raw_input=given,
            )
        elif is_search(dict(block)):
            title = f"{SEARCH_TOOL} {query_of(dict(block))}"
            id = str(block.get("id"))
            yield start_tool_call(id, title, kind="fetch", status="completed")
        elif kind == FOUND:
            found = text_contents(listing(dict(block)))
            yield update_tool_call(str(block.get("tool_use_id")), content=found)


def _title_of(given: Mapping[str, Any]) -> str:
    """Return the first string among the arguments of a recorded call."""
    return next((value for value in given.values() if isinstance(value, str)), "")
