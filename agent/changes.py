"""What a tool call changed: the work tree is looked at before and after every call that may change
anything, and the difference stands in the result's details.

What changed between two such calls is a background job's when one was running, and that of a call
that was interrupted when its last look was cut short; else it is somebody else's, and no business
of the session. The agent's own edits are known from their results; what subagents at work on the
same files edit meanwhile is known too, and is theirs.
"""

import asyncio
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ..tools.base import Context, Params, Tool
from .record.worktree import Change, Look, WorkTree
from .shell.syntax import parse
from .shell.touched import only_looks, touched

MOST = 2_000  # changes recorded of one call; how many there were beyond is counted
HURRY = 1.0  # seconds that a person who interrupts waits for the last look
INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class Token:
    """A call that is watched: one with a look `before` it, one that `edits` a file, or, without
    either, one that looks after jobs. `since` is where the edits begin that others may make while
    it runs."""

    before: Look | None = None
    named: tuple[str, ...] = ()
    edits: "Edit | None" = None
    since: int = 0


@dataclass(slots=True)
class Edit:
    """A file that the conversation `name` edits; `ended` when that is done."""

    name: str
    path: str
    ended: bool = False


@dataclass
class Watch:
    """Watches the calls of one conversation. `context` is what the tools get. `edits` has what each
    conversation of a session edited, by its `name`: those that run side by side share it."""

    tree: WorkTree
    context: Context
    name: str = ""
    edits: list[Edit] = field(default_factory=list)
    _base: Look | None = None  # up to here it is known whose every change was
    _by: str = ""  # whose the changes since are
    _own: set[str] = field(default_factory=set)  # what was edited since
    _since: int = 0  # of the edits of all, those before the base
    _found: list[dict[str, Any]] = field(default_factory=list)  # not yet in any result
    _busy: bool = False
    moment: float = HURRY

    async def before(self, tool: Tool[Any], params: Params) -> Token | None:
        """To be called before a call runs, and its answer given to `after`."""
        subject = tool.subject(params)
        if tool.effect == "edit":
            self.edits.append(Edit(self.name, self._real(subject)))
            return Token(edits=self.edits[-1])
        if tool.effect == "none":
            return Token() if self._running() and tool.name == "Job" else None
        if tool.effect != "run":
            return None
        script = parse(subject)
        if only_looks(script):
            return None
        named = tuple(await asyncio.to_thread(touched, script, str(self.context.cwd)))
        since = self._still()
        look = await asyncio.to_thread(self.tree.look, named)
        await self._settle(look)
        self._by = INTERRUPTED
        return Token(look, named, since=since)

    def credit(self, name: str, paths: Iterable[str]) -> None:
        """Files that a subagent has changed, which has ended."""
        self._own.update(paths)
        for edit in self.edits:
            edit.ended |= edit.name == name

    async def after(self, token: Token | None, *, hurry: bool = False) -> dict[str, Any]:
        """What to add to the details of the call's result. In a hurry, what is not found within a
        moment is told in a later one; the same when this is cancelled."""
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

    async def _difference(self, token: Token) -> dict[str, Any]:
        look = await asyncio.to_thread(self.tree.look, token.named)
        head = ""
        changes: Sequence[Change] = ()
        if token.before is None:
            await self._settle(look)
        else:
            found = await asyncio.to_thread(self.tree.changes, token.before, look)
            others = self._of_others(token.since)
            changes = [change for change in found if change.path not in others]
            head = _head(look) if look.head != token.before.head else ""
        rows = [*self._found, *(row(change) for change in changes)]
        self._rest(look)
        self._found = []
        details: dict[str, Any] = {}
        if rows:
            details["changes"] = rows[:MOST]
        if len(rows) > MOST:
            details["changes_left_out"] = len(rows) - MOST
        if head:
            details["head"] = head
        return details

    async def _settle(self, look: Look) -> None:
        """Find what changed since the last look, if it is anybody's of ours."""
        if self._base is not None and self._by:
            changes = await asyncio.to_thread(self.tree.changes, self._base, look)
            own = self._own | self._of_others(self._since)
            self._found += [row(c, by=self._by) for c in changes if c.path not in own]
        self._rest(look)

    def _rest(self, look: Look) -> None:
        """Up to this look it is known whose every change was."""
        self._base, self._by, self._own = look, self._running(), set()
        self._since = self._still()

    def _still(self) -> int:
        """Where the edits of others begin that have not ended."""
        still = (n for n, e in enumerate(self.edits) if not e.ended and e.name != self.name)
        return next(still, len(self.edits))

    def _of_others(self, since: int) -> set[str]:
        return {edit.path for edit in self.edits[since:] if edit.name != self.name}

    def _real(self, path: str) -> str:
        """Where a path leads, "" when it cannot be one: the tool will say so."""
        with suppress(ValueError, RuntimeError):
            return os.path.realpath(self.context.resolve(path))
        return ""

    def _running(self) -> str:
        """The jobs that run, by id."""
        return ", ".join(id for id, job in self.context.jobs.items() if job.process.running)


def row(change: Change, *, by: str = "") -> dict[str, Any]:
    """A change as the details of a result have it; `by` says whose it is where that is not the
    call's."""
    told: dict[str, Any] = {
        "path": change.path,
        "action": change.action,
        "added": change.added,
        "removed": change.removed,
    }
    return told | ({"blob": change.blob} if change.blob else {}) | ({"by": by} if by else {})


def _head(look: Look) -> str:
    branch, _, commit = look.head.rpartition(" ")
    return f"{branch} {commit[:7]}" if branch else look.head
