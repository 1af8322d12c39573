"""The aftermath: what a process that was killed in the middle of a call has left behind.

A session that goes on after that ends what still runs of its unfinished calls and background jobs,
as leaving it in good order would have, and finds the files that the unfinished calls have changed,
by what the files were before: no result tells of them. Both are recorded before the turn goes on,
and the model is told, for all that it knows of such a call is that its outcome is unknown. A copy
of a session tells of the calls that it was copied with only if those of the original were killed.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Any

from ..tools import leftovers
from ..tools.base import Tool
from .changes import INTERRUPTED, MOST, row
from .errors import RecordError, SessionError
from .record.entries import (
    Assistant,
    Checkpoint,
    End,
    Entry,
    Note,
    Session,
    ToolResult,
    User,
)
from .record.ledger import Ledger
from .record.listing import in_use
from .record.lock import NAME as LOCK
from .record.log import NAME, Entries, find
from .record.rows import content_of
from .record.sessions import placed
from .record.stale import is_changed
from .record.worktree import WorkTree

TOPIC = "killed"
AGENT = "Task"  # whose subagents do what changes something
AROUND = 1_000  # entries before a call among which its reply is, and after it its result
NAMED = 20  # files, or commands, that the model is told of


def aftermath(
    path: Path, ledger: Ledger, tree: WorkTree, tools: Iterable[Tool[Any]], told: Sequence[Entry]
) -> list[Entry]:
    """What must be recorded when the session of the log at `path` goes on. `told` are entries that
    are recorded with these and tell of changes too. Blocking."""
    changing = {t.name for t in tools if t.effect in ("edit", "run") or t.name == AGENT}
    ended = _ended(path)
    calls, before = _unfinished(path, changing)
    if not (calls or ended):
        return []
    rows = _changed(before, ledger, tree, told) if before else []
    text = f"killed in the middle of {len(calls)} calls, which changed {len(rows)} files"
    data: dict[str, Any] = {"calls": calls, "ended": ended, "changes": rows[:MOST]}
    if len(rows) > MOST:
        data["changes_left_out"] = len(rows) - MOST
    found: list[Entry] = [Note(topic=TOPIC, text=text, data=data)]
    words = _words(ended, [f"{each['action']} {ledger.shown(each['path'])}" for each in rows])
    return [*found, User(content=words, source="notice")] if words else found


def _ended(path: Path) -> list[str]:
    """The commands, by their calls, that still ran and have been ended."""
    project, session = placed(path)
    found = []
    for name in sorted(leftovers.names(session)):
        place, _ = leftovers.parts(name)
        command = _left(project / "sessions" / place / NAME, name)
        if command is not None and leftovers.end(name):
            found.append(command)
    return found


def _left(path: Path, name: str) -> str | None:
    """The command of a call that has no result, or a job in the background as its result; None for
    one that came to its end and left something running on purpose. Looks only at what stands near
    the call, however long the log is."""
    session, number = leftovers.parts(name)

    def is_it(id: str) -> bool:
        return leftovers.call_name(session, number, id) == name

    for seq in range(number, min(_last(path), number + AROUND) + 1):
        entry = find(path, seq)
        if isinstance(entry, End | Session) or _is_reply(entry):
            break  # the results of a reply come before them
        if isinstance(entry, ToolResult) and is_it(entry.tool_use_id):
            return str(entry.details.get("command")) if "job" in entry.details else None
    for seq in range(number - 1, max(0, number - AROUND), -1):
        entry = find(path, seq)
        for id, given in _calls(entry) if isinstance(entry, Assistant) else ():
            if is_it(id):
                return str(given.get("command"))
    return None


def _is_reply(entry: Entry | None) -> bool:
    return isinstance(entry, Assistant) and entry.purpose == "turn"


def _last(path: Path) -> int:
    with suppress(SessionError):
        return next((entry.seq for entry in reversed(Entries(path))), 0)
    return 0


def _calls(entry: Assistant) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for block in entry.content:
        given = block.get("input")
        if block.get("type") == "tool_use":
            yield str(block.get("id")), given if isinstance(given, dict) else {}


def _unfinished(path: Path, changing: Collection[str]) -> tuple[list[str], str | None]:
    """The calls of the newest reply that may have changed something and have no result, unless
    their turn ended or this was looked into before; and the newest snapshot, which was taken before
    they ran."""
    calls, before, (origin, upto) = _newest(path, changing)
    if calls and origin:
        original = path.parents[1] / origin / NAME
        if in_use(original.with_name(LOCK)) or _newest(original, changing, upto)[0] != calls:
            return [], None
    return (calls, before) if calls else ([], None)


def _newest(
    path: Path, changing: Collection[str], upto: float = inf
) -> tuple[list[str], str | None, tuple[str, float]]:
    """Those calls, that snapshot, and the session that they were copied from, "" for none, with
    the number of the last entry copied. What came after the session had been opened again neither
    ended their turn nor preceded them. That this was looked into after entry `upto` is passed
    over: a copy that ends there does not know it."""
    answered, before, ended = set[str](), None, False
    calls: list[str] | None = None
    origin: tuple[str, float] = ("", inf)
    with suppress(SessionError):
        for entry in reversed(Entries(path)):
            if isinstance(entry, Note) and entry.topic == TOPIC:
                if entry.seq > upto:
                    continue
                break
            if isinstance(entry, Session) and calls is None:
                ended, before = False, None
                if entry.parent:
                    origin = (str(entry.parent.get("id", "")), entry.parent.get("seq", inf))
            elif isinstance(entry, End):
                ended = True
            elif isinstance(entry, ToolResult):
                answered.add(entry.tool_use_id)
            elif isinstance(entry, Checkpoint):
                before = before or entry.snapshot
            elif isinstance(entry, Assistant) and entry.purpose == "turn" and calls is None:
                uses = [b for b in entry.content if b.get("type") == "tool_use"]
                left = [b for b in uses if str(b.get("id")) not in answered]
                calls = [str(b.get("id")) for b in left if b.get("name") in changing]
                calls = [] if ended else calls
            if calls is not None and (before or not calls):
                break
    return calls or [], before, origin


def _changed(
    before: str, ledger: Ledger, tree: WorkTree, told: Sequence[Entry]
) -> list[dict[str, Any]]:
    """The files that are not as they were, nor as the session knows that it has left them."""
    known = dict(ledger.contents)
    for entry in told:
        rows = entry.data.get("changes", ()) if isinstance(entry, Note) else ()
        known |= {each["path"]: content_of(each) for each in rows if content_of(each)}
    with suppress(RecordError):  # what it was is not kept any more
        if now := tree.snapshot().tree:
            return [
                row(change, by=INTERRUPTED)
                for change in tree.compare(before, now)
                if change.path not in known or is_changed(change.path, known[change.path])
            ]
    return []


def _words(ended: Sequence[str], changed: Sequence[str]) -> str:
    """What the model is told; "" where there is nothing to tell."""
    parts = []
    if changed:
        parts.append("Files that are not as they were before the calls without a result:")
        parts += _listed(changed)
    if ended:
        parts.append("These commands still ran, and have been ended:")
        parts += _listed([" ".join(command.split())[:200] for command in ended])
    return "\n".join(["The agent was killed in the middle of its work.", *parts]) if parts else ""


def _listed(lines: Sequence[str]) -> list[str]:
    more = [f"- and {len(lines) - NAMED:,} more"] if len(lines) > NAMED else []
    return [*(f"- {line}" for line in lines[:NAMED]), *more]
