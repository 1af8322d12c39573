"""Checkpoints: the points that a session can be taken back to.

Every turn is a point, so are words that came in the middle of one, and so is every checkpoint that
was taken; they are numbered together in the order of the log, so a number never changes. A
checkpoint is a file, `checkpoints/<n>.json`, that describes the session on its own, with a snapshot
of the work tree. A turn has no file: before its first call that can change something a snapshot is
recorded, and until then the agent has changed no file; the same holds for words in the middle of a
turn. Nothing here looks at the log: it is fed entry by entry.
"""

import contextlib
import json
from collections.abc import Collection, Iterable, Mapping, Reversible, Sequence
from dataclasses import asdict, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...tools.system.files import make_private_folder, read_below, replace_file
from ..errors import NoSuchSession, RecordError, SessionError
from ..lazy import dataclass
from .entries import Checkpoint, Entry, User
from .log import Entries, timestamp
from .store import MAX_KEPT_BYTES, content_text

if TYPE_CHECKING:
    from ..worktree import RepositoryKeeper, SavedFile, SavedFiles, TreeChange, WorkTree
    from ..worktree.repository_restore import RepositoryRestorer

CHECKPOINTS_FOLDER = "checkpoints"
TURN_TRIGGER = "turn"  # the trigger of the snapshots that turns begin with
BEFORE_REWIND_TRIGGER = "before rewind"
OBJECTS_GONE = "git has cleaned up what was borrowed from the repository"
SNAPSHOT_FAILED = "git could not take a snapshot"
NO_SNAPSHOTS = "this session keeps no snapshots of the files"
SAVED_ALONE = "/rewind takes back files that Edit, Write or a command name, and the conversation"


@dataclass(frozen=True, slots=True)
class CheckpointFacts:
    """The state of a conversation, as a checkpoint keeps it."""

    intent: str
    document: Mapping[str, Any]  # of the summary, as plain JSON
    ledger: Mapping[str, Any]  # as plain JSON
    todos: Sequence[Mapping[str, str]]
    tokens: int  # of the context
    window: int  # tokens that it can hold
    model: str
    mode: str


@dataclass(frozen=True, slots=True)
class SavedCheckpoint:
    """A checkpoint as its file has it."""

    number: int
    at: str
    trigger: str
    session: str
    seq: int  # of the newest entry of the log then
    facts: CheckpointFacts
    head: str  # branch and commit of git
    snapshot: str | None  # a tree of the private store
    limits: str  # what is not in the snapshot, or why there is none


@dataclass(frozen=True, slots=True)
class RewindPoint:
    """A point that a session can be taken back to: before a turn, before words in the middle of
    one, or at a checkpoint."""

    number: int
    seq: int  # of the last entry that stays
    at: str
    trigger: str
    words: str  # the person's newest; for a turn those that it begins with
    path: str = ""  # of the checkpoint's file, "" for a turn
    snapshot: str | None = None  # of the files as they were; None if `changed`: they were not kept
    changed: bool = False  # something may have changed the files since
    mid_turn: bool = False  # before words that came while a turn ran
    repository: str = ""  # the record of the git repository


@dataclass(frozen=True, slots=True)
class RewindDifference:
    """The changes in the files that a rewind would make."""

    changes: "Sequence[TreeChange]"
    diff: str  # unified, of bounded length
    staying: Sequence[str] = ()  # files that are not as they were either, and stay as they are
    unknown: Sequence[str] = ()  # files that may have existed then; their content was not saved


@dataclass(frozen=True, slots=True)
class WayBack:
    """How the files go back to a point."""

    point: RewindPoint
    saved: "Mapping[str, SavedFile]" = field(default_factory=dict)  # first states since, by path
    stay: frozenset[str] = frozenset()  # files that do not go back


@dataclass(slots=True)
class PointCounter:
    """The numbers of the points, counted entry by entry."""

    newest: int = 0
    due: bool = False  # the snapshot of the turn is still to be taken

    def add(self, entry: Entry) -> None:
        """Count one more entry of the log."""
        self.newest = _newest_number(self.newest, entry)
        if _is_person(entry):
            self.due = True
        elif isinstance(entry, Checkpoint):
            self.due = False


class Checkpoints:
    """The checkpoints of one session: takes them, and takes the files back to them. Without a work
    tree, or where that is too large, checkpoints hold no files."""

    def __init__(
        self,
        folder: Path,
        worktree: "WorkTree | None",
        counter: PointCounter | None = None,
        saved: "SavedFiles | None" = None,
        keeper: "RepositoryKeeper | None" = None,
    ) -> None:
        self.folder = folder
        self.worktree = worktree
        self.saved = saved
        self.keeper = keeper
        self._counter = counter or PointCounter()
        self._was_noticed = False  # that the newest turn has no files
        self._limits_noticed = ""  # of the records of the git repository

    @property
    def newest(self) -> int:
        """The number of the newest point."""
        return self._counter.newest

    @property
    def limits(self) -> str:
        """Which files are not kept, and why; "" when all are."""
        return self.worktree.limits if self.worktree else NO_SNAPSHOTS

    def add(self, entry: Entry) -> None:
        """Count one more entry of the log."""
        self._counter.add(entry)

    def turn_snapshot(self) -> Checkpoint | None:
        """Take the snapshot that this turn begins with; None when it was taken already. To be
        called before every call that can change something. Blocks and never fails: where files
        cannot be kept, the entry, which is still to be recorded, has none."""
        if not self._counter.due:
            return None
        snapshot, _, _ = self._snapshot(self._name(self._counter.newest))
        return Checkpoint(
            number=self._counter.newest,
            path="",
            snapshot=snapshot,
            trigger=TURN_TRIGGER,
            repository=self._record(),
        )

    def missing_files_notice(self, taken: Checkpoint) -> str:
        """Return a notice that a turn's snapshot has no files; "" when it has, or when the notice
        was given for the turn before."""
        noticed, self._was_noticed = self._was_noticed, taken.snapshot is None
        if self.worktree is None or noticed or not self._was_noticed:
            return ""
        return f"{self.limits or SNAPSHOT_FAILED}; {SAVED_ALONE}"

    def repository_notice(self) -> str:
        """Return what the records of the git repository lack; "" when that was returned before."""
        before, self._limits_noticed = (
            self._limits_noticed,
            self.keeper.limits if self.keeper else "",
        )
        return self._limits_noticed if self._limits_noticed != before else ""

    def copied_snapshot(self, point: RewindPoint) -> Checkpoint:
        """Return an entry with the snapshot of a turn, for a copy of the session that ends before
        the entry which holds it."""
        return Checkpoint(
            number=self._counter.newest,
            path="",
            snapshot=point.snapshot,
            trigger=point.trigger,
            repository=point.repository,
        )

    def take(self, facts: CheckpointFacts, trigger: str, seq: int) -> Checkpoint:
        """Write a checkpoint and return its entry, which is still to be recorded. Blocks. `seq` is
        the log's newest entry. Raises RecordError when the file cannot be written."""
        number = self._counter.newest + 1
        snapshot, head, limits = self._snapshot(self._name(number))
        saved = SavedCheckpoint(
            number=number,
            at=timestamp(),
            trigger=trigger,
            session=self.folder.name,
            seq=seq,
            facts=facts,
            head=head,
            snapshot=snapshot,
            limits=limits,
        )
        path = Path(CHECKPOINTS_FOLDER) / f"{number}.json"
        _write(self.folder / path, saved)
        return Checkpoint(
            number=number,
            path=str(path),
            snapshot=snapshot,
            trigger=trigger,
            repository=self._record(),
        )

    def difference(self, way: WayBack, now: str | None = None) -> RewindDifference:
        """Return what would change if the files went back to a point. Blocks. They are compared
        with the snapshot `now`, by default with how they are. Raises RecordError, saying why, when
        they cannot go back."""
        saved = self._saved_alone(way)
        changes = self.saved.changes(saved) if self.saved else []
        texts = [self.saved.diff(saved)] if self.saved and changes else []
        stay = [file for path, file in way.saved.items() if path in way.stay]
        staying = {c.path for c in (self.saved.changes(stay) if self.saved else ())}
        unknown = frozenset[str]()
        if way.point.snapshot is not None or not saved:
            worktree, then = self._kept_files(way.point)
            if now is None:
                worktree.check_restorable(then, way.stay)
                now, _, limits = self._snapshot()
                if now is None:
                    raise RecordError(f"the files as they are cannot be kept: {limits}")
            different = {c.path for c in worktree.compare(now, then)}
            staying |= different & way.stay
            left = worktree.left_alone(then, now)
            unknown = left.unknown - way.stay - {file.path for file in saved}
            then = worktree.except_for(different & (way.stay | left.all), then, now)
            in_tree = worktree.compare(now, then)
            known = {change.path for change in in_tree}
            changes = [*in_tree, *(change for change in changes if change.path not in known)]
            texts = [worktree.diff(now, then), *texts]
        return RewindDifference(changes, "".join(texts), sorted(staying), sorted(unknown))

    def check_restorable(self, way: WayBack) -> None:
        """Raise RecordError, saying why, when the files cannot go back to a point. Blocks."""
        saved = self._saved_alone(way)
        if way.point.snapshot is not None or not saved:
            worktree, then = self._kept_files(way.point)
            worktree.check_restorable(then, way.stay)
        if self.saved:
            self.saved.check(saved)

    def without(self, way: WayBack, paths: Collection[str]) -> WayBack:
        """Return a way on which the files at these paths stay, unless the snapshot of the point has
        them. Blocks."""
        alone = {file.path for file in self._saved_alone(way)}
        return replace(way, stay=way.stay | (alone & set(paths)))

    def cover(self, way: WayBack, before: Checkpoint) -> Checkpoint:
        """Add the ignored files that a rewind would overwrite to `before`, the checkpoint of now.
        What is returned is to be recorded in its place if it differs. Blocks. Raises RecordError
        when the files cannot go back."""
        if way.point.snapshot is None and way.saved:
            return before
        worktree, then = self._kept_files(way.point)
        name = self._name(before.number)
        return replace(before, snapshot=worktree.cover(then, name, way.stay))

    def restore(self, way: WayBack) -> "Sequence[TreeChange]":
        """Make the files as they were at a point, and return what has changed. Blocks. Raises
        RecordError when the files cannot go back: none has changed then, or only some."""
        saved, changes = self._saved_alone(way), list["TreeChange"]()
        if way.point.snapshot is not None or not saved:
            worktree, then = self._kept_files(way.point)
            changes += worktree.restore(then, way.stay)
        return [*changes, *(self.saved.restore(saved) if self.saved else ())]

    def changes_done(
        self, way: WayBack, before: Checkpoint, changes: "Sequence[TreeChange]"
    ) -> "Sequence[TreeChange]":
        """Return which of the changes from a checkpoint to a point a halted restore has done.
        Blocks. Raises RecordError."""
        alone = {file.path for file in self._saved_alone(way)}
        left = {c.path for c in self.saved.changes(self._saved_alone(way))} if self.saved else set()
        done = [c for c in changes if c.path in alone - left]
        others = [c for c in changes if c.path not in alone]
        if others:
            worktree, then = self._kept_files(way.point)
            done += worktree.changes_done(others, before.snapshot or then, then)
        return done

    def _saved_alone(self, way: WayBack) -> "list[SavedFile]":
        """Return the saved files that the snapshot of the point does not have, as they were. Where
        there certainly was no file, none is put back, though one was saved later. That a file was
        created is not believed of a file that may have been left out, unless a look found none."""
        files = {p: f for p, f in way.saved.items() if not f.why and p not in way.stay}
        if way.point.repository:  # which is restored by its record
            files = {p: f for p, f in files.items() if "/.git/" not in p}
        tree = way.point.snapshot
        if tree is not None and self.worktree is not None and files:
            held = self.worktree.held(tree, files)
            absent = self.worktree.surely_absent(tree, files)
            files = {
                path: replace(file, blob="", mode=0) if path in absent else file
                for path, file in files.items()
                if path not in held
                and (path in absent or not file.inferred or not self.worktree.is_inside(path))
            }
        return list(files.values()) if self.saved else []

    def _name(self, number: int) -> str:
        return f"{self.folder.name}/{number}"

    def _kept_files(self, point: RewindPoint) -> tuple["WorkTree", str]:
        """Return the work tree and the snapshot of a point. Raises RecordError without one, and
        where the repository that the snapshot is of is not there."""
        if self.worktree is None or point.snapshot is None:
            raise RecordError(
                f"the files of point {point.number} were not kept: {self._why(point)}"
            )
        whole = self.worktree.is_whole(point.snapshot)  # which finds out its root
        root = self.restorer.root(point.repository) if point.repository else ""
        if root not in ("", self.worktree.root):
            raise RecordError(
                f"the git repository of {root} is not there",
                hint=f"/rewind {point.number} repository restores it; then resume the session.",
            )
        if not whole:
            raise RecordError(f"the files of point {point.number} are gone: {OBJECTS_GONE}")
        return self.worktree, point.snapshot

    def _why(self, point: RewindPoint) -> str:
        if point.path:
            with contextlib.suppress(SessionError):  # then today's limits are the best guess
                return load_checkpoint(self.folder, point.number).limits
        return self.limits or SNAPSHOT_FAILED

    @property
    def restorer(self) -> "RepositoryRestorer":
        """What restores the git repository from the records. Raises RecordError without any."""
        from ..worktree.repository_restore import RepositoryRestorer

        if self.keeper is None:
            raise RecordError("this session keeps no records of the git repository")
        return RepositoryRestorer(self.keeper)

    def _record(self) -> str:
        """Record the git repository and return the name of the record, "" for none."""
        return self.keeper.take() if self.keeper else ""

    def _snapshot(self, name: str = "") -> tuple[str | None, str, str]:
        """Keep the files under a name; return the tree, git's HEAD, and what is left out."""
        if self.worktree is None:
            return None, "", NO_SNAPSHOTS
        look = self.worktree.snapshot(name)
        return look.tree, look.head, self.worktree.limits or ("" if look.tree else SNAPSHOT_FAILED)


def rewind_points(entries: Iterable[Entry]) -> list[RewindPoint]:
    """Return every point of a log, newest first. The files of a turn are those of the first
    checkpoint after its words: until then the agent had changed none."""
    found: list[RewindPoint] = []
    newest, words, waiting = 0, "", 0  # `waiting`: so many of the last points have no files yet
    for entry in entries:
        newest = _newest_number(newest, entry)
        if isinstance(entry, User) and _is_person(entry):
            words = content_text(entry.content)
            before = RewindPoint(newest, entry.seq - 1, entry.at, TURN_TRIGGER, words)
            found.append(replace(before, mid_turn=entry.mid_turn))
            waiting += 1
        elif isinstance(entry, Checkpoint):
            for place in range(len(found) - waiting, len(found)):
                found[place] = replace(
                    found[place],
                    snapshot=entry.snapshot,
                    changed=True,
                    repository=entry.repository,
                )
            waiting = 0
            if entry.path:
                if found and found[-1].number == entry.number:  # recorded again, with more in it
                    found.pop()
                here = RewindPoint(entry.number, entry.seq, entry.at, entry.trigger, words)
                here = replace(here, path=entry.path, repository=entry.repository)
                found.append(replace(here, snapshot=entry.snapshot, changed=True))
    return found[::-1]


def load_checkpoint(folder: Path, number: int) -> SavedCheckpoint:
    """Read a checkpoint of the session in `folder`. Raises SessionError when there is none of that
    number, or when its file is broken."""
    name = f"{CHECKPOINTS_FOLDER}/{number}.json"
    try:
        return _parse_checkpoint(json.loads(read_below(folder, name, MAX_KEPT_BYTES)))
    except FileNotFoundError:
        raise NoSuchSession(
            f"session {folder.name} has no checkpoint {number}", hint=_existing(folder)
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise SessionError(
            f"the checkpoint {folder / name} cannot be read: {error}",
            hint="The log still has everything that was said and done up to it.",
        ) from error


def entries_up_to_checkpoint(log: Path, number: int | None = None) -> Reversible[Entry]:
    """Return the entries of a session up to a checkpoint of it, by default the newest one. The
    checkpoint's file is not read. Raises NoSuchSession where there is no such one."""
    for entry in reversed(Entries(log)):
        if isinstance(entry, Checkpoint) and entry.path and number in (None, entry.number):
            return Entries(log, upto=entry.seq)
    which = "no checkpoint" if number is None else f"no checkpoint {number}"
    raise NoSuchSession(f"session {log.parent.name} has {which}", hint=_existing(log.parent))


def _is_person(entry: Entry) -> bool:
    """Return whether an entry is words of the user: each of them is a point."""
    return isinstance(entry, User) and entry.source == "person"


def _newest_number(newest: int, entry: Entry) -> int:
    if _is_person(entry):
        return newest + 1
    if isinstance(entry, Checkpoint) and entry.path:
        return max(newest, entry.number)
    return newest


def _existing(folder: Path) -> str:
    numbers = sorted(
        int(p.stem) for p in (folder / CHECKPOINTS_FOLDER).glob("*.json") if p.stem.isdigit()
    )
    if not numbers:
        return "/checkpoint takes one."
    return f"It has {', '.join(map(str, numbers))}."


def _write(path: Path, saved: SavedCheckpoint) -> None:
    text = json.dumps({"v": 1, **asdict(saved)}, ensure_ascii=False, indent=1, default=str)
    try:
        make_private_folder(path.parent)
        replace_file(path, text.encode("utf-8", "surrogatepass"), single_writer=True)
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


def _parse_checkpoint(data: Any) -> SavedCheckpoint:
    """Read a checkpoint. Raises ValueError, naming the field, for what is none."""
    given = _fields(SavedCheckpoint, data)
    return SavedCheckpoint(
        **{**given, "facts": CheckpointFacts(**_fields(CheckpointFacts, given["facts"]))}
    )


def _fields(cls: type[Any], data: Any) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise ValueError("not an object")
    given = {}
    for name in (each.name for each in fields(cls)):
        if not isinstance(data.get(name), _SHAPES.get(name, (str,))):
            raise ValueError(
                f"{name} is missing" if name not in data else f"{name} is no such thing"
            )
        given[name] = data[name]
    return given
