"""Checkpoints: the points that a session can be taken back to.

Every turn is a point, and so is every checkpoint that was taken; they are numbered together in the
order of the log, so a number never changes. A checkpoint is a file, `checkpoints/<n>.json`, that
says on its own how the session stood (S0), with a snapshot of the work tree. A turn has no file:
before its first call that can change something a snapshot is recorded, and before that nothing of
ours has changed the files. Nothing here looks at the log: it is fed entry by entry.
"""

import contextlib
import json
from collections.abc import Iterable, Mapping, Reversible, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import RecordError, SessionError
from .entries import Checkpoint, Entry, User
from .lock import make_private
from .log import Entries
from .sessions import plain
from .whole import put

if TYPE_CHECKING:
    from .worktree import Change, WorkTree

FOLDER = "checkpoints"
TURN = "turn"  # the trigger of the snapshots that turns begin with
BEFORE_REWIND = "before rewind"
GONE = "git has cleaned up what was borrowed from the repository"
FAILED = "git could not take a snapshot"
NO_SNAPSHOTS = "this session keeps no snapshots of the files"


@dataclass(frozen=True, slots=True)
class Facts:
    """How a conversation stands. `document` and `ledger` are the summary document and the ledger
    as plain JSON; `tokens` and `window` are the context's size and room."""

    intent: str
    document: Mapping[str, Any]
    ledger: Mapping[str, Any]
    todos: Sequence[Mapping[str, str]]
    tokens: int
    window: int
    model: str
    mode: str


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint as its file has it. `seq` is the newest entry of the log then, `head` git's
    branch and commit, `snapshot` a tree of the private store or None; `limits` says what is not in
    it, or why there is none."""

    number: int
    at: str
    trigger: str
    session: str
    seq: int
    facts: Facts
    head: str
    snapshot: str | None
    limits: str


@dataclass(frozen=True, slots=True)
class Point:
    """Where a session can be taken back to: to before a turn, or to a checkpoint.

    `seq` is the last entry that stands there, `words` the person's newest (those of the turn
    itself, which would be said again). `path` is the checkpoint's file, "" for a turn. `changed`
    says that something may have changed the files since, `snapshot` holds them as they were then;
    None with `changed` means that they were not kept.
    """

    number: int
    seq: int
    at: str
    trigger: str
    words: str
    path: str = ""
    snapshot: str | None = None
    changed: bool = False


@dataclass(frozen=True, slots=True)
class Difference:
    """What the way to other files changes; `diff` is a unified one, of bounded length."""

    changes: "Sequence[Change]"
    diff: str


@dataclass(slots=True)
class Numbering:
    """The number of the newest point, and whether the turn's snapshot is still to be taken."""

    newest: int = 0
    due: bool = False

    def add(self, entry: Entry) -> None:
        """Count one more entry of the log."""
        self.newest = _counted(self.newest, entry)
        if _begins_turn(entry):
            self.due = True
        elif isinstance(entry, Checkpoint):
            self.due = False


class Checkpoints:
    """Takes the checkpoints of one session; `folder` is the session's, `numbering` how far its log
    is counted already. Without a work tree, or where it is too large, they hold no files, and
    `limits` says so."""

    def __init__(
        self, folder: Path, worktree: "WorkTree | None", numbering: Numbering | None = None
    ) -> None:
        self.folder = folder
        self.worktree = worktree
        self._counted = numbering or Numbering()
        self._told = False  # that the newest turn has no files

    @property
    def limits(self) -> str:
        """Which files are not kept, and why; "" when nothing is wrong."""
        return self.worktree.limits if self.worktree else NO_SNAPSHOTS

    def seen(self, entry: Entry) -> None:
        """Count one more entry of the log."""
        self._counted.add(entry)

    def turn(self) -> Checkpoint | None:
        """The snapshot that this turn begins with, for the log; None when it was taken already.

        Blocking. To be called before every call that can change something. It never fails: where
        files cannot be kept, the entry has none.
        """
        if not self._counted.due:
            return None
        snapshot, _, _ = self._snapshot(self._name(self._counted.newest))
        return Checkpoint(number=self._counted.newest, path="", snapshot=snapshot, trigger=TURN)

    def untold(self, taken: Checkpoint) -> str:
        """Why a turn's snapshot has no files; "" when it has, and when it was told of the one
        before it."""
        told, self._told = self._told, taken.snapshot is None
        if self.worktree is None or told or not self._told:
            return ""
        return f"{self.limits or FAILED}; /rewind takes back the conversation alone"

    def carried(self, point: Point) -> Checkpoint:
        """The entry that hands a turn's files over to a copy of the session that ends before it:
        the points there would have to look for them behind that end."""
        return Checkpoint(
            number=self._counted.newest, path="", snapshot=point.snapshot, trigger=point.trigger
        )

    def take(self, facts: Facts, trigger: str, seq: int) -> Checkpoint:
        """Write a checkpoint; its entry, still to be recorded. Blocking.

        `seq` is the log's newest entry. Raises RecordError when the file cannot be written.
        """
        number = self._counted.newest + 1
        snapshot, head, limits = self._snapshot(self._name(number))
        saved = Saved(
            number=number,
            at=datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            trigger=trigger,
            session=self.folder.name,
            seq=seq,
            facts=facts,
            head=head,
            snapshot=snapshot,
            limits=limits,
        )
        path = Path(FOLDER) / f"{number}.json"
        _write(self.folder / path, saved)
        return Checkpoint(number=number, path=str(path), snapshot=snapshot, trigger=trigger)

    def difference(self, point: Point, now: str | None = None) -> Difference:
        """What would change if the files went back to a point, from the snapshot `now`, by default
        from how they are. Blocking. Raises RecordError, saying why, when they cannot go back."""
        worktree, then = self._kept(point)
        if now is None:
            worktree.check(then)
            now, _, limits = self._snapshot()
            if now is None:
                raise RecordError(f"the files as they are cannot be kept: {limits}")
        return Difference(worktree.compare(now, then), worktree.diff(now, then))

    def check(self, point: Point) -> None:
        """Raises RecordError, saying why, when the files cannot go back to a point. Blocking."""
        worktree, then = self._kept(point)
        worktree.check(then)

    def cover(self, point: Point, before: Checkpoint) -> Checkpoint:
        """`before`, the checkpoint of how the files are, with the ignored ones in it too that would
        have to give way: to be recorded in its place if it differs. Blocking. Raises RecordError
        when the files cannot go back."""
        worktree, then = self._kept(point)
        return replace(before, snapshot=worktree.cover(then, self._name(before.number)))

    def restore(self, point: Point) -> "Sequence[Change]":
        """Make the files as they were at a point; what has changed. Blocking. Raises RecordError
        when the files cannot go back, and then nothing has changed, or not all did."""
        worktree, then = self._kept(point)
        return worktree.restore(then)

    def since(
        self, point: Point, before: Checkpoint, changes: "Sequence[Change]"
    ) -> "Sequence[Change]":
        """Which of the changes that lead from a checkpoint to a point there are on disk: where a
        restore stopped halfway. Blocking. Raises RecordError."""
        worktree, then = self._kept(point)
        return worktree.since(changes, before.snapshot or then, then)

    def _name(self, number: int) -> str:
        return f"{self.folder.name}/{number}"

    def _kept(self, point: Point) -> tuple["WorkTree", str]:
        """The snapshot of a point, if it is still there."""
        if self.worktree is None or point.snapshot is None:
            raise RecordError(
                f"the files of point {point.number} were not kept: {self._why(point)}"
            )
        if not self.worktree.restorable(point.snapshot):
            raise RecordError(f"the files of point {point.number} are gone: {GONE}")
        return self.worktree, point.snapshot

    def _why(self, point: Point) -> str:
        if point.path:
            with contextlib.suppress(SessionError):  # then what holds now is the best guess
                return load(self.folder, point.number).limits
        return self.limits or FAILED

    def _snapshot(self, name: str = "") -> tuple[str | None, str, str]:
        """The work tree as it is now, kept under a name; git's HEAD; and what is not in it, or why
        there is none."""
        if self.worktree is None:
            return None, "", NO_SNAPSHOTS
        look = self.worktree.snapshot(name)
        return look.tree, look.head, self.worktree.limits or ("" if look.tree else FAILED)


def points(entries: Iterable[Entry]) -> list[Point]:
    """Every point of a log, newest first.

    The files of a turn are those of the first checkpoint after its words: until then nothing of
    ours had changed them.
    """
    found: list[Point] = []
    newest, words, waiting = 0, "", 0  # `waiting` counts the last points whose files are not known
    for entry in entries:
        newest = _counted(newest, entry)
        if isinstance(entry, User) and _begins_turn(entry):
            words = plain(entry.content)
            found.append(Point(newest, entry.seq - 1, entry.at, TURN, words))
            waiting += 1
        elif isinstance(entry, Checkpoint):
            for place in range(len(found) - waiting, len(found)):
                found[place] = replace(found[place], snapshot=entry.snapshot, changed=True)
            waiting = 0
            if entry.path:
                if found and found[-1].number == entry.number:  # recorded again, with more in it
                    found.pop()
                here = Point(entry.number, entry.seq, entry.at, entry.trigger, words)
                found.append(replace(here, path=entry.path, snapshot=entry.snapshot, changed=True))
    return found[::-1]


def load(folder: Path, number: int) -> Saved:
    """A checkpoint of the session in `folder`. Raises SessionError when there is none of that
    number, or its file is broken, and then names it."""
    path = folder / FOLDER / f"{number}.json"
    try:
        return _saved(json.loads(path.read_bytes()))
    except FileNotFoundError:
        raise SessionError(
            f"session {folder.name} has no checkpoint {number}", hint=_those_there(folder)
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise SessionError(
            f"the checkpoint {path} cannot be read: {error}",
            hint="The log still has everything that was said and done up to it.",
        ) from error


def entries_at(log: Path, number: int | None = None) -> Reversible[Entry]:
    """The entries of a session up to a checkpoint of it, the newest one when no number is given:
    what a fresh session is told of it follows from these.

    A broken checkpoint file is no hindrance. Raises SessionError where there is no such checkpoint.
    """
    for entry in reversed(Entries(log)):
        if isinstance(entry, Checkpoint) and entry.path and number in (None, entry.number):
            return Entries(log, upto=entry.seq)
    which = "no checkpoint" if number is None else f"no checkpoint {number}"
    raise SessionError(f"session {log.parent.name} has {which}", hint=_those_there(log.parent))


def _begins_turn(entry: Entry) -> bool:
    return isinstance(entry, User) and entry.source == "person"


def _counted(newest: int, entry: Entry) -> int:
    """The number of the newest point once `entry` is there."""
    if _begins_turn(entry):
        return newest + 1
    if isinstance(entry, Checkpoint) and entry.path:
        return max(newest, entry.number)
    return newest


def _those_there(folder: Path) -> str:
    numbers = sorted(int(p.stem) for p in (folder / FOLDER).glob("*.json") if p.stem.isdigit())
    if not numbers:
        return "/checkpoint takes one."
    return f"It has {', '.join(map(str, numbers))}."


def _write(path: Path, saved: Saved) -> None:
    """Put the file in place whole, or not at all."""
    text = json.dumps({"v": 1, **asdict(saved)}, ensure_ascii=False, indent=1, default=str)
    try:
        make_private(path.parent)
        put(path, text.encode("utf-8", "surrogatepass"))
    except OSError as error:
        raise RecordError(
            f"cannot write the checkpoint {path}: {error.strerror}",
            hint="Free the disk, then go on.",
        ) from error


_SHAPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("number", "seq", "tokens", "window"), (int,)),
    **dict.fromkeys(("facts", "document", "ledger"), (dict,)),
    "todos": (list,),
    "snapshot": (str, type(None)),
}


def _saved(data: Any) -> Saved:
    """Raises ValueError, naming the field, for what is no checkpoint."""
    given = _fields(Saved, data)
    return Saved(**{**given, "facts": Facts(**_fields(Facts, given["facts"]))})


def _fields(cls: type[Any], data: Any) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise ValueError("not an object")
    given = {}
    for name in (field.name for field in fields(cls)):
        if not isinstance(data.get(name), _SHAPES.get(name, (str,))):
            raise ValueError(
                f"{name} is missing" if name not in data else f"{name} is no such thing"
            )
        given[name] = data[name]
    return given
