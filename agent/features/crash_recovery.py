"""Recovery after a kill: stop leftover processes, find changed files, notify the model and the
user.

If a session's process was killed during a call, processes of unfinished calls and background jobs
may still run: they are stopped. The files that unfinished calls changed are found by comparison
with the snapshot before them, because no result names these files. Both facts are recorded before
the turn continues, because the model does not know the outcome of such a call. A copy of a session
reports calls from before the copy only if the original process was killed during them.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Any

from ...tools.base import Tool
from ...tools.system import orphans
from ...tools.system.phrasing import count_of, one_line
from ..context.items import Call
from ..errors import RecordError, SessionError
from ..loop.file_changes import INTERRUPTED, MAX_CHANGES_IN_RESULT, change_row
from ..loop.interface import Feature
from ..loop.live_session import LiveSession
from ..session.archive import find_partial
from ..session.change_rows import content_key
from ..session.entries import (
    Assistant,
    Block,
    Checkpoint,
    End,
    Entry,
    Note,
    Session,
    ToolResult,
    User,
)
from ..session.ledger import Ledger
from ..session.listing import is_in_use
from ..session.lock import LOCK_NAME as LOCK
from ..session.log import LOG_NAME, Entries, find_entry
from ..session.since_point import is_changed
from ..session.store import locate_log
from ..worktree import WorkTree

KILLED_TOPIC = "killed"
SUBAGENT_TOOL = "Task"  # may change files through a subagent
NOT_BEGUN = "[not run: the agent was killed before this call started]"
MAX_ENTRIES_NEAR_CALL = 1_000  # searched before a call for its reply, and after for its result
MAX_LISTED_LINES = 20  # files, or commands, in the notice for the model
MAX_NAMED, MAX_NAME_CHARS = 3, 80  # calls, or files, in a line for the user


class CrashRecoveryFeature(Feature):
    """Records what a killed process left unfinished, and warns the user about it."""

    name = "crash-recovery"

    def __init__(
        self, session: LiveSession, tree: WorkTree, unrecorded: Sequence[Entry], *, resumed: bool
    ) -> None:
        """`unrecorded` are entries of subagents that a killed process left unfinished."""
        super().__init__(session)
        self._tree, self.unrecorded, self._resumed = tree, unrecorded, resumed

    def first_entries(self) -> Sequence[Entry]:
        """Return the entries about unfinished work."""
        if not self._resumed:
            return self.unrecorded
        session = self.session
        found = recover_from_kill(
            session.log.path, session.ledger, self._tree, session.tools, self.unrecorded
        )
        return [*self.unrecorded, *found]

    def recorded(self, entry: Entry) -> None:
        """Warn the user about the leftovers of a killed process."""
        if not isinstance(entry, Note) or entry.topic != KILLED_TOPIC:
            return
        if text := describe_leftovers(entry, self.session.ledger.display_path):
            self.session.notify("warning", text)


def recover_from_kill(
    path: Path,
    ledger: Ledger,
    tree: WorkTree,
    tools: Iterable[Tool[Any]],
    unrecorded: Sequence[Entry],
) -> list[Entry]:
    """Return the entries to record when the session with the log at `path` continues. Blocks.

    `unrecorded` are other entries that are recorded together with these. File changes that they
    name are not reported again.
    """
    ended, tools = _end_orphans(path), list(tools)
    found = _results_of_unbegun(path, tools)
    unbegun = {result.tool_use_id for result in found}
    calls, before = _unfinished_calls(path, _changing(tools), unbegun)
    if not (calls or ended):
        return [*found]
    rows = _changed_rows(before, ledger, tree, unrecorded) if before else []
    outputs = _partial_outputs(path.parent, calls)
    text = f"killed in the middle of {count_of(len(calls), 'call')}"
    text += f", which changed {count_of(len(rows), 'file')}"
    ids = [str(call.get("id")) for call in calls]
    data: dict[str, Any] = {"calls": ids, "ended": ended, "changes": rows[:MAX_CHANGES_IN_RESULT]}
    if len(rows) > MAX_CHANGES_IN_RESULT:
        data["changes_left_out"] = len(rows) - MAX_CHANGES_IN_RESULT
    entries: list[Entry] = [*found, Note(topic=KILLED_TOPIC, text=text, data=data)]
    if outputs:
        data["outputs"] = outputs
    words = _notice_text(
        ended, [f"{each['action']} {ledger.display_path(each['path'])}" for each in rows], outputs
    )
    return [*entries, User(content=words, source="notice")] if words else entries


def unknown_outcomes(path: Path, tools: Iterable[Tool[Any]]) -> list[str]:
    """Return a warning that names the interrupted calls that may have changed something, if any.
    Changes nothing.
    """
    tools = list(tools)
    unbegun = {result.tool_use_id for result in _results_of_unbegun(path, tools)}
    calls, _ = _unfinished_calls(path, _changing(tools), unbegun, with_snapshot=False)
    if not calls:
        return []
    its = "its outcome is" if len(calls) == 1 else "their outcomes are"
    named = _listed([f"`{_named(call)}`" for call in calls])
    return [f"killed before {named} had a result: {its} unknown"]


def describe_leftovers(found: Note, display_path: Callable[[str], str]) -> str:
    """Return a line for the user about the leftovers of a kill, from the recovery note, or ""."""
    parts = []
    if changes := found.data.get("changes"):
        paths = [display_path(str(each.get("path"))) for each in changes]
        parts.append(f"files that have changed since: {_listed(paths)}")
    if ended := found.data.get("ended"):
        commands = [f"`{one_line(command, MAX_NAME_CHARS)}`" for command in ended]
        parts.append(f"still running, now stopped: {_listed(commands)}")
    if outputs := found.data.get("outputs"):
        parts.append(f"output until the kill: {_listed(outputs)}")
    return "; ".join(parts)


def _results_of_unbegun(path: Path, tools: Iterable[Tool[Any]]) -> list[ToolResult]:
    """Return results for the calls of the newest reply that did not start. Calls run in order, and
    only adjacent read-only calls run in parallel. A copy of a session gets none, because the
    original may have continued.
    """
    left, _, (origin, _) = _newest_reply(path, None, with_snapshot=False)
    effects = {tool.wire_name: tool.effect for tool in tools}

    def is_harmless(call: Block) -> bool:
        return effects.get(str(call.get("name")), "none") in ("none", "read")

    begun = 1
    if left and is_harmless(left[0]):
        begun = next((n for n, call in enumerate(left) if not is_harmless(call)), len(left))
    details = {"interrupted": True, "not_run": True}
    return [
        ToolResult(tool_use_id=str(call.get("id")), content=NOT_BEGUN, is_error=True,
                   details=dict(details))
        for call in ([] if origin else left[begun:])
    ]  # fmt: skip


def _partial_outputs(folder: Path, calls: Sequence[Block]) -> list[str]:
    """Return the files with the output of unfinished calls."""
    found = (find_partial(folder, str(call.get("id"))) for call in calls)
    return [str(path) for path in found if path is not None]


def _changing(tools: Iterable[Tool[Any]]) -> set[str]:
    return {t.name for t in tools if t.effect in ("edit", "run") or t.name == SUBAGENT_TOOL}


def _named(call: Block) -> str:
    """Return a call as shown to the user: its tool and main argument."""
    given = call.get("input")
    name = str(call.get("name"))
    argument = Call("", 0, name, given if isinstance(given, dict) else {}).argument
    return one_line(f"{name} {argument}", MAX_NAME_CHARS)


def _listed(names: Sequence[str]) -> str:
    """Return the first names on one line, with the number of the others."""
    more = [f"{len(names) - MAX_NAMED:,} more"] if len(names) > MAX_NAMED else []
    return ", ".join([*names[:MAX_NAMED], *more])


def _end_orphans(path: Path) -> list[str]:
    """Stop the commands that still run, and return them."""
    project, session = locate_log(path)
    found = []
    for name in sorted(orphans.names(session)):
        place, _ = orphans.parts(name)
        command = _unfinished_command(project / "sessions" / place / LOG_NAME, name)
        if command is not None and orphans.end(name):
            found.append(command)
    return found


def _unfinished_command(path: Path, name: str) -> str | None:
    """Return the command of a background job or of a call without a result, else None.

    A call with a result left its process running on purpose. To keep long logs cheap, read only
    entries near the call.
    """
    session, number = orphans.parts(name)

    def is_it(id: str) -> bool:
        return orphans.call_name(session, number, id) == name

    for seq in range(number, min(_last_seq(path), number + MAX_ENTRIES_NEAR_CALL) + 1):
        entry = find_entry(path, seq)
        if isinstance(entry, End | Session) or _is_reply(entry):
            break  # the results of a reply come before them
        if isinstance(entry, ToolResult) and is_it(entry.tool_use_id):
            return str(entry.details.get("command")) if "job" in entry.details else None
    for seq in range(number - 1, max(0, number - MAX_ENTRIES_NEAR_CALL), -1):
        entry = find_entry(path, seq)
        for id, given in _tool_uses(entry) if isinstance(entry, Assistant) else ():
            if is_it(id):
                return str(given.get("command"))
    return None


def _is_reply(entry: Entry | None) -> bool:
    return isinstance(entry, Assistant) and entry.purpose == "turn"


def _last_seq(path: Path) -> int:
    with suppress(SessionError):
        return next((entry.seq for entry in reversed(Entries(path))), 0)
    return 0


def _tool_uses(entry: Assistant) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for block in entry.content:
        given = block.get("input")
        if block.get("type") == "tool_use":
            yield str(block.get("id")), given if isinstance(given, dict) else {}


def _unfinished_calls(
    path: Path,
    changing: Collection[str],
    unbegun: Collection[str],
    *,
    with_snapshot: bool = True,
) -> tuple[list[Block], str | None]:
    """Return the calls of the newest reply that started, may have changed something and have no
    result. Also return the newest snapshot before them, with `with_snapshot`.

    Turns that ended or were already recovered have no such calls.
    """
    calls, before, (origin, upto) = _newest_reply(path, changing, with_snapshot=with_snapshot)
    if calls and origin:
        original = path.parents[1] / origin / LOG_NAME
        if (
            is_in_use(original.with_name(LOCK))
            or _newest_reply(original, changing, upto, with_snapshot=False)[0] != calls
        ):
            return [], None
    calls = [call for call in calls if str(call.get("id")) not in unbegun]
    return (calls, before) if calls else ([], None)


def _newest_reply(
    path: Path, changing: Collection[str] | None, upto: float = inf, *, with_snapshot: bool = True
) -> tuple[list[Block], str | None, tuple[str, float]]:
    """Return the unfinished calls of the newest reply (of all tools, or of those in `changing`),
    the snapshot before them, and the origin of the session: (ID, seq of the last copied entry).

    The ID is "" if the session is not a copy. Ignore end entries and snapshots that were recorded
    after the session was reopened. Also ignore a recovery note after entry `upto`: a copy that ends
    at this entry does not have the note.
    """
    answered, before, ended = set[str](), None, False
    calls: list[Block] | None = None
    origin: tuple[str, float] = ("", inf)
    with suppress(SessionError):
        for entry in reversed(Entries(path)):
            if isinstance(entry, Note) and entry.topic == KILLED_TOPIC:
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
                calls = [b for b in left if changing is None or b.get("name") in changing]
                calls = [] if ended else calls
            if calls is not None and (before or not calls or not with_snapshot):
                break
    return calls or [], before, origin


def _changed_rows(
    before: str, ledger: Ledger, tree: WorkTree, unrecorded: Sequence[Entry]
) -> list[dict[str, Any]]:
    """Return the file changes since the snapshot that the session did not make itself."""
    known = dict(ledger.contents)
    for entry in unrecorded:
        rows = entry.data.get("changes", ()) if isinstance(entry, Note) else ()
        known |= {each["path"]: content_key(each) for each in rows if content_key(each)}
    with suppress(RecordError):  # raised if the snapshot is gone
        if now := tree.snapshot().tree:
            return [
                change_row(change, by=INTERRUPTED)
                for change in tree.compare(before, now)
                if change.path not in known or is_changed(change.path, known[change.path])
            ]
    return []


def _notice_text(ended: Sequence[str], changed: Sequence[str], outputs: Sequence[str]) -> str:
    """Return the notice for the model, or "" if there is nothing to report."""
    parts = []
    if outputs:
        parts.append("What the unfinished calls had printed by then is in these files:")
        parts += _bullets(outputs)
    if changed:
        parts.append("Files that are not as they were before the calls without a result:")
        parts += _bullets(changed)
    if ended:
        parts.append("These commands still ran, and have been ended:")
        parts += _bullets([" ".join(command.split())[:200] for command in ended])
    return "\n".join(["The agent was killed in the middle of its work.", *parts]) if parts else ""


def _bullets(lines: Sequence[str]) -> list[str]:
    more = (
        [f"- and {len(lines) - MAX_LISTED_LINES:,} more"] if len(lines) > MAX_LISTED_LINES else []
    )
    return [*(f"- {line}" for line in lines[:MAX_LISTED_LINES]), *more]
