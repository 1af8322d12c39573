"""The ledger: facts folded from the log without a model.

Which files were created, changed, deleted or only read, which commands ran and which of them still
fail, what the person said and pinned, what was not authorised. It is fed entry by entry, each at
the same cost however long the log is; its views are for reading only. Nothing here looks at the
disk.
"""

import os.path
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from .entries import Assistant, Entry, Note, Pin, Session, ToolResult, Unpin, User
from .sessions import plain

Action = Literal["created", "modified", "deleted"]

ERROR_LINES = 5  # kept of a failed command's output
ERROR_LINE = 300  # characters kept of each

_TELLING = re.compile(
    r"error|exception|traceback|\bfail|\bfatal|\bpanic|assert|denied|refused|undefined|not found"
    r"|no such|timed out",
    re.IGNORECASE,
)
_SHELL = re.compile(r"[;&|<>$`*?(){}\[\]~#\n]")  # more than one plain command


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
    _calls: dict[str, str] = field(default_factory=dict)  # names of the unanswered, by id
    _files: dict[str, FileFact] = field(default_factory=dict)  # these two by absolute path
    _read: dict[str, int] = field(default_factory=dict)
    _commands: list[CommandFact] = field(default_factory=list)
    _failing: dict[str, CommandFact] = field(default_factory=dict)
    _words: list[tuple[int, str]] = field(default_factory=list)
    _todos: list[dict[str, str]] = field(default_factory=list)
    _denials: dict[str, None] = field(default_factory=dict)
    _offloaded: dict[str, int] = field(default_factory=dict)
    _pins: dict[int, str] = field(default_factory=dict)

    def add(self, entry: Entry) -> None:
        """Fold one more entry. What a garbled log has in the place of a fact counts for nothing."""
        if isinstance(entry, ToolResult):
            self._add_result(entry)
        elif isinstance(entry, Assistant):
            for block in entry.content:
                if block.get("type") == "tool_use" and entry.purpose == "turn":
                    self._calls[str(block.get("id"))] = str(block.get("name"))
        elif isinstance(entry, User):
            if entry.source == "person":
                self._words.append((entry.seq, plain(entry.content)))
        elif isinstance(entry, Note):
            if entry.topic == "permission":
                self._denials[entry.text] = None
        elif isinstance(entry, Pin):
            self._pins[entry.ref if isinstance(entry.ref, int) else entry.seq] = entry.text
        elif isinstance(entry, Unpin):
            self._pins = {ref: text for ref, text in self._pins.items() if ref != entry.ref}
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
    def commands(self) -> Sequence[CommandFact]:
        return self._commands

    def unresolved(self) -> list[CommandFact]:
        """Commands that failed when they last ran, oldest first."""
        return list(self._failing.values())

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
    def offloaded(self) -> Mapping[str, int]:
        """Files under the session's folder that hold whole results, with the results' refs."""
        return self._offloaded

    @property
    def pins(self) -> Mapping[int, str]:
        """What the person pinned, by ref; a text of their own under the ref of its pin."""
        return self._pins

    def shown(self, path: str) -> str:
        """A path relative to the session's directory when inside it, else absolute."""
        whole = self._absolute(path)
        inside = self.cwd and whole.startswith(self.cwd.rstrip("/") + "/")
        return os.path.relpath(whole, self.cwd) if inside else whole

    def _absolute(self, path: str) -> str:
        return os.path.normpath(os.path.join(self.cwd, path))  # noqa: PTH118 (as text: no disk)

    def _add_result(self, entry: ToolResult) -> None:
        tool = self._calls.pop(entry.tool_use_id, "")
        if entry.offloaded:
            self._offloaded[entry.offloaded] = entry.seq
        details = entry.details
        if not isinstance(details, dict):
            return
        path, command = details.get("path"), details.get("command")
        if tool == "Bash" and isinstance(command, str):
            self._add_command(entry, command, details)
        elif entry.is_error:
            return
        elif tool == "Todo" and isinstance(todos := details.get("todos"), list):
            self._todos = [_todo(t) for t in todos if isinstance(t, dict) and t.get("content")]
        elif tool in ("Write", "Edit") and isinstance(path, str):
            self._add_change(self._absolute(path), tool, entry.seq, details)
        elif tool == "Read" and isinstance(path, str):
            self._add_reading(self._absolute(path), entry.seq)

    def _add_reading(self, path: str, ref: int) -> None:
        if path not in self._files:
            self._read.pop(path, None)
            self._read[path] = ref

    def _add_change(self, path: str, tool: str, ref: int, details: Mapping[str, Any]) -> None:
        self._read.pop(path, None)
        before = self._files.get(path)
        new = details.get("created") is True or (before is not None and before.action == "created")
        self._files[path] = FileFact(
            path,
            "created" if new else "modified",
            (before.added if before else 0) + _count(details.get("added")),
            (before.removed if before else 0) + _count(details.get("removed")),
            tool,
            ref,
            (before.times if before else 0) + 1,
        )

    def _add_command(self, entry: ToolResult, command: str, details: Mapping[str, Any]) -> None:
        code = details.get("exit_code")
        fact = CommandFact(command, code if isinstance(code, int) else None, entry.seq)
        self._failing.pop(command, None)
        if entry.is_error:
            fact = replace(fact, errors=_telling_lines(entry))
            self._failing[command] = fact
        elif fact.exit_code == 0:
            for path in _removed(command):
                self._add_deletion(self._absolute(path), entry.seq)
        self._commands.append(fact)

    def _add_deletion(self, path: str, ref: int) -> None:
        """A known file is gone, or a folder with the known files in it."""
        known = [*self._files, *self._read]
        for gone in (p for p in known if p == path or p.startswith(path + "/")):
            self._read.pop(gone, None)
            fact = self._files.get(gone) or FileFact(gone, "deleted", 0, 0, "", 0, 0)
            self._files[gone] = replace(
                fact, action="deleted", tool="Bash", ref=ref, times=fact.times + 1
            )


def _todo(row: Mapping[str, Any]) -> dict[str, str]:
    return {"content": str(row["content"]), "status": str(row.get("status"))}


def _count(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _removed(command: str) -> list[str]:
    """The paths that a plain `rm` or `git rm` names; none for any other command."""
    if _SHELL.search(command):
        return []
    try:
        words = shlex.split(command)
    except ValueError:
        return []
    words = words[1:] if words[:1] == ["git"] else words
    if words[:1] != ["rm"] or "--cached" in words or "--dry-run" in words:
        return []
    return [word for word in words[1:] if not word.startswith("-")]


def _telling_lines(entry: ToolResult) -> tuple[str, ...]:
    """The last lines that speak of an error, verbatim; without any, the last line there is."""
    lines = [line.rstrip() for line in plain(entry.content).split("\n")]
    if entry.offloaded:
        lines = [line.removeprefix("> ") for line in lines if line.startswith("> ")]
    lines = [line for line in lines if line.strip()]
    telling = [line for line in lines if _TELLING.search(line)] or lines[-1:]
    return tuple(line[:ERROR_LINE] for line in telling[-ERROR_LINES:])
