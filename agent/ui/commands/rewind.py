"""/checkpoint and /rewind: take the conversation, the files or both back to a turn or a checkpoint,
and restore what the git repository has lost since.

The log is never cut: an earlier conversation goes on in a copy of the session. The files as they
are now are kept before they are touched.
"""

import asyncio
from collections.abc import Coroutine, Reversible, Sequence
from datetime import datetime
from itertools import takewhile
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....tools.system.plural import count_of
from ....tools.system.shorten import one_line
from ...errors import CtxagentError, UsageError
from ...lazy import dataclass
from ..menu import Menu, Option
from . import completions
from .command_context import CommandContext
from .registry import command
from .tasks import end_tasks

if TYPE_CHECKING:
    from ...loop.agent import AgentState
    from ...session.checkpoints import RewindDifference, RewindPoint, WayBack
    from ...session.entries import Entry
    from ...session.since_point import SincePoint
    from ...worktree import TreeChange
    from ...worktree.repository_restore import LostItems

CANCEL_RETRY_S = 0.1  # between two looks at whether an interrupt can be passed on
MAX_LISTED_FILES = 20
MAX_LISTED_FILES_FOR_MODEL = 100
MAX_WORDS_CHARS = 60  # of a turn's words in a list
CHOICES = ("conversation", "files", "both", "repository")
LOOKING = "looking at the files"
MAX_LISTED_COMMANDS = 5
UNTOUCHED = (
    "Files that are ignored, over 10 MB or outside of the project go back only if Edit, Write or a "
    "command that names them changed them."
)
STAYING = "changed by another session since, and left as they are"
UNKNOWN = "left as they are, because they may have existed then and their content was not saved"
NOT_SAVED = "left as they are, because they could not be saved before they change"
NOTHING_KNOWN = "no file can go back; these may have existed then, and their content was not saved"
UNCERTAIN = (
    "would go back too, though this session is not known to have changed them (you, another "
    "program, or a command while it ran)"
)


@command("save the current state, to come back to", argument="[WORDS]", group="files and work")
async def _checkpoint(repl: CommandContext, argument: str) -> None:
    agent = repl.agent
    agent.log.check_writable()
    words = " ".join(argument.split())
    repl.doing(LOOKING)
    try:
        await agent.begin()  # before the first turn there is no log yet
        taken = await agent.engine.host.take_checkpoint(f"by hand: {words}" if words else "by hand")
    finally:
        repl.doing("")
    if taken is None:
        raise CtxagentError("no checkpoint was taken")
    lines = [f"checkpoint {taken.number}: {agent.folder / taken.path}"]
    if limits := agent.checkpoints.limits:
        lines.append(f"{'not all' if taken.snapshot else 'without the'} files: {limits}")
    lines.append(f"/rewind {taken.number} comes back to it. {UNTOUCHED}")
    repl.say("\n".join(lines))


@dataclass(frozen=True, slots=True)
class _RewindPlan:
    """The effects of going back to a point."""

    point: "RewindPoint"
    turns: int  # that would go
    no_conversation: str  # why the conversation cannot go back, "" if it can
    no_files: str  # why the files cannot go back, "" if they can
    difference: "RewindDifference | None" = None  # of the files, if that is known
    since: "SincePoint | None" = None  # what the log says since, if files may have changed
    lost: "Sequence[LostItems]" = ()  # by the git repository
    no_repository: str = ""  # why the repository cannot be restored, "" if it can

    def objection(self, choice: str) -> str:
        """Return why a choice is impossible, "" if it is possible."""
        if choice == "repository":
            return self.no_repository
        no_conversation = "" if choice == "files" else self.no_conversation
        unchanged = self.difference and self.lost and choice == "both"
        no_files = "" if choice == "conversation" or unchanged else self.no_files
        return no_conversation or no_files

    def choices(self) -> list[str]:
        """Return the choices that are possible."""
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
        repl.say("there is nothing to go back to yet: this session is empty")
        return
    if not argument:
        option = await repl.screen.pick(_menu(found))
        if option is None:
            return
        argument = option.key
    point, choice = _parse(argument, found)
    plan = await _look(repl, point, found)
    if choice and (objection := plan.objection(choice)):
        raise UsageError(objection, hint="/rewind lists the points and what they hold.")
    await _go_back(repl, plan, choice)


@command("take back the last turn: its words and its files", group="conversation")
async def _undo(repl: CommandContext, argument: str) -> None:
    from ...session.checkpoints import rewind_points

    repl.agent.log.check_writable()
    found = await asyncio.to_thread(rewind_points, repl.agent.log.entries())
    turn = next((point for point in found if not (point.path or point.mid_turn)), None)
    if turn is None:
        raise UsageError("there is no turn to take back", hint="/rewind lists other points.")
    plan = await _look(repl, turn, found)
    await _go_back(repl, plan, "conversation" if plan.objection("both") else "both")


async def _look(
    repl: CommandContext, point: "RewindPoint", found: "Sequence[RewindPoint]"
) -> _RewindPlan:
    """Find out what going back to a point would do, and say that this takes a moment."""
    repl.doing(LOOKING)
    try:
        return await _plan(repl.agent, point, found)
    finally:
        repl.doing("")


async def _go_back(repl: CommandContext, plan: _RewindPlan, choice: str) -> None:
    """Show what going back would change, ask, and do it; without a choice of what goes back, ask
    for that too."""
    _show(repl, plan, with_files=choice != "conversation")
    confirmed = await _confirm(repl, plan, choice)
    if not confirmed:
        repl.say("nothing has changed")
        return

    async def go_back() -> None:
        if confirmed == "both":  # they end with the session, and could write once files are back
            await end_tasks(repl.agent)
        if confirmed in ("files", "both") and not plan.no_files:
            await _restore_files(repl, plan, leaves_session=confirmed == "both")
        if confirmed != "conversation" and plan.lost:
            await _restore_repository(repl, plan)
        if confirmed in ("conversation", "both"):
            await _rewind_conversation(repl, plan, files_too=confirmed == "both")

    repl.doing("going back")
    try:
        await _finish_despite_interrupt(repl, go_back())
    finally:
        repl.doing("")


def _parse(argument: str, found: "Sequence[RewindPoint]") -> "tuple[RewindPoint, str]":
    """Return the point and the choice that the argument names; "" for no choice."""
    number, _, rest = argument.partition(" ")
    word = rest.strip().lower()
    choices = [name for name in CHOICES if word and name.startswith(word)]
    if word and not choices:
        raise UsageError(
            f"/rewind does not know {rest.strip()!r}", hint=f"One of {', '.join(CHOICES)}."
        )
    for point in found:
        if str(point.number) == number:
            return point, choices[0] if choices else ""
    raise UsageError(f"there is no point {number}", hint="/rewind lists them.")


async def _plan(
    agent: "AgentState", point: "RewindPoint", found: "Sequence[RewindPoint]"
) -> _RewindPlan:
    """Find out what going back to a point would do."""
    later = [other for other in found if not other.path and other.seq >= point.seq]
    turns = sum(not other.mid_turn for other in later)
    went_on = bool(later) or await asyncio.to_thread(_has_replied, agent.log.entries(), point.seq)
    no_talk = "" if went_on else "the conversation has not moved on since"
    if not point.changed:
        no_files = "nothing that was done here has changed files since"
        return _RewindPlan(point, turns, no_talk, no_files, no_repository=no_files)
    way, since = await asyncio.to_thread(_way_back, agent, point)
    repository = await asyncio.to_thread(_lost, agent, point)
    try:
        difference = await asyncio.to_thread(agent.checkpoints.difference, way)
    except CtxagentError as error:
        why = ". ".join(filter(None, (error.message, error.hint)))
        no_files = f"the files cannot go back: {why}"
        return _RewindPlan(point, turns, no_talk, no_files, None, since, *repository)
    no_files = "" if difference.changes else "the files are as they were then"
    if difference.staying and not difference.changes:
        no_files = "no other files have changed since"
    if difference.unknown and not difference.changes:
        no_files = f"{NOTHING_KNOWN}: {_listed(agent, difference.unknown)}"
    return _RewindPlan(point, turns, no_talk, no_files, difference, since, *repository)


def _lost(agent: "AgentState", point: "RewindPoint") -> "tuple[Sequence[LostItems], str]":
    """Return what the git repository has lost since a point, and why nothing comes back."""
    if not point.repository:
        return (), "the git repository was not recorded at this point"
    try:
        lost = agent.checkpoints.restorer.lost(point.repository)
        return lost, "" if lost else "the git repository has lost nothing since"
    except CtxagentError as error:
        return (), error.message


def _way_back(agent: "AgentState", point: "RewindPoint") -> "tuple[WayBack, SincePoint]":
    """Find out from the records how the files go back to a point."""
    from ...session.checkpoints import WayBack
    from ...session.since_point import read_lineage, read_since

    entries, tracker = agent.log.entries(), agent.runner.change_tracker
    since, others = read_since(entries, point.seq), frozenset[str]()
    if tracker is not None and tracker.record is not None:
        line = read_lineage(entries, agent.folder.name)
        touches = tracker.record.others(_nanoseconds(point.at))
        until = _nanoseconds(line.until) if line.until else inf
        others = touches.without(line.sessions, until).paths
    return WayBack(point, since.saved, others), since


def _nanoseconds(at: str) -> int:
    try:
        return int(datetime.fromisoformat(at).timestamp() * 1e9)
    except (ValueError, OverflowError):  # an entry without a time
        return 0


def _has_replied(entries: "Reversible[Entry]", since: int) -> bool:
    """Return True if the agent has said or done something since an entry."""
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
    for why in filter(None, (plan.no_files if with_files else "", plan.no_conversation)):
        repl.say(why)
    if not plan.no_conversation:
        what = "the rest of its turn"
        if plan.turns:
            what = count_of(plan.turns, "turn")
        repl.say(f"conversation: {what} would be left out; this session stays, for /resume")
    if running := repl.conversation.background_tasks:
        ids = ", ".join(task.id for task in running)
        text = f"{ids} is still running: it may write to files that go back, and "
        repl.notify("warning", f"{text}ends when the conversation goes back")


def _show_files(repl: CommandContext, plan: _RewindPlan) -> None:
    """Say which files would go back, and which would not."""
    from ..render import diffs

    if plan.difference and not plan.no_files:
        changes = _describe_changes(repl.agent, plan.difference.changes, "would be ")
        repl.put(diffs.diff(plan.difference.diff, fold=True))
        repl.say(f"files that {changes}")
        own = plan.since.own if plan.since else frozenset()
        if uncertain := [c.path for c in plan.difference.changes if c.path not in own]:
            repl.notify("warning", f"{UNCERTAIN}: {_listed(repl.agent, uncertain)}")
        repl.say(UNTOUCHED)
    if plan.difference and plan.difference.staying:
        repl.say(f"{STAYING}: {_listed(repl.agent, plan.difference.staying)}")
    if plan.difference and plan.difference.unknown:
        repl.say(f"{UNKNOWN}: {_listed(repl.agent, plan.difference.unknown)}")
    if plan.since and plan.point.snapshot is None:
        _show_unseen(repl, plan.since)
    elif plan.since and (limits := repl.agent.checkpoints.limits):
        repl.notify("warning", f"not all files go back: {limits}")


def _show_unseen(repl: CommandContext, since: "SincePoint") -> None:
    """Say which changes a rewind without a snapshot does not take back."""
    limits = repl.agent.checkpoints.limits or "there is no snapshot of the files"
    repl.notify("warning", f"only files that were saved one by one go back: {limits}")
    if since.not_saved:
        repl.say(f"changed, and not saved: {_listed(repl.agent, since.not_saved)}")
    if since.commands:
        shown = [f"`{one_line(each, MAX_WORDS_CHARS)}`" for each in since.commands]
        more = len(shown) - MAX_LISTED_COMMANDS
        named = ", ".join([*shown[:MAX_LISTED_COMMANDS], *([f"+{more:,}"] if more > 0 else [])])
        repl.say(f"what these commands changed in files they do not name is not seen: {named}")


async def _confirm(repl: CommandContext, plan: _RewindPlan, choice: str) -> str:
    """Ask the user what to take back, and return the choice, "" for nothing."""
    possible = plan.choices()
    if not possible:
        return ""
    if choice:
        answer = await repl.questions.choose(f"[y]es, {choice} · [n]o · Enter: no", "yn")
        return choice if _letter(answer) == "y" else ""
    names = [*possible, "no"]
    prompt = " · ".join(f"[{name[0]}]{name[1:]}" for name in names) + " · Enter: no"
    letter = _letter(await repl.questions.choose(prompt, "".join(name[0] for name in names)))
    return next((name for name in possible if name[0] == letter), "")


def _letter(answer: str) -> str:
    """Return the letter of the choice that an answer names, by its letter or its word."""
    word = answer.strip().lower().rstrip(".!")
    return word[:1] if len(word) == 1 or word in ("yes", "no", *CHOICES) else ""


async def _finish_despite_interrupt(repl: CommandContext, work: Coroutine[Any, Any, None]) -> None:
    """Await work that must not stop halfway, even if it is interrupted.

    Once the copy is open, an interrupt cuts short what the session before it still does.
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
    """Keep the files as they are, tell the model which ones change, restore them, and record it.
    With `leaves_session` the conversation then goes on in a copy, which has no point for it."""
    from ...session.checkpoints import BEFORE_REWIND_TRIGGER
    from ...session.entries import User

    agent, point = repl.agent, plan.point
    way, _ = await asyncio.to_thread(_way_back, agent, point)
    await asyncio.to_thread(agent.checkpoints.check_restorable, way)
    kept = await agent.engine.host.take_checkpoint(BEFORE_REWIND_TRIGGER)
    if kept is None or (kept.snapshot is None and point.snapshot is not None):
        raise CtxagentError(f"the files as they are cannot be kept: {agent.checkpoints.limits}")
    held = await asyncio.to_thread(agent.checkpoints.cover, way, kept)
    if held != kept:
        agent.record(held)
    if agent.runner.change_tracker:
        unsaved = await agent.runner.change_tracker.save_before_rewind(way.saved)
        whole, way = way, await asyncio.to_thread(agent.checkpoints.without, way, unsaved)
        if left := sorted(way.stay - whole.stay):
            repl.notify("warning", f"{NOT_SAVED}: {_listed(agent, left)}")
    difference = await asyncio.to_thread(agent.checkpoints.difference, way, held.snapshot)
    changes: Sequence[TreeChange] = difference.changes
    _forget_files(agent, changes)
    text = _warn_model(agent, "The user takes files back to an earlier state.", changes)
    agent.record(User(content=text, source="notice"))
    resume = f"/resume {repl.session}, then " if leaves_session else ""
    way_back = f"the files as they were before: {resume}/rewind {kept.number} files"
    try:
        changes = await asyncio.to_thread(agent.checkpoints.restore, way)
    except CtxagentError as error:
        changes = await asyncio.to_thread(agent.checkpoints.changes_done, way, held, changes)
        _record_rewind(agent, point, kept.number, changes, error.message)
        done = _describe_changes(agent, changes) or "nothing has changed"
        raise CtxagentError(f"{error.message}; {done}", hint=way_back.capitalize()) from error
    repl.say(_describe_changes(agent, changes))
    repl.say(way_back)
    _record_rewind(agent, point, kept.number, changes)


async def _restore_repository(repl: CommandContext, plan: _RewindPlan) -> None:
    """Restore what the git repository has lost, tell the model, and record it."""
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
    """Record which files went back to a point, and why not all if there was an error."""
    from ...session.entries import Note

    rows = [{"path": change.path, "action": change.action} for change in changes]
    if agent.runner.change_tracker:
        agent.runner.change_tracker.tell_others(changes)
    data: dict[str, Any] = {"point": point.number, "before": before, "changes": rows}
    text = f"files as at point {point.number}"
    if error:
        text, data["error"] = f"not all {text}: {error}", error
    agent.record(Note(topic="rewind", text=text, data=data))


async def _rewind_conversation(repl: CommandContext, plan: _RewindPlan, *, files_too: bool) -> None:
    """Go on in a copy of the session that ends at the point."""
    from ...session.checkpoints import TURN_TRIGGER
    from ...session.entries import User
    from ...session.since_point import EDIT, saved_note

    point, left = plan.point, repl.session
    await repl.reopen(resume=repl.copy_session(point.seq))
    agent, difference = repl.agent, plan.difference
    if point.changed and point.trigger == TURN_TRIGGER and point.number > 1:
        agent.record(agent.checkpoints.copied_snapshot(point))
    if plan.since and plan.since.saved and not files_too:
        agent.record(saved_note(plan.since.saved.values(), EDIT))
    if difference and difference.changes and not files_too and agent.view.items:
        what = "The user has taken the conversation back to here, but not the files."
        text = _warn_model(agent, what, difference.changes)
        agent.record(User(content=text, source="notice"))
    before = "before those words" if point.mid_turn else "before that turn"
    where = before if point.trigger == TURN_TRIGGER else "at that checkpoint"
    note = f"this is a copy that ends {where}; what came later: /resume {left}"
    repl.notify("info", note)
    if point.trigger == TURN_TRIGGER:
        repl.screen.restore(point.words)


def _forget_files(agent: "AgentState", changes: "Sequence[TreeChange]") -> None:
    """Forget what was read of changed files, so that they are read again before they are edited."""
    gone = {Path(change.path).resolve() for change in changes}
    digests = agent.context.seen.digests
    for path in [path for path in digests if Path(path).resolve() in gone]:
        del digests[path]


def _warn_model(agent: "AgentState", what: str, changes: "Sequence[TreeChange]") -> str:
    """Return a text for the model that names the files which are not as it knows them."""
    paths = [agent.context.shown(Path(change.path)) for change in changes]
    lines = [f"- {path}" for path in paths[:MAX_LISTED_FILES_FOR_MODEL]]
    if others := paths[MAX_LISTED_FILES_FOR_MODEL:]:
        lines.append(f"… and {len(others):,} more")
    head = f"{what} Read these files before you rely on them: they may have changed."
    return "\n".join([head, *lines])


def _listed(agent: "AgentState", paths: "Sequence[str]") -> str:
    """Name some of these files."""
    shown = [agent.context.shown(Path(path)) for path in paths[:MAX_LISTED_FILES]]
    more = len(paths) - MAX_LISTED_FILES
    return ", ".join([*shown, *([f"… +{more:,}"] if more > 0 else [])])


def _describe_changes(
    agent: "AgentState", changes: "Sequence[TreeChange]", prefix: str = ""
) -> str:
    """Return which files are written and which are removed, naming some of them."""
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
        action="see what would change",
        empty_text="there is nothing to go back to yet",
    )


def _title(point: "RewindPoint") -> str:
    """Return the words that a point is before, or why a checkpoint was taken and after which
    words."""
    words = one_line(point.words, MAX_WORDS_CHARS)
    if not point.path:
        return f"while it worked: {words}" if point.mid_turn else words
    after = f"after: {words}" if words else "before the first turn"
    return f"checkpoint {point.trigger}, {after}"


def _when(at: str) -> str:
    """Return the time of day, with the day if it is not today."""
    try:
        then = datetime.fromisoformat(at).astimezone()
    except (ValueError, OverflowError):  # an entry without a time, or with an odd one
        return "–"
    return f"{then:%H:%M}" if then.date() == datetime.now().date() else f"{then:%d %b %H:%M}"
