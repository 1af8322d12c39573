"""/checkpoint, /rewind and /undo: restore the conversation, the files or both to a turn or
checkpoint, and restore data that the git repository has lost since.

The log is never cut: an earlier conversation continues in a copy of the session. The current files
are saved before they are changed.
"""

import asyncio
from collections.abc import Coroutine, Reversible, Sequence
from datetime import datetime
from itertools import takewhile
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....tools.system.phrasing import count_of, one_line
from ...errors import CtxagentError, UsageError
from ...extensions.command import command
from ...lazy import dataclass
from ..screen import Menu, Option
from . import completions
from .command_context import CommandContext
from .tasks import end_tasks

if TYPE_CHECKING:
    from ...loop.agent import AgentState
    from ...session.checkpoints import RestorePlan, RewindDifference, RewindPoint
    from ...session.entries import Entry
    from ...session.since_point import FactsSincePoint
    from ...worktree import TreeChange
    from ...worktree.repository_restore import LostItems

CANCEL_RETRY_S = 0.1  # interval to check whether an interrupt can be passed on
MAX_LISTED_FILES = 20
MAX_LISTED_FILES_FOR_MODEL = 100
MAX_MESSAGE_CHARS = 60  # of a message in a list
CHOICES = ("conversation", "files", "both", "repository")
EFFECTS = {  # of each choice, as the confirmation names it
    "conversation": "rewind the conversation",
    "files": "restore the files",
    "both": "rewind the conversation and the files",
    "repository": "restore the repository",
}
CHECKING_FILES = "checking the files"
MAX_LISTED_COMMANDS = 5
RESTORE_LIMITS = (
    "Files that are ignored, over 10 MB or outside the project are restored only if Edit, Write or "
    "a command that names them changed them."
)
CHANGED_ELSEWHERE = "not restored, because another session changed them since"
NOT_RECORDED = "not restored, because they may have existed then and their content was not saved"
NO_LONGER_KEPT = (
    "not restored, because that version is no longer kept (only the newest two versions of a file "
    "over 1 MB are)"
)
NEVER_SAVED = "not restored, because the content was not saved before the change"
NOT_SAVED = "not restored, because their current content could not be saved first"
NOTHING_RESTORABLE = "no file can be restored; these may have existed then, but were not saved"
UNCERTAIN_ORIGIN = (
    "would be restored too, though this session may not have changed them (you, another "
    "program, or a command while it ran)"
)


@command(
    "save the current state, to return to it later", argument="[WORDS]", group="files and work"
)
async def _checkpoint(repl: CommandContext, argument: str) -> None:
    agent = repl.agent
    agent.log.check_writable()
    name = " ".join(argument.split())
    repl.show_activity(CHECKING_FILES)
    try:
        await agent.begin()  # creates the log before the first turn
        taken = await agent.engine.host.take_checkpoint(f"by hand: {name}" if name else "by hand")
    finally:
        repl.show_activity("")
    if taken is None:
        raise CtxagentError(
            "no checkpoint was taken", hint="Try again; `ctxagent doctor` checks the disk."
        )
    lines = [f"checkpoint {taken.number}: {agent.folder / taken.path}"]
    if limits := agent.checkpoints.limits:
        lines.append(f"{'not all' if taken.snapshot else 'without the'} files: {limits}")
    lines.append(f"/rewind {taken.number} returns to it. {RESTORE_LIMITS}")
    repl.say("\n".join(lines))


@dataclass(frozen=True, slots=True)
class _RewindPlan:
    """The effects of rewinding to a point."""

    point: "RewindPoint"
    turns: int  # turns that would be left out
    conversation_objection: str  # why the conversation cannot go back, "" if it can
    files_objection: str  # why the files cannot go back, "" if they can
    difference: "RewindDifference | None" = None  # of the files, if known
    since: "FactsSincePoint | None" = None  # log facts since the point, if files may have changed
    lost: "Sequence[LostItems]" = ()  # data lost by the git repository
    repository_objection: str = ""  # why the repository cannot be restored, "" if it can
    no_longer_kept: "Sequence[str]" = ()  # changed files whose saved version was dropped

    def objection(self, choice: str) -> str:
        """Return why a choice is impossible, "" if it is possible."""
        if choice == "repository":
            return self.repository_objection
        conversation_objection = "" if choice == "files" else self.conversation_objection
        unchanged = self.difference and self.lost and choice == "both"
        files_objection = "" if choice == "conversation" or unchanged else self.files_objection
        return conversation_objection or files_objection

    def choices(self) -> list[str]:
        """Return the possible choices."""
        return [choice for choice in CHOICES if not self.objection(choice)]


@command(
    "go back: conversation, files, or both",
    argument="[N [WHAT]]",
    complete=completions.points,
    group="conversation",
)
async def _rewind(repl: CommandContext, argument: str) -> None:
    from ...session.checkpoints import rewind_points

    repl.agent.log.check_writable()
    found = await asyncio.to_thread(rewind_points, repl.agent.log.entries())
    if not found and not argument:
        repl.say("there is nothing to rewind to yet: this session is empty")
        return
    if not argument:
        option = await repl.screen.pick(_menu(found))
        if option is None:
            return
        argument = option.key
    point, choice = _parse(argument, found)
    plan = await _plan_with_progress(repl, point, found)
    if choice and (objection := plan.objection(choice)):
        raise UsageError(objection, hint="/rewind lists the points and their content.")
    await _confirm_and_rewind(repl, plan, choice)


@command("undo the last turn: its messages and its file changes", group="conversation")
async def _undo(repl: CommandContext, argument: str) -> None:
    from ...session.checkpoints import rewind_points

    repl.agent.log.check_writable()
    found = await asyncio.to_thread(rewind_points, repl.agent.log.entries())
    turn = next((point for point in found if not (point.path or point.mid_turn)), None)
    if turn is None:
        raise UsageError("there is no turn to undo", hint="/rewind lists other points.")
    plan = await _plan_with_progress(repl, turn, found)
    await _confirm_and_rewind(repl, plan, "conversation" if plan.objection("both") else "both")


async def _plan_with_progress(
    repl: CommandContext, point: "RewindPoint", found: "Sequence[RewindPoint]"
) -> _RewindPlan:
    """Plan a rewind to a point. Show a progress message, because this takes a moment."""
    repl.show_activity(CHECKING_FILES)
    try:
        return await _plan(repl.agent, point, found)
    finally:
        repl.show_activity("")


async def _confirm_and_rewind(repl: CommandContext, plan: _RewindPlan, choice: str) -> None:
    """Show the effects of a rewind, ask for confirmation, and rewind. If `choice` is empty, the
    question also asks what to rewind.
    """
    _show(repl, plan, with_files=choice != "conversation")
    confirmed = await _confirm(repl, plan, choice)
    if not confirmed:
        repl.say("nothing has changed")
        return

    async def rewind() -> None:
        if confirmed == "both":  # tasks end with the session, and could write to restored files
            await end_tasks(repl.agent)
        if confirmed in ("files", "both") and not plan.files_objection:
            await _restore_files(repl, plan, leaves_session=confirmed == "both")
        if confirmed != "conversation" and plan.lost:
            await _restore_repository(repl, plan)
        if confirmed in ("conversation", "both"):
            await _rewind_conversation(repl, plan, files_too=confirmed == "both")

    repl.show_activity("rewinding")
    try:
        await _finish_despite_interrupt(repl, rewind())
    finally:
        repl.show_activity("")


def _parse(argument: str, found: "Sequence[RewindPoint]") -> "tuple[RewindPoint, str]":
    """Return the point and the choice in the argument; "" if it has no choice."""
    number, _, rest = argument.partition(" ")
    word = rest.strip().lower()
    choices = [name for name in CHOICES if word and name.startswith(word)]
    if word and not choices:
        raise UsageError(
            f"/rewind does not take {rest.strip()!r}", hint=f"One of {', '.join(CHOICES)}."
        )
    for point in found:
        if str(point.number) == number:
            return point, choices[0] if choices else ""
    raise UsageError(f"there is no point {number}", hint="/rewind lists them.")


async def _plan(
    agent: "AgentState", point: "RewindPoint", found: "Sequence[RewindPoint]"
) -> _RewindPlan:
    """Find the effects of rewinding to a point."""
    later = [other for other in found if not other.path and other.seq >= point.seq]
    turns = sum(not other.mid_turn for other in later)
    has_continued = bool(later) or await asyncio.to_thread(
        _has_replied, agent.log.entries(), point.seq
    )
    conversation_objection = "" if has_continued else "the conversation has not continued since"
    if not point.changed:
        files_objection = "this session has not changed files since"
        return _RewindPlan(
            point,
            turns,
            conversation_objection,
            files_objection,
            repository_objection=files_objection,
        )
    way, since = await asyncio.to_thread(_restore_sources, agent, point)
    repository = await asyncio.to_thread(_lost, agent, point)
    gone = await asyncio.to_thread(agent.checkpoints.no_longer_kept, way)
    try:
        difference = await asyncio.to_thread(agent.checkpoints.difference, way)
    except CtxagentError as error:
        why = ". ".join(filter(None, (error.message, error.hint)))
        files_objection = f"the files cannot be restored: {why}"
        return _RewindPlan(
            point, turns, conversation_objection, files_objection, None, since, *repository, gone
        )
    files_objection = "" if difference.changes else "the files have not changed since"
    if (difference.staying or gone) and not difference.changes:
        files_objection = "no other files have changed since"
    if difference.unknown and not difference.changes:
        files_objection = f"{NOTHING_RESTORABLE}: {_listed(agent, difference.unknown)}"
    return _RewindPlan(
        point, turns, conversation_objection, files_objection, difference, since, *repository, gone
    )


def _lost(agent: "AgentState", point: "RewindPoint") -> "tuple[Sequence[LostItems], str]":
    """Return the data lost by the git repository since a point, and why it cannot be restored."""
    if not point.repository:
        return (), "the git repository was not recorded at this point"
    try:
        lost = agent.checkpoints.restorer.lost(point.repository)
        return lost, "" if lost else "the git repository has lost nothing since"
    except CtxagentError as error:
        return (), error.message


def _restore_sources(
    agent: "AgentState", point: "RewindPoint"
) -> "tuple[RestorePlan, FactsSincePoint]":
    """Return the files to restore for a point, and what changed since the point, from the log and
    the change records.
    """
    from ...session.checkpoints import RestorePlan
    from ...session.since_point import read_facts_since, read_lineage

    entries, tracker = agent.log.entries(), agent.runner.change_tracker
    since, others = read_facts_since(entries, point.seq), frozenset[str]()
    if tracker is not None and tracker.record is not None:
        line = read_lineage(entries, agent.folder.name)
        touches = tracker.record.others(_nanoseconds(point.at))
        until = _nanoseconds(line.until) if line.until else inf
        others = touches.without(line.sessions, until).paths
    return RestorePlan(point, since.saved, others), since


def _nanoseconds(at: str) -> int:
    try:
        return int(datetime.fromisoformat(at).timestamp() * 1e9)
    except (ValueError, OverflowError):  # an entry without a valid time
        return 0


def _has_replied(entries: "Reversible[Entry]", since: int) -> bool:
    """Return True if the log has an agent reply after entry `since`."""
    from ...session.entries import Assistant

    later = takewhile(lambda entry: entry.seq > since, reversed(entries))
    return any(isinstance(entry, Assistant) and entry.purpose == "turn" for entry in later)


def _show(repl: CommandContext, plan: _RewindPlan, *, with_files: bool) -> None:
    point = plan.point
    before = "" if point.path else "before: "
    repl.say(f"back to point {point.number}, {before}{_title(point)}")
    if with_files:
        _show_files(repl, plan)
        for line in [line for lost in plan.lost for line in lost.describe()]:
            repl.say(f"git repository, would be restored: {line}")
    for why in filter(
        None, (plan.files_objection if with_files else "", plan.conversation_objection)
    ):
        repl.say(why)
    if not plan.conversation_objection:
        what = "the rest of its turn"
        if plan.turns:
            what = count_of(plan.turns, "turn")
        repl.say(f"conversation: {what} would be left out; this session stays, for /resume")
    if running := repl.conversation.background_tasks:
        ids = ", ".join(task.id for task in running)
        text = f"{ids} is still running: it may write to restored files, and "
        repl.notify("warning", f"{text}ends when the conversation is rewound")


def _show_files(repl: CommandContext, plan: _RewindPlan) -> None:
    """Show which files would be restored, and which would not."""
    from ..render import diffs

    if plan.difference and not plan.files_objection:
        changes = _describe_changes(repl.agent, plan.difference.changes, "would be ")
        repl.put(diffs.diff(plan.difference.diff, fold=True))
        repl.say(f"files that {changes}")
        own = plan.since.own if plan.since else frozenset()
        if uncertain := [c.path for c in plan.difference.changes if c.path not in own]:
            repl.notify("warning", f"{UNCERTAIN_ORIGIN}: {_listed(repl.agent, uncertain)}")
        repl.say(RESTORE_LIMITS)
    if plan.difference and plan.difference.staying:
        repl.say(f"{CHANGED_ELSEWHERE}: {_listed(repl.agent, plan.difference.staying)}")
    if plan.difference and plan.difference.unknown:
        repl.say(f"{NOT_RECORDED}: {_listed(repl.agent, plan.difference.unknown)}")
    if plan.no_longer_kept:
        repl.notify("warning", f"{NO_LONGER_KEPT}: {_listed(repl.agent, plan.no_longer_kept)}")
    if plan.since and plan.point.snapshot is not None:
        for why, paths in plan.since.unsaved_by_reason.items():
            repl.notify("warning", f"{NEVER_SAVED} ({why}): {_listed(repl.agent, paths)}")
    if plan.since and plan.point.snapshot is None:
        _show_unseen(repl, plan.since)
    elif plan.since and (limits := repl.agent.checkpoints.limits):
        repl.notify("warning", f"not all files can be restored: {limits}")


def _show_unseen(repl: CommandContext, since: "FactsSincePoint") -> None:
    """Show which changes a rewind without a snapshot does not undo."""
    limits = repl.agent.checkpoints.limits or "there is no snapshot of the files"
    repl.notify("warning", f"only files saved before an edit can be restored: {limits}")
    if since.not_saved:
        repl.say(f"changed, and not saved: {_listed(repl.agent, since.not_saved)}")
    if since.commands:
        shown = [f"`{one_line(each, MAX_MESSAGE_CHARS)}`" for each in since.commands]
        more = len(shown) - MAX_LISTED_COMMANDS
        named = ", ".join([*shown[:MAX_LISTED_COMMANDS], *([f"+{more:,}"] if more > 0 else [])])
        repl.say(f"changes by these commands to files they do not name are not undone: {named}")


async def _confirm(repl: CommandContext, plan: _RewindPlan, choice: str) -> str:
    """Ask the user what to rewind, and return the choice, "" for nothing."""
    possible = plan.choices()
    if not possible:
        return ""
    if choice:
        answer = await repl.questions.choose(f"[y]es, {EFFECTS[choice]} · [n]o · Enter: no", "yn")
        return choice if _letter(answer) == "y" else ""
    names = [*possible, "no"]
    prompt = " · ".join(f"[{name[0]}]{name[1:]}" for name in names) + " · Enter: no"
    letter = _letter(await repl.questions.choose(prompt, "".join(name[0] for name in names)))
    return next((name for name in possible if name[0] == letter), "")


def _letter(answer: str) -> str:
    """Return the letter of the choice that was answered by its letter or its word."""
    word = answer.strip().lower().rstrip(".!")
    return word[:1] if len(word) == 1 or word in ("yes", "no", *CHOICES) else ""


async def _finish_despite_interrupt(repl: CommandContext, work: Coroutine[Any, Any, None]) -> None:
    """Await work that must not stop halfway, even if it is interrupted.

    Once the copy is open, an interrupt only cuts short the closing of the previous session.
    """
    task, left, interrupted = asyncio.ensure_future(work), repl.session, False
    while not task.done():
        try:
            await asyncio.wait({task}, timeout=CANCEL_RETRY_S if interrupted else None)
        except asyncio.CancelledError:
            interrupted = True
        if interrupted and repl.session != left:
            interrupted = False
            task.cancel()
    task.result()


async def _restore_files(repl: CommandContext, plan: _RewindPlan, *, leaves_session: bool) -> None:
    """Save the current files, announce the changes to the model, restore the files, and record it.
    With `leaves_session` the conversation then continues in a copy that lacks the saved point.
    """
    from ...session.checkpoints import BEFORE_REWIND_TRIGGER
    from ...session.entries import User

    agent, point = repl.agent, plan.point
    way, _ = await asyncio.to_thread(_restore_sources, agent, point)
    await asyncio.to_thread(agent.checkpoints.check_restorable, way)
    kept = await agent.engine.host.take_checkpoint(BEFORE_REWIND_TRIGGER)
    if kept is None or (kept.snapshot is None and point.snapshot is not None):
        raise CtxagentError(
            f"the current files cannot be saved: {agent.checkpoints.limits}",
            hint="Rewind the conversation only, or free disk space.",
        )
    held = await asyncio.to_thread(agent.checkpoints.add_overwritten_files, way, kept)
    if held != kept:
        agent.record(held)
    if agent.runner.change_tracker:
        unsaved = await agent.runner.change_tracker.save_before_rewind(way.saved)
        whole, way = way, await asyncio.to_thread(agent.checkpoints.exclude, way, unsaved)
        if left := sorted(way.stay - whole.stay):
            repl.notify("warning", f"{NOT_SAVED}: {_listed(agent, left)}")
    difference = await asyncio.to_thread(agent.checkpoints.difference, way, held.snapshot)
    changes: Sequence[TreeChange] = difference.changes
    _forget_files(agent, changes)
    text = _warn_model(agent, "The user takes files back to an earlier state.", changes)
    agent.record(User(content=text, source="notice"))
    resume = f"/resume {repl.session}, then " if leaves_session else ""
    undo_hint = f"to undo this: {resume}/rewind {kept.number} files"
    try:
        changes = await asyncio.to_thread(agent.checkpoints.restore, way)
    except CtxagentError as error:
        changes = await asyncio.to_thread(agent.checkpoints.changes_done, way, held, changes)
        _record_rewind(agent, point, kept.number, changes, error.message)
        done = _describe_changes(agent, changes) or "nothing has changed"
        raise CtxagentError(f"{error.message}; {done}", hint=undo_hint.capitalize()) from error
    repl.say(_describe_changes(agent, changes))
    repl.say(undo_hint)
    _record_rewind(agent, point, kept.number, changes)


async def _restore_repository(repl: CommandContext, plan: _RewindPlan) -> None:
    """Restore the lost data of the git repository, announce it to the model, and record it."""
    from ...session.entries import Note, User

    agent, point = repl.agent, plan.point
    done = await asyncio.to_thread(agent.checkpoints.restorer.restore, point.repository)
    lines = [line for each in done for line in each.describe()]
    repl.say("\n".join(f"git repository, restored: {line}" for line in lines))
    text = "\n".join(["The user restores what the git repository had lost:", *lines])
    agent.record(User(content=text, source="notice"))
    data = {"point": point.number, "changes": [], "repository": lines}
    agent.record(Note(topic="rewind", text=f"git repository as at point {point.number}", data=data))


def _record_rewind(
    agent: "AgentState",
    point: "RewindPoint",
    before: int,
    changes: "Sequence[TreeChange]",
    error: str = "",
) -> None:
    """Record which files were restored, and the error if not all were."""
    from ...session.entries import Note

    rows = [{"path": change.path, "action": change.action} for change in changes]
    if agent.runner.change_tracker:
        agent.runner.change_tracker.report_to_others(changes)
    data: dict[str, Any] = {"point": point.number, "before": before, "changes": rows}
    text = f"files as at point {point.number}"
    if error:
        text, data["error"] = f"not all {text}: {error}", error
    agent.record(Note(topic="rewind", text=text, data=data))


async def _rewind_conversation(repl: CommandContext, plan: _RewindPlan, *, files_too: bool) -> None:
    """Continue in a copy of the session that ends at the point."""
    from ...session.checkpoints import TURN_TRIGGER
    from ...session.entries import User
    from ...session.since_point import EDIT, saved_note

    point, left = plan.point, repl.session
    await repl.switch_session(resume=repl.copy_session(point.seq))
    agent, difference = repl.agent, plan.difference
    if point.changed and point.trigger == TURN_TRIGGER and point.number > 1:
        agent.record(agent.checkpoints.copied_snapshot(point))
    if plan.since and plan.since.saved and not files_too:
        agent.record(saved_note(plan.since.saved.values(), EDIT))
    if difference and difference.changes and not files_too and agent.view.items:
        what = "The user has taken the conversation back to here, but not the files."
        text = _warn_model(agent, what, difference.changes)
        agent.record(User(content=text, source="notice"))
    before = "before that message" if point.mid_turn else "before that turn"
    where = before if point.trigger == TURN_TRIGGER else "at that checkpoint"
    note = f"this is a copy that ends {where}; what came later: /resume {left}"
    repl.notify("info", note)
    if point.trigger == TURN_TRIGGER:
        repl.screen.restore(point.words)


def _forget_files(agent: "AgentState", changes: "Sequence[TreeChange]") -> None:
    """Forget that changed files were read, so that they must be read again before an edit."""
    gone = {Path(change.path).resolve() for change in changes}
    digests = agent.context.seen.digests
    for path in [path for path in digests if Path(path).resolve() in gone]:
        del digests[path]


def _warn_model(agent: "AgentState", what: str, changes: "Sequence[TreeChange]") -> str:
    """Return a message to the model that lists files that may differ from what it read."""
    paths = [agent.context.shown(Path(change.path)) for change in changes]
    lines = [f"- {path}" for path in paths[:MAX_LISTED_FILES_FOR_MODEL]]
    if others := paths[MAX_LISTED_FILES_FOR_MODEL:]:
        lines.append(f"… and {len(others):,} more")
    head = f"{what} Before you rely on these files, read them: they may have changed."
    return "\n".join([head, *lines])


def _listed(agent: "AgentState", paths: "Sequence[str]") -> str:
    """Return the first MAX_LISTED_FILES paths as text."""
    shown = [agent.context.shown(Path(path)) for path in paths[:MAX_LISTED_FILES]]
    more = len(paths) - MAX_LISTED_FILES
    return ", ".join([*shown, *([f"… +{more:,}"] if more > 0 else [])])


def _describe_changes(
    agent: "AgentState", changes: "Sequence[TreeChange]", prefix: str = ""
) -> str:
    """Return a text that lists the written and the removed files."""
    parts = []
    for verb, removed in (("written", False), ("removed", True)):
        if paths := [c.path for c in changes if (c.action == "deleted") is removed]:
            parts.append(f"{prefix}{verb}: {_listed(agent, paths)}")
    return " · ".join(parts)


def _menu(found: "Sequence[RewindPoint]") -> Menu:
    options = []
    for point in found:
        files = "with files" if point.snapshot else "without files"
        facts = (f"{point.number}", _when(point.at), files if point.changed else "unchanged since")
        options.append(Option(str(point.number), _title(point), facts))
    return Menu(
        title="Go back to",
        load=lambda scope: iter([options]),
        action="show what would change",
        empty_text="there is nothing to rewind to yet",
    )


def _title(point: "RewindPoint") -> str:
    """Return the message after a turn's point, or a checkpoint's trigger and previous message."""
    from ...compaction.history import readable_trigger

    words = one_line(point.words, MAX_MESSAGE_CHARS)
    if not point.path:
        return f"while it worked: {words}" if point.mid_turn else words
    after = f"after: {words}" if words else "before the first turn"
    return f"checkpoint {readable_trigger(point.trigger)}, {after}"


def _when(at: str) -> str:
    """Return the time of day, with the date if it is not today."""
    try:
        then = datetime.fromisoformat(at).astimezone()
    except (ValueError, OverflowError):  # an entry without a valid time
        return "–"
    return f"{then:%H:%M}" if then.date() == datetime.now().date() else f"{then:%d %b %H:%M}"
