"""Commands about going back: taking a checkpoint, and taking the conversation, the files, or both,
back to a turn or a checkpoint. The log is never cut: an earlier conversation goes on in a copy. The
files as they are now are kept before they are touched."""

import asyncio
from collections.abc import Coroutine, Reversible, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import CtxagentError, UsageError
from ..screen.menu import Menu, Option
from . import offers
from .registry import Desk, command

if TYPE_CHECKING:
    from ...loop import Loop
    from ...record.checkpoints import Difference, Point
    from ...record.entries import Entry
    from ...record.worktree import Change

LOOK = 0.1  # seconds between two looks at whether an interrupt can be passed on
NAMED = 20  # files that are named one by one
TOLD = 100  # files that the model is told of
SHOWN = 60  # characters of words in a list
WAYS = ("conversation", "files", "both")
LOOKING = "looking at the files"
UNTOUCHED = "Ignored files and those over 10 MB are not kept and never touched."


@command("keep how things stand now, to come back to", argument="[WORDS]")
async def _checkpoint(desk: Desk, argument: str) -> None:
    from ..look import render

    loop = desk.loop
    if not loop.log.last_seq:
        raise UsageError("there is nothing to keep yet: this session is empty")
    loop.log.check()
    words = " ".join(argument.split())
    desk.doing(LOOKING)
    try:
        taken = await loop.checkpoint(f"by hand: {words}" if words else "by hand")
    finally:
        desk.doing("")
    if taken is None:
        raise CtxagentError("no checkpoint was taken")
    lines = [f"checkpoint {taken.number}: {loop.folder / taken.path}"]
    if limits := loop.checkpoints.limits:
        lines.append(f"{'not all' if taken.snapshot else 'without the'} files: {limits}")
    lines.append(f"/rewind {taken.number} comes back to it. {UNTOUCHED}")
    desk.put(render.dim("\n".join(lines)))


@dataclass(frozen=True, slots=True)
class _Way:
    """What going back to a point would do. `turns` counts those that would go; `talk` and `files`
    say why one cannot go back, "" where it can, and then `difference` is what would change."""

    point: "Point"
    turns: int
    talk: str
    files: str
    difference: "Difference | None" = None

    def fault(self, wish: str) -> str:
        """Why a wish cannot be met, "" when it can."""
        needed = {"conversation": (self.talk,), "files": (self.files,)}
        return next(filter(None, needed.get(wish, (self.talk, self.files))), "")

    def wishes(self) -> list[str]:
        return [wish for wish in WAYS if not self.fault(wish)]


@command(
    "go back: conversation, files, or both",
    argument="[N [WHAT]]",
    complete=offers.points,
)
async def _rewind(desk: Desk, argument: str) -> None:
    from ...record.checkpoints import points
    from ..look import render

    desk.loop.log.check()
    found = await asyncio.to_thread(points, desk.loop.log.entries())
    if not found and not argument:
        desk.put(render.dim("there is nothing to go back to yet: this session is empty"))
        return
    if not argument:
        chosen_point = await desk.pick(_menu(found))
        if chosen_point is None:
            return
        argument = chosen_point.key
    point, wish = _named(argument, found)
    desk.doing(LOOKING)
    try:
        way = await _way(desk.loop, point, found)
    finally:
        desk.doing("")
    if wish and (fault := way.fault(wish)):
        raise UsageError(fault, hint="/rewind lists the points and what they hold.")
    _show(desk, way)
    chosen = await _chosen(desk, way, wish)
    if not chosen:
        desk.put(render.dim("nothing has changed"))
        return
    desk.doing("going back")
    try:
        await _to_its_end(desk, _back(desk, way, chosen))
    finally:
        desk.doing("")


def _named(argument: str, found: "Sequence[Point]") -> "tuple[Point, str]":
    """The point and the wish that the words name; "" for no wish."""
    number, _, rest = argument.partition(" ")
    wish = rest.strip().lower()
    wishes = [name for name in WAYS if wish and name.startswith(wish)]
    if wish and not wishes:
        raise UsageError(
            f"/rewind does not know {rest.strip()!r}", hint=f"One of {', '.join(WAYS)}."
        )
    for point in found:
        if str(point.number) == number:
            return point, wishes[0] if wishes else ""
    raise UsageError(f"there is no point {number}", hint="/rewind lists them.")


async def _way(loop: "Loop", point: "Point", found: "Sequence[Point]") -> _Way:
    turns = sum(not other.path and other.seq >= point.seq for other in found)
    on = turns or await asyncio.to_thread(_has_replied, loop.log.entries(), point.seq)
    talk = "" if on else "the conversation has not gone on since"
    if not point.changed:
        return _Way(point, turns, talk, "nothing that was done here has changed files since")
    try:
        difference = await asyncio.to_thread(loop.checkpoints.difference, point)
    except CtxagentError as error:
        why = ". ".join(filter(None, (error.message, error.hint)))
        return _Way(point, turns, talk, f"the files cannot go back: {why}")
    files = "" if difference.changes else "the files are as they were then"
    return _Way(point, turns, talk, files, difference)


def _has_replied(entries: "Reversible[Entry]", since: int) -> bool:
    """Whether the agent has said or done something since an entry."""
    from ...record.entries import Assistant

    later = takewhile(lambda entry: entry.seq > since, reversed(entries))
    return any(isinstance(entry, Assistant) and entry.purpose == "turn" for entry in later)


def _show(desk: Desk, way: _Way) -> None:
    from ..look import diffs, render

    point = way.point
    before = "" if point.path else "before: "
    desk.put(render.dim(f"back to point {point.number}, {before}{_title(point)}"))
    if way.difference and not way.files:
        changes = _named_changes(desk.loop, way.difference.changes, "would be ")
        desk.put(
            diffs.diff(way.difference.diff, fold=True),
            render.dim(f"files that {changes}"),
            render.dim(UNTOUCHED),
        )
    desk.put(*(render.dim(why) for why in (way.files, way.talk) if why))
    if not way.talk:
        what = f"{way.turns} turn{'s' * (way.turns > 1)}" if way.turns else "the rest of its turn"
        desk.put(render.dim(f"conversation: {what} would go; this session stays, for /resume"))
    if running := [id for id, job in desk.loop.context.jobs.items() if job.process.running]:
        text = f"{', '.join(running)} still runs: it may write to files that are taken back, and "
        desk.put(render.notice("warning", f"{text}is ended when the conversation goes back"))


async def _chosen(desk: Desk, way: _Way, wish: str) -> str:
    """What the person wants to go back, "" for nothing."""
    wishes = way.wishes()
    if not wishes:
        return ""
    if wish:
        return wish if _letter(await desk.choose(f"[y]es, {wish} · [n]o", "yn")) == "y" else ""
    choices = " · ".join(f"[{name[0]}]{name[1:]}" for name in (*wishes, "no"))
    letter = _letter(await desk.choose(choices, "".join(name[0] for name in (*wishes, "no"))))
    return next((name for name in wishes if name[0] == letter), "")


def _letter(answer: str) -> str:
    """The letter of the choice that an answer names, by that letter or its word."""
    word = answer.strip().lower().rstrip(".!")
    return word[:1] if len(word) == 1 or word in ("yes", "no", *WAYS) else ""


async def _back(desk: Desk, way: _Way, chosen: str) -> None:
    if chosen != "conversation":
        await _take_files_back(desk, way.point)
    if chosen != "files":
        await _go_back(desk, way, files_too=chosen == "both")


async def _to_its_end(desk: Desk, work: Coroutine[Any, Any, None]) -> None:
    """Wait for what must not stop halfway: for this an interrupt comes too late. Once the copy is
    open it reaches what the session that was left still does."""
    task, left, interrupted = asyncio.ensure_future(work), desk.session, False
    while not task.done():
        try:
            await asyncio.wait({task}, timeout=LOOK if interrupted else None)
        except asyncio.CancelledError:
            interrupted = True
        if interrupted and desk.session != left:
            interrupted = False
            task.cancel()
    task.result()


async def _take_files_back(desk: Desk, point: "Point") -> None:
    """Keep the files as they are, tell the model which to mistrust, take them back, and say in the
    log what that has changed."""
    from ...record.checkpoints import BEFORE_REWIND
    from ...record.entries import User
    from ..look import render

    loop = desk.loop
    await asyncio.to_thread(loop.checkpoints.check, point)
    kept = await loop.checkpoint(BEFORE_REWIND)
    if kept is None or kept.snapshot is None:
        raise CtxagentError(f"the files as they are cannot be kept: {loop.checkpoints.limits}")
    held = await asyncio.to_thread(loop.checkpoints.cover, point, kept)
    if held != kept:
        loop.record(held)
    difference = await asyncio.to_thread(loop.checkpoints.difference, point, held.snapshot)
    changes: Sequence[Change] = difference.changes
    _forget(loop, changes)
    told = _stale(loop, "The user takes files back to an earlier state.", changes)
    loop.record(User(content=told, source="notice"))
    way_back = f"the files as they were before: /rewind {kept.number} files"
    try:
        changes = await asyncio.to_thread(loop.checkpoints.restore, point)
    except CtxagentError as error:
        changes = await asyncio.to_thread(loop.checkpoints.since, point, held, changes)
        _note(loop, point, kept.number, changes, error.message)
        done = _named_changes(loop, changes) or "nothing has changed"
        raise CtxagentError(f"{error.message}; {done}", hint=way_back.capitalize()) from error
    desk.put(render.dim(_named_changes(loop, changes)), render.dim(way_back))
    _note(loop, point, kept.number, changes)


def _note(
    loop: "Loop", point: "Point", before: int, changes: "Sequence[Change]", error: str = ""
) -> None:
    """Record which files went back to a point, and why not all if there was an error."""
    from ...record.entries import Note

    rows = [{"path": change.path, "action": change.action} for change in changes]
    data: dict[str, Any] = {"point": point.number, "before": before, "changes": rows}
    text = f"files as at point {point.number}"
    if error:
        text, data["error"] = f"not all {text}: {error}", error
    loop.record(Note(topic="rewind", text=text, data=data))


async def _go_back(desk: Desk, way: _Way, *, files_too: bool) -> None:
    """Go on in a copy of the session that ends at the point."""
    from ...record.checkpoints import TURN
    from ...record.entries import User
    from ..look import render

    point, left = way.point, desk.session
    await desk.reopen(resume=desk.copy(point.seq))
    loop, difference = desk.loop, way.difference
    if point.changed and point.trigger == TURN and point.number > 1:
        loop.record(loop.checkpoints.carried(point))
    if difference and difference.changes and not files_too and loop.view.items:
        what = "The user has taken the conversation back to here, but not the files."
        told = _stale(loop, what, difference.changes)
        loop.record(User(content=told, source="notice"))
    where = "before that turn" if point.trigger == TURN else "at that checkpoint"
    note = f"this is a copy that ends {where}; what came later: /resume {left}"
    desk.put(render.notice("info", note))
    if point.trigger == TURN:
        desk.offer(point.words)


def _forget(loop: "Loop", changes: "Sequence[Change]") -> None:
    """What was seen of these files holds no more: they must be read before they are edited."""
    gone = {Path(change.path).resolve() for change in changes}
    digests = loop.context.seen.digests
    for path in [path for path in digests if Path(path).resolve() in gone]:
        del digests[path]


def _stale(loop: "Loop", what: str, changes: "Sequence[Change]") -> str:
    """For the model: which files are not as it knows them."""
    paths = [loop.context.shown(Path(change.path)) for change in changes]
    more = [f"… and {len(paths) - TOLD:,} more"] if len(paths) > TOLD else []
    lines = [f"- {path}" for path in paths[:TOLD]]
    head = f"{what} Read these files before you rely on them: they may be not as you last saw them."
    return "\n".join([head, *lines, *more])


def _named_changes(loop: "Loop", changes: "Sequence[Change]", mood: str = "") -> str:
    """What is written and what is removed, by name as far as it is not too much."""
    parts = []
    for verb, removed in (("written", False), ("removed", True)):
        paths = [
            loop.context.shown(Path(change.path))
            for change in changes
            if (change.action == "deleted") is removed
        ]
        more = f", … +{len(paths) - NAMED:,}" if len(paths) > NAMED else ""
        if paths:
            parts.append(f"{mood}{verb}: {', '.join(paths[:NAMED])}{more}")
    return " · ".join(parts)


def _menu(found: "Sequence[Point]") -> Menu:
    options = [
        Option(str(point.number), _title(point), (_when(point.at), _files(point)))
        for point in found
    ]
    return Menu(
        title="Go back to",
        load=lambda scope: iter([options]),
        act="see what would change",
        nothing="there is nothing to go back to yet",
    )


def _files(point: "Point") -> str:
    if not point.changed:
        return "unchanged since"
    return "with files" if point.snapshot else "without files"


def _title(point: "Point") -> str:
    """A turn by its words, a checkpoint by why it was taken, and in which turn."""
    words = " ".join(point.words[: 4 * SHOWN].split())
    words = words if len(words) <= SHOWN else f"{words[:SHOWN]}…"
    return f"checkpoint {point.trigger}, after: {words}" if point.path else words


def _when(at: str) -> str:
    """The time of day, with the day if that is another."""
    try:
        then = datetime.fromisoformat(at).astimezone()
    except (ValueError, OverflowError):  # an entry that was never given a time, or an odd one
        return "–"
    return f"{then:%H:%M}" if then.date() == datetime.now().date() else f"{then:%d %b %H:%M}"
