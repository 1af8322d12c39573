"""Find the files that a tool call changed, and decide which session changed them.

The work tree is scanned before and after each command. If no job runs and a watch shows no change
since the last scan, that scan is reused. Files that a call may change are saved before it runs,
once between two rewind points. Subagents save for the session that started them.

Calls and changes are reported to the other sessions of the project (`touch_record`). A change is
only proved if the command visibly writes to the file (`> a.txt`, `sed -i … b`) or a session's
record names it. A change without proof is listed as made while the command ran, since an editor or
another program may have made it. If a command of another session ran at the same time, neither
session lists the change as its own.
"""

import asyncio
import os
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import field
from typing import Any

from ...tools.base import Context, Params, Tool
from ..lazy import dataclass
from ..permissions.paths import is_within
from ..permissions.shell.parser import parse
from ..permissions.shell.reach import paths_written
from ..permissions.shell.read_only import changes_no_file, touched_paths
from ..session.entries import Entry
from ..session.since_point import COMMAND, EDIT, saved_note
from ..worktree import (
    DELETED,
    UNKNOWN,
    SavedFile,
    SavedFiles,
    Touches,
    TouchRecord,
    TreeChange,
    TreeState,
    WorkTree,
    blob_digest,
    content_of,
)


@dataclass(slots=True)
class FileSaver:
    """Saves the files of one session. `point` returns the number of the newest rewind point."""

    files: SavedFiles
    record: Callable[[Entry], Entry]
    point: Callable[[], int]
    _since: int = -1  # the point after which `_saved` were saved
    _saved: set[tuple[str, str]] = field(default_factory=set)

    async def save(
        self,
        paths: Iterable[str],
        by: str,
        left_out: Iterable[SavedFile] = (),
        *,
        drop: bool = True,
    ) -> Sequence[SavedFile]:
        """Save the files at these paths that were not saved since the newest point. Record and
        return the saved files and `left_out`, which are files that cannot be saved. `drop` is that
        of `SavedFiles.save`. Raises RecordError.
        """
        if self.point() != self._since:
            self._since, self._saved = self.point(), set()
        wanted = [p for p in dict.fromkeys(paths) if p and (p, by) not in self._saved]
        self._saved.update((path, by) for path in wanted)
        rows = [*await asyncio.to_thread(self.files.save, wanted, drop=drop), *left_out]
        if rows:
            self.record(saved_note(rows, by))
        return rows


@dataclass(slots=True)
class SortedChanges:
    """Changes, grouped by how certain it is that this session made them. Changes by other sessions
    are left out.
    """

    own: list[TreeChange] = field(default_factory=list)
    uncertain: list[TreeChange] = field(default_factory=list)  # made while the command ran
    shared: list[TreeChange] = field(default_factory=list)  # another session's command ran too


def sort_changes(
    changes: Iterable[TreeChange], writes: Collection[str], others: Touches
) -> SortedChanges:
    """Sort the changes found after a command. `writes` are the paths that the command visibly
    writes to. `others` are the calls of other sessions at that time.
    """
    found = SortedChanges()
    for change in changes:
        if others.claims(change.path, content_of(change)):
            continue
        real = os.path.realpath(change.path)
        named = change.path in writes or real in writes
        overlapped = others.may_have_changed(change.path)
        named_by_other = overlapped and (others.writes(change.path) or others.writes(real))
        if named and not named_by_other:
            found.own.append(change)
        elif overlapped:
            if named or not named_by_other:
                found.shared.append(change)
        elif is_within(real, writes):
            found.own.append(change)
        else:
            found.uncertain.append(change)
    return found


MAX_CHANGES_IN_RESULT = 2_000  # recorded changes of one call; the others are only counted
HURRIED_SCAN_S = 1.0  # seconds for the last scan after an interrupt
INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class WatchedCall:
    """A watched call: a command, an edit, or a call that reads jobs."""

    before: TreeState | None = None  # the scan before a command
    named: tuple[str, ...] = ()
    edits: "FileEdit | None" = None  # set for an edit
    since: int = 0  # index of the first edit that may be by another conversation during this call
    began: int = 0  # start of the scan, in nanoseconds since the epoch
    writes: frozenset[str] = frozenset()  # paths that a command visibly writes to
    id: str = ""  # in the touch record


@dataclass(slots=True)
class FileEdit:
    """The edit of a file by a conversation."""

    name: str  # of the conversation
    path: str
    ended: bool = False
    content: str = ""  # before the edit


@dataclass
class ChangeTracker:
    """Finds the files that one conversation's calls change."""

    tree: WorkTree
    context: Context
    name: str = ""  # of the conversation
    # Shared by all conversations of a session, which run in parallel: `edits`, `record`, `saver`.
    edits: list[FileEdit] = field(default_factory=list)
    record: TouchRecord | None = None
    saver: FileSaver | None = None
    _base: TreeState | None = None  # the last scan; authors of all earlier changes are known
    _base_began: int = 0
    _by: str = ""  # authors of changes since the base
    _own: set[str] = field(default_factory=set)  # paths edited since the base
    _since: int = 0  # index of the first edit after the base
    _found: list[dict[str, Any]] = field(default_factory=list)  # rows not yet in a result
    _shared: list[TreeChange] = field(default_factory=list)  # the same, author uncertain
    _open: dict[str, frozenset[str]] = field(default_factory=dict)  # written paths, by call ID
    _busy: bool = False
    moment: float = HURRIED_SCAN_S

    async def before(self, tool: Tool[Any], params: Params) -> WatchedCall | None:
        """Scan before a call runs. Return the token for `after`; None if the call cannot change
        files.
        """
        subject = tool.subject(params)
        if tool.effect == "edit":
            edit = FileEdit(self.name, self._real(subject))
            edit.content = await asyncio.to_thread(current_content, edit.path)
            self.edits.append(edit)
            return WatchedCall(edits=edit, id=self._begin(frozenset((edit.path,))))
        if tool.effect == "none":
            # A Job call reports the changes of jobs, including jobs that ended since the last scan.
            return WatchedCall() if self._by and tool.name == "Job" else None
        if tool.effect != "run":
            return None
        script = parse(subject)
        if changes_no_file(script):
            return None
        since, running, began = self._first_open_edit(), self._running(), time.time_ns()

        def scan_named() -> tuple[tuple[str, ...], TreeState, frozenset[str]]:
            named = tuple(touched_paths(script, str(self.context.cwd)))
            scan = self.tree.observe(named, full=bool(running))
            return named, scan, paths_written(script, str(self.context.cwd))

        named, scan, writes = await asyncio.to_thread(scan_named)
        await self._settle(scan, running, began)
        self._by = INTERRUPTED
        id = self._begin(writes)
        return WatchedCall(scan, named, since=since, began=began, writes=writes, id=id)

    async def save(self, token: WatchedCall | None) -> None:
        """Save the files that a call may change, before it runs. Raises RecordError."""
        if token is None or self.saver is None:
            return
        if token.edits is not None:
            await self.saver.save([token.edits.path], EDIT)
        elif token.before is not None and token.named:
            found = await asyncio.to_thread(self.tree.unkept_files, token.before)
            await self.saver.save(found.paths, COMMAND, found.left_out)

    def close(self) -> None:
        """Close the touch record at the end of the session."""
        if self.record is not None:
            self.record.close()

    def credit(self, name: str, paths: Iterable[str]) -> None:
        """Attribute changed files to a subagent that has ended."""
        self._own.update(paths)
        for edit in self.edits:
            edit.ended |= edit.name == name

    async def save_before_rewind(self, paths: Iterable[str]) -> frozenset[str]:
        """Save files that a rewind may restore, without dropping the versions that it needs. Return
        the paths that cannot be saved. Raises RecordError.
        """
        saver = self.saver
        rows = await saver.save(paths, COMMAND, drop=False) if saver is not None else ()
        return frozenset(file.path for file in rows if file.why)

    def report_to_others(self, changes: Sequence[TreeChange]) -> None:
        """Report the changes of a rewind to the other sessions."""
        if self.record is not None:
            id = self.record.begin()
            self.record.record_changes(id, {c.path: content_of(c) for c in changes}, ended=True)

    async def after(self, token: WatchedCall | None, *, hurry: bool = False) -> dict[str, Any]:
        """Return the changes for the details of the call's result.

        With `hurry`, or after a cancellation, changes that are not found within a second are left
        to a later result.
        """
        if token is None:
            return {}
        if token.edits is not None:
            self._own.add(token.edits.path)
            token.edits.ended = True
            await asyncio.to_thread(self._report_edit, token.id, token.edits)
            return {}
        if self._busy:  # Job calls may run in parallel: only one of them scans
            return {}
        self._busy = True
        try:
            async with asyncio.timeout(self.moment if hurry else None):
                return await self._difference(token)
        except TimeoutError:
            return {}
        finally:
            self._busy = False

    async def last(self) -> dict[str, Any]:
        """Return the changes that jobs made since the last result, for details."""
        return await self.after(WatchedCall()) if self._by else {}

    async def _difference(self, token: WatchedCall) -> dict[str, Any]:
        running, before, began = self._running(), token.before, time.time_ns()

        def scan_again() -> tuple[TreeState, Sequence[TreeChange]]:
            scan = self.tree.observe(token.named, full=bool(running))
            return scan, self.tree.changes(before, scan) if before else ()

        scan, found = await asyncio.to_thread(scan_again)
        head, changes = "", SortedChanges()
        if before is None:
            await self._settle(scan, running, began)
        else:
            others = self._edited_by_others(token.since)
            left = [change for change in found if change.path not in others]
            changes = await self._sorted(left, token.writes, token.began)
            head = _head(scan) if scan.head != before.head else ""
            self._report_changes(token.id, changes.own, running)
        rows = [
            *self._found,
            *(change_row(change) for change in changes.own),
            *(change_row(change, certain=False) for change in changes.uncertain),
        ]
        shared = [*self._shared, *changes.shared]
        self._set_base(scan, running, began)
        self._found, self._shared = [], []
        return _details(rows, shared, head)

    async def _settle(self, scan: TreeState, running: str, began: int) -> None:
        """Find the changes since the last scan that a job or a killed call made. `scan` is the new
        scan, started at `began`; `running` are the jobs that ran before it.
        """
        if self._base is not None and self._by:
            changes = await asyncio.to_thread(self.tree.changes, self._base, scan)
            own = self._own | self._edited_by_others(self._since)
            left = [change for change in changes if change.path not in own]
            writes = frozenset[str]().union(*self._open.values())
            found = await self._sorted(left, writes, self._base_began)
            self._found += [change_row(c, by=self._by) for c in found.own]
            self._found += [change_row(c, by=self._by, certain=False) for c in found.uncertain]
            self._shared += found.shared
            self._report_changes(next(iter(self._open), ""), found.own, running)
        self._set_base(scan, running, began)

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
        """Report the start of a call to the other sessions. Return the call's ID in the touch
        record.
        """
        if self.record is None:
            return ""
        id = self.record.begin(writes)
        self._open[id] = writes
        return id

    def _report_changes(self, id: str, changes: Iterable[TreeChange], running: str) -> None:
        """Report a call's changes to the other sessions. If no job runs, also report that all calls
        have ended.
        """
        if self.record is None or id not in self._open:
            return
        self.record.record_changes(id, {c.path: content_of(c) for c in changes}, ended=not running)
        if not running:
            for each in self._open.keys() - {id}:
                self.record.record_changes(each, {}, ended=True)
            self._open.clear()

    def _report_edit(self, id: str, edit: FileEdit) -> None:
        """Report the change of an edit to the other sessions."""
        if self.record is not None and self._open.pop(id, None) is not None:
            content = current_content(edit.path)
            changed = {edit.path: content} if content != edit.content else {}
            self.record.record_changes(id, changed, ended=True)

    def _set_base(self, scan: TreeState, running: str, began: int) -> None:
        """Make a scan the new base. It started at `began`, and the author of every earlier change
        is known.
        """
        self._base, self._base_began, self._by, self._own = scan, began, running, set()
        self._since = self._first_open_edit()

    def _first_open_edit(self) -> int:
        """Return the index of the first unfinished edit of another conversation."""
        still = (n for n, e in enumerate(self.edits) if not e.ended and e.name != self.name)
        return next(still, len(self.edits))

    def _edited_by_others(self, since: int) -> set[str]:
        return {edit.path for edit in self.edits[since:] if edit.name != self.name}

    def _real(self, path: str) -> str:
        """Return the real path; "" if it cannot be resolved. The tool reports that error."""
        with suppress(OSError, ValueError, RuntimeError):
            return os.path.realpath(self.context.resolve(path))
        return ""

    def _running(self) -> str:
        """Return the IDs of the running jobs, separated by commas."""
        return ", ".join(id for id, job in self.context.jobs.items() if job.process.running)


def current_content(path: str) -> str:
    """Return the digest of a file in the form of the touch record. Blocking."""
    return (blob_digest(path) or UNKNOWN) if os.path.lexists(path) else DELETED


def change_row(change: TreeChange, *, by: str = "", certain: bool = True) -> dict[str, Any]:
    """Return a change as a row of a result's details. `by` names the author if it is not the call.
    With `certain` False, the change was made while the call ran, perhaps by another program.
    """
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
    """Return the details of a result for these changes."""
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


def _head(scan: TreeState) -> str:
    branch, _, commit = scan.head.rpartition(" ")
    return f"{branch} {commit[:7]}" if branch else scan.head
