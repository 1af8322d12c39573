"""Checkpoints: the points that a session can be rewound to.

Every turn, every message sent during a turn, and every checkpoint is a point. Points are numbered
in log order, so a number never changes. A checkpoint is a file, `checkpoints/<n>.json`, that
describes the session without the log and names a snapshot of the work tree. A turn or a mid-turn
message has no file: its snapshot is taken before the first call that can change something. This
module reads the log only in `entries_up_to_checkpoint`; other functions receive its entries.
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
from .copies import CHECKPOINTS_FOLDER
from .entries import Checkpoint, Entry, User
from .log import Entries, timestamp
from .store import MAX_KEPT_BYTES, content_text

if TYPE_CHECKING:
    from ..worktree import RepositoryRecorder, SavedFile, SavedFiles, TreeChange, WorkTree
    from ..worktree.repository_restore import RepositoryRestorer

TURN_TRIGGER = "turn"  # trigger of a snapshot at the start of a turn
BEFORE_REWIND_TRIGGER = "before rewind"
OBJECTS_GONE = "git has deleted objects that the snapshot needs"
SNAPSHOT_FAILED = "git could not take a snapshot"
NO_SNAPSHOTS = "this session keeps no snapshots of the files"
RESTORED_WITHOUT_SNAPSHOT = (
    "/rewind restores only the conversation and files named by Edit, Write or Bash"
)


@dataclass(frozen=True, slots=True)
class CheckpointFacts:
    """The state of a conversation that a checkpoint saves."""

    intent: str
    document: Mapping[str, Any]  # of the summary, as plain JSON
    ledger: Mapping[str, Any]  # as plain JSON
    todos: Sequence[Mapping[str, str]]
    tokens: int  # in the context
    window: int  # size of the context window in tokens
    model: str
    mode: str


@dataclass(frozen=True, slots=True)
class SavedCheckpoint:
    """The content of a checkpoint's file."""

    number: int
    at: str
    trigger: str
    session: str
    seq: int  # of the log's newest entry at that time
    facts: CheckpointFacts
    head: str  # git branch and commit
    snapshot: str | None  # a tree in the private store
    limits: str  # the files left out of the snapshot, or why there is no snapshot


@dataclass(frozen=True, slots=True)
class RewindPoint:
    """A rewind target: before a turn, before a mid-turn message, or at a checkpoint."""

    number: int
    seq: int  # of the last entry that a rewind keeps
    at: str
    trigger: str
    words: str  # the newest user message; for a turn, its first message
    path: str = ""  # of the checkpoint's file, "" for a turn
    # The snapshot of the files. None if the files were not saved; without `changed`, None means
    # that the current files still apply.
    snapshot: str | None = None
    changed: bool = False  # the files may have changed since
    mid_turn: bool = False  # before a message sent during a turn
    repository: str = ""  # name of the record of the git repository


@dataclass(frozen=True, slots=True)
class RewindDifference:
    """The file changes that a rewind would make."""

    changes: "Sequence[TreeChange]"
    diff: str  # unified, of bounded length
    staying: Sequence[str] = ()  # changed files that the rewind leaves alone
    unknown: Sequence[str] = ()  # files that may have existed then but were not saved


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """The files to restore for a rewind to a point, and the files to leave alone."""

    point: RewindPoint
    saved: "Mapping[str, SavedFile]" = field(default_factory=dict)  # first states since, by path
    stay: frozenset[str] = frozenset()  # paths of files to leave alone


@dataclass(slots=True)
class PointCounter:
    """The number of the newest point, counted entry by entry."""

    newest: int = 0
    snapshot_due: bool = False  # the turn's snapshot is not taken yet

    def add(self, entry: Entry) -> None:
        """Count one entry of the log."""
        self.newest = _newest_number(self.newest, entry)
        if _is_user_message(entry):
            self.snapshot_due = True
        elif isinstance(entry, Checkpoint):
            self.snapshot_due = False


class Checkpoints:
    """The checkpoints of one session: creates them and restores files from them. Checkpoints
    contain no files when there is no work tree or when it is too large.
    """

    def __init__(
        self,
        folder: Path,
        worktree: "WorkTree | None",
        counter: PointCounter | None = None,
        saved: "SavedFiles | None" = None,
        keeper: "RepositoryRecorder | None" = None,
    ) -> None:
        self.folder = folder
        self.worktree = worktree
        self.saved = saved
        self.keeper = keeper
        self._counter = counter or PointCounter()
        self._has_no_files = False  # the newest turn's snapshot has no files
        self._limits_noticed = ""  # what the newest notice said about the repository records

    @property
    def newest(self) -> int:
        """The number of the newest point."""
        return self._counter.newest

    @property
    def limits(self) -> str:
        """The files that are not saved, with the reason, or "" if all files are saved."""
        return self.worktree.limits if self.worktree else NO_SNAPSHOTS

    def add(self, entry: Entry) -> None:
        """Count one entry of the log."""
        self._counter.add(entry)

    def turn_snapshot(self) -> Checkpoint | None:
        """Take this turn's snapshot and return its entry, which the caller records. Return None if
        it was already taken. Call this before every call that can change something. Blocks and
        never fails: the entry has no snapshot if files cannot be saved.
        """
        if not self._counter.snapshot_due:
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
        """Return a notice that a turn's snapshot has no files. Return "" if it has files or if the
        previous turn already gave the notice.
        """
        noticed, self._has_no_files = self._has_no_files, taken.snapshot is None
        if self.worktree is None or noticed or not self._has_no_files:
            return ""
        return f"{self.limits or SNAPSHOT_FAILED}; {RESTORED_WITHOUT_SNAPSHOT}"

    def repository_notice(self) -> str:
        """Return what the records of the git repository lack, or "" if that has not changed since
        the last call.
        """
        before, self._limits_noticed = (
            self._limits_noticed,
            self.keeper.limits if self.keeper else "",
        )
        return self._limits_noticed if self._limits_noticed != before else ""

    def copied_snapshot(self, point: RewindPoint) -> Checkpoint:
        """Return an entry with a turn's snapshot. A copied session needs it if the copy ends before
        the original entry.
        """
        return Checkpoint(
            number=self._counter.newest,
            path="",
            snapshot=point.snapshot,
            trigger=point.trigger,
            repository=point.repository,
        )

    def take(self, facts: CheckpointFacts, trigger: str, seq: int) -> Checkpoint:
        """Write a checkpoint and return its entry, which the caller records. `seq` is that of the
        log's newest entry. Blocks. Raises RecordError if the file cannot be written.
        """
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

    def difference(self, plan: RestorePlan, now: str | None = None) -> RewindDifference:
        """Return the changes that restoring the files of a point would make to the snapshot `now`,
        by default to the current files. Blocks. Raises RecordError with the reason if the files
        cannot be restored.
        """
        saved = self._individually_saved(plan)
        changes = self.saved.changes(saved) if self.saved else []
        known = set[str]()
        texts: list[str] = []
        stay = [file for path, file in plan.saved.items() if path in plan.stay]
        staying = {c.path for c in (self.saved.changes(stay) if self.saved else ())}
        unknown = frozenset[str]()
        if plan.point.snapshot is not None or not saved:
            worktree, then = self._worktree_and_snapshot(plan.point)
            if now is None:
                worktree.check_restorable(then, plan.stay)
                now, _, limits = self._snapshot()
                if now is None:
                    raise RecordError(f"the current files cannot be saved: {limits}")
            different = {c.path for c in worktree.compare(now, then)}
            staying |= different & plan.stay
            left = worktree.not_removed(then, now)
            unknown = left.unknown - plan.stay - {file.path for file in saved}
            then = worktree.with_current_files(different & (plan.stay | left.all), then, now)
            in_tree = worktree.compare(now, then)
            known = {change.path for change in in_tree}
            changes = [*in_tree, *(change for change in changes if change.path not in known)]
            texts = [worktree.diff(now, then)]
        if self.saved and changes:
            texts.append(self.saved.diff(file for file in saved if file.path not in known))
        return RewindDifference(changes, "".join(texts), sorted(staying), sorted(unknown))

    def check_restorable(self, plan: RestorePlan) -> None:
        """Raise RecordError with the reason if the files of a point cannot be restored. Blocks."""
        saved = self._individually_saved(plan)
        if plan.point.snapshot is not None or not saved:
            worktree, then = self._worktree_and_snapshot(plan.point)
            worktree.check_restorable(then, plan.stay)
        if self.saved:
            self.saved.check(saved)

    def exclude(self, plan: RestorePlan, paths: Collection[str]) -> RestorePlan:
        """Exclude these paths from the rewind, except those restored from the point's snapshot.
        Blocks.
        """
        individual = {file.path for file in self._individually_saved(plan)}
        return replace(plan, stay=plan.stay | (individual & set(paths)))

    def add_overwritten_files(self, plan: RestorePlan, before: Checkpoint) -> Checkpoint:
        """Add the ignored files that a rewind would overwrite to `before`, the checkpoint taken
        just before it. If the returned entry differs from `before`, record it too. Blocks. Raises
        RecordError if the files cannot be restored.
        """
        if plan.point.snapshot is None and plan.saved:
            return before
        worktree, then = self._worktree_and_snapshot(plan.point)
        name = self._name(before.number)
        return replace(before, snapshot=worktree.save_overwritten(then, name, plan.stay))

    def restore(self, plan: RestorePlan) -> "Sequence[TreeChange]":
        """Restore the files of a point and return the changes made. Blocks. Raises RecordError on
        failure: no file or only some files have changed then.
        """
        saved, changes = self._individually_saved(plan), list["TreeChange"]()
        if plan.point.snapshot is not None or not saved:
            worktree, then = self._worktree_and_snapshot(plan.point)
            changes += worktree.restore(then, plan.stay)
        return [*changes, *(self.saved.restore(saved) if self.saved else ())]

    def changes_done(
        self, plan: RestorePlan, before: Checkpoint, changes: "Sequence[TreeChange]"
    ) -> "Sequence[TreeChange]":
        """Return the changes that an interrupted restore has made, out of `changes` from the
        checkpoint `before` to a point. Blocks. Raises RecordError.
        """
        saved = self._individually_saved(plan)
        individual = {file.path for file in saved}
        left = {c.path for c in self.saved.changes(saved)} if self.saved else set[str]()
        done = [c for c in changes if c.path in individual - left]
        others = [c for c in changes if c.path not in individual]
        if others:
            worktree, then = self._worktree_and_snapshot(plan.point)
            done += worktree.changes_done(others, before.snapshot or then, then)
        return done

    def no_longer_kept(self, plan: RestorePlan) -> list[str]:
        """Return the changed files whose saved content has been dropped, for example an old version
        of a large file. Blocks.
        """
        if self.saved is None:
            return []
        gone = [file for file in self._missing_from_snapshot(plan) if not self.saved.has(file)]
        return sorted(change.path for change in self.saved.changes(gone))

    def _individually_saved(self, plan: RestorePlan) -> "list[SavedFile]":
        """Return the individually saved files to restore."""
        saved = self.saved
        return [f for f in self._missing_from_snapshot(plan) if saved.has(f)] if saved else []

    def _missing_from_snapshot(self, plan: RestorePlan) -> "list[SavedFile]":
        """Return the individually saved files that are missing from the point's snapshot.

        A file that certainly did not exist at the point gets an empty blob, even if it was saved
        later. The absence of a file may only be inferred from its later creation. Such a file is
        skipped inside the work tree unless a scan found it absent, because the snapshot may have
        left it out.
        """
        files = {p: f for p, f in plan.saved.items() if not f.why and p not in plan.stay}
        if plan.point.repository:  # its record restores the repository
            files = {p: f for p, f in files.items() if "/.git/" not in p}
        tree = plan.point.snapshot
        if tree is not None and self.worktree is not None and files:
            held = self.worktree.files_in_tree(tree, files)
            absent = self.worktree.surely_absent(tree, files)
            files = {
                path: replace(file, blob="", mode=0) if path in absent else file
                for path, file in files.items()
                if path not in held
                and (path in absent or not file.inferred or not self.worktree.is_inside(path))
            }
        return list(files.values())

    def _name(self, number: int) -> str:
        return f"{self.folder.name}/{number}"

    def _worktree_and_snapshot(self, point: RewindPoint) -> tuple["WorkTree", str]:
        """Return the work tree and the snapshot of a point. Raises RecordError if the point has no
        snapshot, if its repository is missing, or if git has deleted objects of the snapshot.
        """
        if self.worktree is None or point.snapshot is None:
            raise RecordError(
                f"the files of point {point.number} were not kept: {self._why(point)}"
            )
        whole = self.worktree.is_whole(point.snapshot)  # sets `root` as a side effect
        root = self.restorer.root(point.repository) if point.repository else ""
        if root not in ("", self.worktree.root):
            raise RecordError(
                f"the git repository of {root} is missing",
                hint=f"/rewind {point.number} repository restores it; then resume the session.",
            )
        if not whole:
            raise RecordError(f"the files of point {point.number} are gone: {OBJECTS_GONE}")
        return self.worktree, point.snapshot

    def _why(self, point: RewindPoint) -> str:
        if point.path:
            with contextlib.suppress(SessionError):  # fall back to the current limits
                return load_checkpoint(self.folder, point.number).limits
        return self.limits or SNAPSHOT_FAILED

    @property
    def restorer(self) -> "RepositoryRestorer":
        """The object that restores the git repository from its records. Raises RecordError if the
        session keeps none.
        """
        from ..worktree.repository_restore import RepositoryRestorer

        if self.keeper is None:
            raise RecordError("this session keeps no records of the git repository")
        return RepositoryRestorer(self.keeper)

    def _record(self) -> str:
        """Record the git repository and return the record's name, or "" if there is none."""
        return self.keeper.take() if self.keeper else ""

    def _snapshot(self, name: str = "") -> tuple[str | None, str, str]:
        """Save the files under a name. Return the tree, git's HEAD and a description of the files
        left out.
        """
        if self.worktree is None:
            return None, "", NO_SNAPSHOTS
        look = self.worktree.snapshot(name)
        return look.tree, look.head, self.worktree.limits or ("" if look.tree else SNAPSHOT_FAILED)


def rewind_points(entries: Iterable[Entry]) -> list[RewindPoint]:
    """Return every point of a log, newest first. A turn's files are those of the first checkpoint
    after its message, because the agent has changed nothing before that.
    """
    found: list[RewindPoint] = []
    newest, words, waiting = 0, "", 0  # `waiting`: number of newest points without files
    for entry in entries:
        newest = _newest_number(newest, entry)
        if isinstance(entry, User) and _is_user_message(entry):
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
                # `add_overwritten_files` may have changed the entry, which is then recorded again.
                if found and found[-1].number == entry.number:
                    found.pop()
                here = RewindPoint(entry.number, entry.seq, entry.at, entry.trigger, words)
                here = replace(here, path=entry.path, repository=entry.repository)
                found.append(replace(here, snapshot=entry.snapshot, changed=True))
    return found[::-1]


def load_checkpoint(folder: Path, number: int) -> SavedCheckpoint:
    """Read a checkpoint of the session in `folder`. Raises NoSuchSession for an unknown number and
    SessionError for a broken file.
    """
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
            hint="The log still has all messages and calls up to it.",
        ) from error


def entries_up_to_checkpoint(log: Path, number: int | None = None) -> Reversible[Entry]:
    """Return a session's entries up to a checkpoint (default: the newest). Does not read the
    checkpoint's file. Raises NoSuchSession for an unknown checkpoint.
    """
    for entry in reversed(Entries(log)):
        if isinstance(entry, Checkpoint) and entry.path and number in (None, entry.number):
            return Entries(log, upto=entry.seq)
    which = "no checkpoint" if number is None else f"no checkpoint {number}"
    raise NoSuchSession(f"session {log.parent.name} has {which}", hint=_existing(log.parent))


def _is_user_message(entry: Entry) -> bool:
    """Return True if an entry is a user message. Each one is a point."""
    return isinstance(entry, User) and entry.source == "person"


def _newest_number(newest: int, entry: Entry) -> int:
    if _is_user_message(entry):
        return newest + 1
    if isinstance(entry, Checkpoint) and entry.path:
        return max(newest, entry.number)
    return newest


def _existing(folder: Path) -> str:
    numbers = sorted(
        int(p.stem) for p in (folder / CHECKPOINTS_FOLDER).glob("*.json") if p.stem.isdigit()
    )
    if not numbers:
        return "Take one with /checkpoint."
    return f"It has {', '.join(map(str, numbers))}."


def _write(path: Path, saved: SavedCheckpoint) -> None:
    text = json.dumps({"v": 1, **asdict(saved)}, ensure_ascii=False, indent=1, default=str)
    try:
        make_private_folder(path.parent)
        replace_file(path, text.encode("utf-8", "surrogatepass"), single_writer=True)
    except OSError as error:
        raise RecordError(
            f"cannot write the checkpoint {path}: {error.strerror}",
            hint="Free disk space, then continue.",
        ) from error


_SHAPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("number", "seq", "tokens", "window"), (int,)),
    **dict.fromkeys(("facts", "document", "ledger"), (dict,)),
    "todos": (list,),
    "snapshot": (str, type(None)),
}


def _parse_checkpoint(data: Any) -> SavedCheckpoint:
    """Parse a checkpoint. Raises ValueError with the name of the bad field."""
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
                f"{name} is missing" if name not in data else f"{name} has the wrong type"
            )
        given[name] = data[name]
    return given
