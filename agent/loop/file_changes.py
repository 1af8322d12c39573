"""Find which files a tool call changed: look at the work tree before and after each command. While
no job runs, a watch may say that nothing has changed since the last look, which then stands.

The calls are told to the other sessions of the project (`touch_record`), and what those say of
theirs decides whose a change is (`attribution`). Files that a call may change are saved before it
runs (`saving`).
"""

import asyncio
import os
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ...tools.base import Context, Params, Tool
from ..permissions.shell.parser import parse
from ..permissions.shell.reach import paths_written
from ..permissions.shell.read_only import changes_no_file, touched_paths
from ..session.since_point import COMMAND, EDIT
from ..worktree import (
    DELETED,
    UNKNOWN,
    Touches,
    TouchRecord,
    TreeChange,
    TreeState,
    WorkTree,
    blob_digest,
    content_of,
)
from .attribution import SortedChanges, sort_changes
from .saving import FileSaver

MAX_CHANGES_IN_RESULT = 2_000  # changes recorded of one call; how many there were beyond is counted
HURRIED_LOOK_S = 1.0  # seconds that a person who interrupts waits for the last look
INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class WatchedCall:
    """A call that is watched: a command, an edit, or a call that only looks after jobs."""

    before: TreeState | None = None  # the look at the tree before a command
    named: tuple[str, ...] = ()
    edits: "FileEdit | None" = None  # the file that an edit changes
    since: int = 0  # index of the first edit that another conversation may make meanwhile
    began: int = 0  # the moment before the look, in nanoseconds since the epoch
    writes: frozenset[str] = frozenset()  # paths that a command visibly writes to
    id: str = ""  # in the touch record


@dataclass(slots=True)
class FileEdit:
    """A file that a conversation edits."""

    name: str  # of the conversation
    path: str
    ended: bool = False
    content: str = ""  # before the edit


@dataclass
class ChangeTracker:
    """Finds what the calls of one conversation change."""

    tree: WorkTree
    context: Context
    name: str = ""  # of the conversation
    # The rest is shared by all conversations of a session, which run side by side.
    edits: list[FileEdit] = field(default_factory=list)
    record: TouchRecord | None = None
    saver: FileSaver | None = None
    _base: TreeState | None = None  # up to this look the author of every change is known
    _base_began: int = 0
    _by: str = ""  # the authors of changes since
    _own: set[str] = field(default_factory=set)  # paths edited since
    _since: int = 0  # index of the first edit after the base
    _found: list[dict[str, Any]] = field(default_factory=list)  # rows that no result has yet
    _shared: list[TreeChange] = field(default_factory=list)  # the same, of an uncertain session
    _open: dict[str, frozenset[str]] = field(default_factory=dict)  # writes of calls, by their ids
    _busy: bool = False
    moment: float = HURRIED_LOOK_S

    async def before(self, tool: Tool[Any], params: Params) -> WatchedCall | None:
        """Look before a call runs; return what `after` needs, None where nothing can change."""
        subject = tool.subject(params)
        if tool.effect == "edit":
            edit = FileEdit(self.name, self._real(subject))
            edit.content = await asyncio.to_thread(current_content, edit.path)
            self.edits.append(edit)
            return WatchedCall(edits=edit, id=self._begin(frozenset((edit.path,))))
        if tool.effect == "none":
            # Of a job that has ended since the last look, too, this call is where it is heard of.
            return WatchedCall() if self._by and tool.name == "Job" else None
        if tool.effect != "run":
            return None
        script = parse(subject)
        if changes_no_file(script):
            return None
        since, running, began = self._still(), self._running(), time.time_ns()

        def look_at_named() -> tuple[tuple[str, ...], TreeState, frozenset[str]]:
            named = tuple(touched_paths(script, str(self.context.cwd)))
            look = self.tree.observe(named, anew=bool(running))
            return named, look, paths_written(script, str(self.context.cwd))

        named, look, writes = await asyncio.to_thread(look_at_named)
        await self._settle(look, running, began)
        self._by = INTERRUPTED
        id = self._begin(writes)
        return WatchedCall(look, named, since=since, began=began, writes=writes, id=id)

    async def save(self, token: WatchedCall | None) -> None:
        """Save what a call may change, before it runs. Raises RecordError."""
        if token is None or self.saver is None:
            return
        if token.edits is not None:
            await self.saver.save([token.edits.path], EDIT)
        elif token.before is not None and token.named:
            found = await asyncio.to_thread(self.tree.unkept_files, token.before)
            await self.saver.save(found.paths, COMMAND, found.left_out)

    def close(self) -> None:
        """Let go of the touch record, when the session is left."""
        if self.record is not None:
            self.record.close()

    def credit(self, name: str, paths: Iterable[str]) -> None:
        """Count files as changed by a subagent that has ended."""
        self._own.update(paths)
        for edit in self.edits:
            edit.ended |= edit.name == name

    async def save_before_rewind(self, paths: Iterable[str]) -> frozenset[str]:
        """Save files that a rewind may put back, and return those that cannot be saved. Raises
        RecordError."""
        rows = await self.saver.save(paths, COMMAND) if self.saver is not None else ()
        return frozenset(file.path for file in rows if file.why)

    def tell_others(self, changes: Sequence[TreeChange]) -> None:
        """Tell other sessions what a rewind has changed."""
        if self.record is not None:
            id = self.record.begin()
            self.record.tell(id, {c.path: content_of(c) for c in changes}, ended=True)

    async def after(self, token: WatchedCall | None, *, hurry: bool = False) -> dict[str, Any]:
        """Return what to add to the details of the call's result.

        In a hurry, or when cancelled, what is not found within a moment is left to a later result.
        """
        if token is None:
            return {}
        if token.edits is not None:
            self._own.add(token.edits.path)
            token.edits.ended = True
            await asyncio.to_thread(self._tell_edit, token.id, token.edits)
            return {}
        if self._busy:  # calls of Job may run side by side: one of them looks
            return {}
        self._busy = True
        try:
            async with asyncio.timeout(self.moment if hurry else None):
                return await self._difference(token)
        except TimeoutError:
            return {}
        finally:
            self._busy = False

    async def _difference(self, token: WatchedCall) -> dict[str, Any]:
        running, before, began = self._running(), token.before, time.time_ns()

        def look_again() -> tuple[TreeState, Sequence[TreeChange]]:
            look = self.tree.observe(token.named, anew=bool(running))
            return look, self.tree.changes(before, look) if before else ()

        look, found = await asyncio.to_thread(look_again)
        head, changes = "", SortedChanges()
        if before is None:
            await self._settle(look, running, began)
        else:
            others = self._of_others(token.since)
            left = [change for change in found if change.path not in others]
            changes = await self._sorted(left, token.writes, token.began)
            head = _head(look) if look.head != before.head else ""
            self._tell(token.id, changes.own, running)
        rows = [
            *self._found,
            *(change_row(change) for change in changes.own),
            *(change_row(change, certain=False) for change in changes.uncertain),
        ]
        shared = [*self._shared, *changes.shared]
        self._rest(look, running, began)
        self._found, self._shared = [], []
        return _details(rows, shared, head)

    async def _settle(self, look: TreeState, running: str, began: int) -> None:
        """Find what changed since the last look by a job or a killed call. `running` are the jobs
        that ran just before this look, which began at the moment `began`."""
        if self._base is not None and self._by:
            changes = await asyncio.to_thread(self.tree.changes, self._base, look)
            own = self._own | self._of_others(self._since)
            left = [change for change in changes if change.path not in own]
            writes = frozenset[str]().union(*self._open.values())
            found = await self._sorted(left, writes, self._base_began)
            self._found += [change_row(c, by=self._by) for c in found.own]
            self._found += [change_row(c, by=self._by, certain=False) for c in found.uncertain]
            self._shared += found.shared
            self._tell(next(iter(self._open), ""), found.own, running)
        self._rest(look, running, began)

    async def _sorted(
        self, changes: Sequence[TreeChange], writes: frozenset[str], since: int
    ) -> SortedChanges:
        record = self.record
        if record is None or not changes:
            return sort_changes(changes, writes, Touches())
        return await asyncio.to_thread(
            lambda: sort_changes(changes, writes, record.others(since, time.time_ns()))
        )

    def _begin(self, writes: frozenset[str]) -> str:
        """Tell other sessions that a call starts, and return its name."""
        if self.record is None:
            return ""
        id = self.record.begin(writes)
        self._open[id] = writes
        return id

    def _tell(self, id: str, changes: Iterable[TreeChange], running: str) -> None:
        """Tell other sessions what a call has changed. Unless jobs run, all calls have ended."""
        if self.record is None or id not in self._open:
            return
        self.record.tell(id, {c.path: content_of(c) for c in changes}, ended=not running)
        if not running:
            for each in self._open.keys() - {id}:
                self.record.tell(each, {}, ended=True)
            self._open.clear()

    def _tell_edit(self, id: str, edit: FileEdit) -> None:
        """Tell other sessions what an edit has changed."""
        if self.record is not None and self._open.pop(id, None) is not None:
            content = current_content(edit.path)
            changed = {edit.path: content} if content != edit.content else {}
            self.record.tell(id, changed, ended=True)

    def _rest(self, look: TreeState, running: str, began: int) -> None:
        """Remember this look, which began at a moment: up to here the author of every change is
        known."""
        self._base, self._base_began, self._by, self._own = look, began, running, set()
        self._since = self._still()

    def _still(self) -> int:
        """Return the index of the first edit of another conversation that has not ended."""
        still = (n for n, e in enumerate(self.edits) if not e.ended and e.name != self.name)
        return next(still, len(self.edits))

    def _of_others(self, since: int) -> set[str]:
        return {edit.path for edit in self.edits[since:] if edit.name != self.name}

    def _real(self, path: str) -> str:
        """Return where a path leads, "" when it cannot be one: the tool will say so."""
        with suppress(ValueError, RuntimeError):
            return os.path.realpath(self.context.resolve(path))
        return ""

    def _running(self) -> str:
        """Return the ids of the jobs that run, with commas between."""
        return ", ".join(id for id, job in self.context.jobs.items() if job.process.running)


def current_content(path: str) -> str:
    """Return what the touch record says of a file as it is now; blocking."""
    return (blob_digest(path) or UNKNOWN) if os.path.lexists(path) else DELETED


def change_row(change: TreeChange, *, by: str = "", certain: bool = True) -> dict[str, Any]:
    """Return a change as the details of a result hold it; `by` names its author where that is not
    the call itself. A change that is not `certain` was made while the call ran."""
    told: dict[str, Any] = {
        "path": change.path,
        "action": change.action,
        "added": change.added,
        "removed": change.removed,
    }
    told |= {"blob": change.blob} if change.blob else {}
    return told | ({"by": by} if by else {}) | ({} if certain else {"certain": False})


def _details(
    rows: Sequence[dict[str, Any]], shared: Iterable[TreeChange], head: str
) -> dict[str, Any]:
    """Return what a result's details say of changes."""
    details: dict[str, Any] = {}
    if rows:
        details["changes"] = rows[:MAX_CHANGES_IN_RESULT]
    if len(rows) > MAX_CHANGES_IN_RESULT:
        details["changes_left_out"] = len(rows) - MAX_CHANGES_IN_RESULT
    if found := [{"path": c.path, "action": c.action} for c in shared]:
        details["changed_meanwhile"] = found[:MAX_CHANGES_IN_RESULT]
    if head:
        details["head"] = head
    return details


def _head(look: TreeState) -> str:
    branch, _, commit = look.head.rpartition(" ")
    return f"{branch} {commit[:7]}" if branch else look.head
