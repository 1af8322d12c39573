"""The ledger: facts folded from the log without a model.

Which files were created, changed, deleted or only read, which commands ran and which of them and of
their tests failed, what the person said and pinned, what was decided, what was not authorised. It
is fed entry by entry, each at the same cost however long the log is; its views are for reading
only. Nothing here looks at the disk.
"""

import os.path
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from .entries import (
    Agent,
    Assistant,
    Entry,
    Note,
    Pin,
    Revert,
    Session,
    Summary,
    ToolResult,
    Unpin,
    User,
    by_hand,
    taken_back,
)
from .rows import changes_of, content_of
from .sessions import plain
from .testruns import FailingTest, FailingTests

Action = Literal["created", "modified", "deleted"]

ELSEWHERE = {  # notes of changes that no result tells of, and who changed
    "rewind": "/rewind", "agent": "Task", "killed": "a call that was cut short",
}  # fmt: skip
ERROR_LINES = 5  # kept of a failed command's output
ERROR_LINE = 300  # characters kept of each

_TELLING = re.compile(
    r"error|exception|traceback|\bfail|\bfatal|\bpanic|assert|denied|refused|undefined|not found"
    r"|no such|timed out",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class FileFact:
    """A file that a tool changed. `added` and `removed` are lines over all `times`; `tool` and
    `ref` are those of the last change."""

    path: str
    action: Action
    added: int
    removed: int
    tool: str
    ref: int
    times: int


@dataclass(frozen=True, slots=True)
class CommandFact:
    """A command that ran. `exit_code` is None while it runs in the background; `errors` has the
    last telling lines of its output if it failed."""

    command: str
    exit_code: int | None
    ref: int
    errors: tuple[str, ...] = ()


@dataclass(slots=True)
class Ledger:
    """Paths are those of the tools, relative to the session's directory when inside it."""

    cwd: str = ""
    phase: str = ""
    head: str = ""  # branch and commit, once a command has moved them
    _calls: dict[str, str] = field(default_factory=dict)  # names of the unanswered, by id
    _files: dict[str, FileFact] = field(default_factory=dict)  # these four by absolute path
    _read: dict[str, int] = field(default_factory=dict)
    _contents: dict[str, str] = field(default_factory=dict)
    _born: set[str] = field(default_factory=set)  # files that were not there before the session
    _commands: list[CommandFact] = field(default_factory=list)
    _failing: dict[str, CommandFact] = field(default_factory=dict)
    _resolved: list[tuple[CommandFact, int]] = field(default_factory=list)
    _tests: FailingTests = field(default_factory=FailingTests)
    _words: list[tuple[int, str]] = field(default_factory=list)
    _todos: list[dict[str, str]] = field(default_factory=list)
    _denials: dict[str, int] = field(default_factory=dict)
    _decided: dict[int, Sequence[str]] = field(default_factory=dict)  # what each entry says
    _constraints: dict[int, Sequence[str]] = field(default_factory=dict)  # of each summary
    _reverts: list[Revert] = field(default_factory=list)
    _offloaded: dict[str, int] = field(default_factory=dict)
    _pins: dict[int, str] = field(default_factory=dict)
    _agents: dict[str, Agent] = field(default_factory=dict)

    def add(self, entry: Entry) -> None:
        """Fold one more entry. What a garbled log has in the place of a fact counts for nothing."""
        if isinstance(entry, ToolResult):
            self._add_result(entry)
        elif isinstance(entry, Assistant):
            for block in entry.content:
                if block.get("type") == "tool_use" and entry.purpose == "turn":
                    self._calls[str(block.get("id"))] = str(block.get("name"))
        elif isinstance(entry, User):
            if entry.source == "shell":
                self._add_by_hand(entry)
            elif entry.source == "person":
                self._words.append((entry.seq, plain(entry.content)))
        elif isinstance(entry, Note):
            if entry.topic == "permission":
                if _is_denial(entry):
                    self._denials.setdefault(entry.text, entry.seq)
            elif entry.topic == "decision":
                self._decided[entry.seq] = [entry.text]
            elif entry.topic == "phase":
                self.phase = entry.text
            elif entry.topic in ELSEWHERE and isinstance(entry.data, dict):
                self._add_changes(entry.data, ELSEWHERE[entry.topic], entry.seq)
        elif isinstance(entry, Summary):
            self._decided[entry.seq] = _texts(entry.document, "decisions")
            self._constraints[entry.seq] = _texts(entry.document, "facts")
        elif isinstance(entry, Revert):
            self._reverts.append(entry)
        elif isinstance(entry, Pin):
            self._pins[entry.ref if isinstance(entry.ref, int) else entry.seq] = entry.text
        elif isinstance(entry, Unpin):
            self._pins = {ref: text for ref, text in self._pins.items() if ref != entry.ref}
        elif isinstance(entry, Agent):
            self._agents[entry.id] = entry
        elif isinstance(entry, Session):
            self.cwd = entry.cwd

    @property
    def files(self) -> Mapping[str, FileFact]:
        """Files changed, by path, in the order in which they were first changed."""
        shown = (replace(fact, path=self.shown(fact.path)) for fact in self._files.values())
        return {fact.path: fact for fact in shown}

    @property
    def read(self) -> Mapping[str, int]:
        """Files read and never changed, with the ref of the newest reading; newest last."""
        return {self.shown(path): ref for path, ref in self._read.items()}

    @property
    def contents(self) -> Mapping[str, str]:
        """What each file was when the session last read or left it, by absolute path: `sha256:…`,
        `blob:…` as git has it, or "" for one that it deleted."""
        return self._contents

    @property
    def commands(self) -> Sequence[CommandFact]:
        return self._commands

    def unresolved(self) -> list[CommandFact]:
        """Commands that failed when they last ran, oldest first."""
        return list(self._failing.values())

    @property
    def resolved(self) -> Sequence[tuple[CommandFact, int]]:
        """Commands that failed, each with the ref of the later run that did not."""
        return self._resolved

    @property
    def tests(self) -> Mapping[str, FailingTest]:
        """The tests that failed at some time, by name."""
        return self._tests.tests

    @property
    def words(self) -> Sequence[tuple[int, str]]:
        """What the person said, each with its ref."""
        return self._words

    @property
    def todos(self) -> Sequence[Mapping[str, str]]:
        return self._todos

    @property
    def denials(self) -> Sequence[str]:
        """Calls that were not authorised, each once."""
        return list(self._denials)

    @property
    def decisions(self) -> list[tuple[int, str]]:
        """What was decided, verbatim, each once, with the ref of the summary or note that first
        says it. A summary that was taken back says nothing."""
        gone, first = taken_back(self._reverts), dict[str, int]()
        for ref, texts in self._decided.items():
            for text in texts if ref not in gone else ():
                first.setdefault(text, ref)
        return [(ref, text) for text, ref in first.items()]

    @property
    def constraints(self) -> list[tuple[int, str]]:
        """What must be kept to, verbatim, each with its ref: the critical facts of the newest
        summary, what was not authorised, what is pinned."""
        gone = taken_back(self._reverts)
        newest = max((ref for ref in self._constraints if ref not in gone), default=0)
        return [
            *((newest, text) for text in self._constraints.get(newest, ())),
            *((ref, text) for text, ref in self._denials.items()),
            *((ref, text) for ref, text in self._pins.items()),
        ]

    @property
    def offloaded(self) -> Mapping[str, int]:
        """Files under the session's folder that hold whole results, with the results' refs."""
        return self._offloaded

    @property
    def pins(self) -> Mapping[int, str]:
        """What the person pinned, by ref; a text of their own under the ref of its pin."""
        return self._pins

    @property
    def agents(self) -> Mapping[str, Agent]:
        """The subagents, each as its newest entry has it, by id; the one begun last is the last."""
        return self._agents

    def shown(self, path: str) -> str:
        """A path relative to the session's directory when inside it, else absolute."""
        whole = self.absolute(path)
        inside = self.cwd and whole.startswith(self.cwd.rstrip("/") + "/")
        return os.path.relpath(whole, self.cwd) if inside else whole

    def to_json(self) -> dict[str, Any]:
        """All the facts, as plain JSON."""
        return {
            "cwd": self.cwd,
            "phase": self.phase,
            "head": self.head,
            "files": [asdict(fact) for fact in self.files.values()],
            "read": dict(self.read),
            "commands": [{**asdict(c), "errors": list(c.errors)} for c in self._commands],
            "unresolved": [fact.ref for fact in self.unresolved()],
            "resolved": [{"ref": fact.ref, "by": by} for fact, by in self._resolved],
            "tests": [asdict(test) for test in self.tests.values()],
            "words": _referred(self._words),
            "decisions": _referred(self.decisions),
            "constraints": _referred(self.constraints),
            "denials": list(self.denials),
            "pins": _referred(self._pins.items()),
            "todos": [dict(todo) for todo in self._todos],
            "offloaded": dict(self._offloaded),
            "agents": [
                {"id": a.id, "type": a.type, "description": a.description, "status": a.status}
                for a in self._agents.values()
            ],
        }

    def absolute(self, path: str) -> str:
        """A path as a tool gives it, made absolute."""
        return os.path.normpath(os.path.join(self.cwd, path))  # noqa: PTH118 (as text: no disk)

    def _add_result(self, entry: ToolResult) -> None:
        tool = self._calls.pop(entry.tool_use_id, "")
        self._add_facts(entry, tool, tool)

    def _add_facts(self, entry: ToolResult, tool: str, by: str) -> None:
        """What a result of a tool tells; `by` says who changed what has changed."""
        if entry.offloaded:
            self._offloaded[entry.offloaded] = entry.seq
        details = entry.details
        if not isinstance(details, dict):
            return
        path, command = details.get("path"), details.get("command")
        self._add_changes(details, by, entry.seq)
        if isinstance(details.get("head"), str):
            self.head = details["head"]
        if tool == "Bash" and isinstance(command, str):
            self._add_command(entry, command, details)
        elif entry.is_error:
            return
        elif tool == "Todo" and isinstance(todos := details.get("todos"), list):
            self._todos = [_todo(t) for t in todos if isinstance(t, dict) and t.get("content")]
        elif tool in ("Write", "Edit") and isinstance(path, str):
            action: Action = "created" if details.get("created") is True else "modified"
            self._add_change(path, action, tool, entry.seq, details)
            self._add_seen(details)
        elif tool == "Read" and isinstance(path, str):
            self._add_reading(self.absolute(path), entry.seq)
            self._add_seen(details)

    def _add_by_hand(self, entry: User) -> None:
        """A command that the person ran tells the same as one of the agent's, but for whose it
        is."""
        self._add_facts(by_hand(entry), "Bash", "user")

    def _add_changes(self, details: Mapping[str, Any], tool: str, ref: int) -> None:
        for row in changes_of(details):
            changed = self._add_change(row["path"], row["action"], tool, ref, row)
            self._contents.pop(changed, None)
            if row["action"] == "deleted":
                self._contents[changed] = ""
            elif known := content_of(row):
                self._contents[changed] = known

    def _add_seen(self, details: Mapping[str, Any]) -> None:
        seen = details.get("seen")
        if isinstance(seen, dict) and {"path", "sha256"} <= seen.keys():
            self._contents[self.absolute(str(seen["path"]))] = f"sha256:{seen['sha256']}"

    def _add_reading(self, path: str, ref: int) -> None:
        if path not in self._files:
            self._read.pop(path, None)
            self._read[path] = ref

    def _add_change(
        self, named: str, action: Action, tool: str, ref: int, details: Mapping[str, Any]
    ) -> str:
        """A change of a file; its absolute path. Over all of a session, a file that is there again
        after it was deleted was modified, and one that the session made is created whatever
        becomes of it, or deleted."""
        path = self.absolute(named)
        self._read.pop(path, None)
        before = self._files.get(path)
        if before is None and action == "created":
            self._born.add(path)
        there: Action = "created" if path in self._born else "modified"
        self._files[path] = FileFact(
            path,
            "deleted" if action == "deleted" else there,
            (before.added if before else 0) + _count(details.get("added")),
            (before.removed if before else 0) + _count(details.get("removed")),
            tool,
            ref,
            (before.times if before else 0) + 1,
        )
        return path

    def _add_command(self, entry: ToolResult, command: str, details: Mapping[str, Any]) -> None:
        code = details.get("exit_code")
        fact = CommandFact(command, code if isinstance(code, int) else None, entry.seq)
        failed = self._failing.pop(command, None)
        if entry.is_error and details.get("interrupted") is not True:
            fact = replace(fact, errors=_telling_lines(entry))
            self._failing[command] = fact
        elif failed and fact.exit_code == 0:
            self._resolved.append((failed, entry.seq))
        if fact.exit_code is not None:
            output, passed = "\n".join(_lines(entry)), not entry.is_error
            cleared = self._tests.add(command, output, entry.seq, passed=passed, cwd=self.cwd)
            for one in cleared:
                if still := self._failing.pop(one, None):
                    self._resolved.append((still, entry.seq))
        self._commands.append(fact)


def _is_denial(note: Note) -> bool:
    """Whether a note of permission is of a call that was not allowed."""
    answer = note.data.get("answer") if isinstance(note.data, dict) else None
    return answer in (None, "", "no", "hook")


def _texts(document: Any, section: str) -> list[str]:
    """The texts in a section of a summary's document."""
    texts = document.get(section) if isinstance(document, dict) else None
    return [text for text in texts if isinstance(text, str)] if isinstance(texts, list) else []


def _referred(texts: Iterable[tuple[int, str]]) -> list[dict[str, Any]]:
    return [{"ref": ref, "text": text} for ref, text in texts]


def _todo(row: Mapping[str, Any]) -> dict[str, str]:
    return {"content": str(row["content"]), "status": str(row.get("status"))}


def _count(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _telling_lines(entry: ToolResult) -> tuple[str, ...]:
    """The last lines that speak of an error, verbatim; without any, the last line there is."""
    lines = [line for line in _lines(entry) if line.strip()]
    telling = [line for line in lines if _TELLING.search(line)] or lines[-1:]
    return tuple(line[:ERROR_LINE] for line in telling[-ERROR_LINES:])


def _lines(entry: ToolResult) -> list[str]:
    """What a command said, as far as the entry has it."""
    lines = [line.rstrip() for line in plain(entry.content).split("\n")]
    if entry.offloaded:
        lines = [line.removeprefix("> ") for line in lines if line.startswith("> ")]
    return lines
