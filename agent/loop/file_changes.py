"""Find which files a tool call changed: look at the work tree before and after each command. While
no job runs, a watch may say that nothing has changed since the last look, which then stands."""

import asyncio
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ...tools.base import Context, Params, Tool
from ..permissions.shell.parser import parse
from ..permissions.shell.read_only import changes_no_file, touched_paths
from ..worktree import TreeChange, TreeState, WorkTree

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


@dataclass(slots=True)
class FileEdit:
    """A file that a conversation edits."""

    name: str  # of the conversation
    path: str
    ended: bool = False


@dataclass
class ChangeTracker:
    """Finds what the calls of one conversation change."""

    tree: WorkTree
    context: Context
    name: str = ""  # of the conversation
    # shared by all conversations of a session, which run side by side
    edits: list[FileEdit] = field(default_factory=list)
    _base: TreeState | None = None  # up to this look the author of every change is known
    _by: str = ""  # the authors of changes since
    _own: set[str] = field(default_factory=set)  # paths edited since
    _since: int = 0  # index of the first edit after the base
    _found: list[dict[str, Any]] = field(default_factory=list)  # rows that no result has yet
    _busy: bool = False
    moment: float = HURRIED_LOOK_S

    async def before(self, tool: Tool[Any], params: Params) -> WatchedCall | None:
        """Look before a call runs; return what `after` needs, None where nothing can change."""
        subject = tool.subject(params)
        if tool.effect == "edit":
            self.edits.append(FileEdit(self.name, self._real(subject)))
            return WatchedCall(edits=self.edits[-1])
        if tool.effect == "none":
            # Of a job that has ended since the last look, too, this call is where it is heard of.
            return WatchedCall() if self._by and tool.name == "Job" else None
        if tool.effect != "run":
            return None
        script = parse(subject)
        if changes_no_file(script):
            return None
        since, running = self._still(), self._running()

        def look_at_named() -> tuple[tuple[str, ...], TreeState]:
            named = tuple(touched_paths(script, str(self.context.cwd)))
            return named, self.tree.observe(named, anew=bool(running))

        named, look = await asyncio.to_thread(look_at_named)
        await self._settle(look, running)
        self._by = INTERRUPTED
        return WatchedCall(look, named, since=since)

    def credit(self, name: str, paths: Iterable[str]) -> None:
        """Count files as changed by a subagent that has ended."""
        self._own.update(paths)
        for edit in self.edits:
            edit.ended |= edit.name == name

    async def after(self, token: WatchedCall | None, *, hurry: bool = False) -> dict[str, Any]:
        """Return what to add to the details of the call's result.

        In a hurry, or when cancelled, what is not found within a moment is left to a later result.
        """
        if token is None:
            return {}
        if token.edits is not None:
            self._own.add(token.edits.path)
            token.edits.ended = True
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
        running, before = self._running(), token.before

        def look_again() -> tuple[TreeState, Sequence[TreeChange]]:
            look = self.tree.observe(token.named, anew=bool(running))
            return look, self.tree.changes(before, look) if before else ()

        look, found = await asyncio.to_thread(look_again)
        head = ""
        changes: Sequence[TreeChange] = ()
        if before is None:
            await self._settle(look, running)
        else:
            others = self._of_others(token.since)
            changes = [change for change in found if change.path not in others]
            head = _head(look) if look.head != before.head else ""
        rows = [*self._found, *(change_row(change) for change in changes)]
        self._rest(look, running)
        self._found = []
        details: dict[str, Any] = {}
        if rows:
            details["changes"] = rows[:MAX_CHANGES_IN_RESULT]
        if len(rows) > MAX_CHANGES_IN_RESULT:
            details["changes_left_out"] = len(rows) - MAX_CHANGES_IN_RESULT
        if head:
            details["head"] = head
        return details

    async def _settle(self, look: TreeState, running: str) -> None:
        """Find what changed since the last look by a job or a killed call. `running` are the jobs
        that ran just before this look."""
        if self._base is not None and self._by:
            changes = await asyncio.to_thread(self.tree.changes, self._base, look)
            own = self._own | self._of_others(self._since)
            self._found += [change_row(c, by=self._by) for c in changes if c.path not in own]
        self._rest(look, running)

    def _rest(self, look: TreeState, running: str) -> None:
        """Remember this look: up to here the author of every change is known."""
        self._base, self._by, self._own = look, running, set()
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


def change_row(change: TreeChange, *, by: str = "") -> dict[str, Any]:
    """Return a change as the details of a result hold it; `by` names its author where that is not
    the call itself."""
    told: dict[str, Any] = {
        "path": change.path,
        "action": change.action,
        "added": change.added,
        "removed": change.removed,
    }
    return told | ({"blob": change.blob} if change.blob else {}) | ({"by": by} if by else {})


def _head(look: TreeState) -> str:
    branch, _, commit = look.head.rpartition(" ")
    return f"{branch} {commit[:7]}" if branch else look.head
