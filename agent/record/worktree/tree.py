"""The work tree as it was: what a command has changed, and every file as it stood at a look.

A look is a tree of git in a store of our own (see `store`, and `intake` for what is in it); the
project's repository, its index and its settings are never written and never obeyed. What is not
kept there (ignored and large files, those outside of the root) is compared by signature where it
is watched at all. Where there is no git, or too much to keep, that is all there is, and `limits`
says so. A command of git that fails makes a look poorer and never fails it.
"""

import os
import re
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from ...errors import RecordError
from . import difference, modes, restore, sweep
from .borrowed import own
from .difference import Action, Change
from .intake import WATCHED, Intake
from .signatures import Signature, blob_digest, scan, signature
from .store import GitFailed, Repository, Store, find, own_excludes

_UNFINISHED = re.compile(r"\.ctxagent-[0-9a-f]{16}")

T = TypeVar("T")

NAMED = 1_000  # files of a folder that is named
NEWEST = 4  # trees that a difference may still be asked of
LONGEST = 400_000  # bytes of a diff
CUT = "\n[the diff is longer than {most:,} bytes and was cut here]\n"


@dataclass(frozen=True, slots=True)
class Look:
    """What there was at one moment. `tree` holds the files that are kept, None where none are; that
    of a snapshot has their permissions too. `stats` are those watched by signature, by absolute
    path, and `named` the same below each path that was asked for. `head` is `branch commit` or "".
    `cut`: there were more than are watched.
    """

    tree: str | None
    stats: Mapping[str, Signature] = field(default_factory=dict)
    head: str = ""
    named: Mapping[str, Mapping[str, Signature]] = field(default_factory=dict)
    cut: bool = False


class WorkTree:
    """The files of the project that `cwd` is in. `store` and `index` are where ours may be made;
    `env` is what a command of the model gets. Nothing is on disk before the first look. All
    methods block; they may be called from any thread.

    `present` is the snapshot of what was there before the newest `restore`, with all that it
    overwrote. `sweeping` clears the store, None where nothing was to be cleared yet.
    """

    def __init__(self, cwd: Path, *, store: Path, index: Path, env: Mapping[str, str]) -> None:
        self.root = os.path.realpath(cwd)
        self.present = ""
        self.sweeping: threading.Thread | None = None
        self._paths = (store, index)
        self._env = env
        self._lock = threading.RLock()
        self._opened = False
        self._intake: Intake | None = None
        self._repository: Repository | None = None
        self._limits = ""
        self._newest: deque[str] = deque(maxlen=NEWEST)
        self._commit: str | None = None  # the HEAD that this session's snapshots borrow from

    @property
    def limits(self) -> str:
        """What is not kept, and why; "" when all is well."""
        return self._limits or (self._intake.limits if self._intake else "")

    def look(self, named: Collection[str] = ()) -> Look:
        """The tree as it is now. `named` are absolute paths to watch whatever ignore rules say."""
        with self._lock:
            self._open()
            tree, stats = self._kept()
            if tree is None:
                stats = scan(self.root, WATCHED)
            elif self._intake is not None:
                self._stay(self._intake, tree)
            return Look(
                tree,
                stats,
                self._repository.head() if self._repository else "",
                {path: _watched(path) for path in named},
                cut=tree is None and len(stats) >= WATCHED,
            )

    def changes(self, before: Look, after: Look) -> list[Change]:
        """What became of the files between two looks, in the order of their paths. A file that was
        being written then, and has got its name since, is none."""
        found: dict[str, Change] = {}
        for name in before.named.keys() & after.named.keys():
            found |= difference.compared(before.named[name], after.named[name])
        if before.tree is None and after.tree is None:
            stats = difference.compared(before.stats, after.stats)
            cut = before.cut or after.cut
            found |= difference.certain(stats, before.stats) if cut else stats
        elif before.tree is not None and after.tree is not None:
            found |= difference.compared(before.stats, after.stats)
            old, new = before.tree, after.tree
            with suppress(RecordError):
                for change in self._asked(lambda store: difference.changes(store, old, new)):
                    found[change.path] = difference.placed(change, before.stats, after.stats)
        return [found[path] for path in sorted(found) if not _was_passing(path)]

    def compare(self, old: str, new: str) -> list[Change]:
        """What is different between two trees, and in the permissions that snapshots have. Raises
        RecordError when one is gone."""
        found = self._asked(lambda store: difference.changes(store, old, new))
        known = {change.path for change in found}
        others = self._asked(lambda store: modes.differing(store, old, new))
        paths = (f"{self.root}/{name}" for name in others)
        return [*found, *(Change(path, "modified") for path in paths if path not in known)]

    def snapshot(self, name: str = "") -> Look:
        """A look whose tree is whole for certain, and has permissions too. Under a `name` of ours
        it outlives the clearing of the store. It never fails: `limits` says why there is none."""
        with self._lock:
            look = self.look()
            if look.tree is None or self._intake is None:
                return look
            return replace(look, tree=self._held(self._intake, name))

    def diff(self, old: str, new: str) -> str:
        """The unified diff between two trees; a long one is cut, and says so. Raises
        RecordError."""
        asked = (*difference.COMPARED, "-p", old, new)
        said = self._asked(lambda store: store.start(*asked, most=LONGEST + 1))
        text = said[:LONGEST].decode("utf-8", "replace")
        return text + CUT.format(most=LONGEST) if len(said) > LONGEST else text

    def restorable(self, tree: str) -> bool:
        """Whether every object of a tree is still there."""
        try:
            self._asked(lambda store: store.run("rev-list", "--objects", "--quiet", tree))
        except RecordError:
            return False
        return True

    def check(self, tree: str) -> None:
        """Raises RecordError when the files cannot be made as in `tree`: it is gone, what is there
        now cannot be kept, or something that is not kept is in the way. Touches nothing."""
        with self._lock:
            intake, target, _ = self._ready(tree)
            self._asked(lambda _: restore.check(intake, target))

    def cover(self, tree: str, name: str) -> str:
        """A snapshot under a name with all that `restore` would overwrite in it: also what is
        ignored, or large. Raises RecordError as `check` does."""
        with self._lock:
            *_, found = self._covered(tree, name)
            return found

    def restore(self, tree: str) -> list[Change]:
        """Make the files as they are in `tree`, byte for byte, with their modes; what that changed.

        Files that are kept and are not in `tree` go, and folders that this leaves empty; ignored
        files, large ones and other repositories inside stay. Raises RecordError, before anything
        is touched, for what `check` finds; or when a file could not be written.
        """
        with self._lock:
            intake, target, wanted, self.present = self._covered(tree)
            try:
                restore.restore(intake, target, wanted)
            except GitFailed as error:
                raise RecordError(f"the files could not all be put back: {error}") from error
            return self.compare(self.present, self.snapshot().tree or tree)

    def since(self, changes: Collection[Change], old: str, new: str) -> list[Change]:
        """Which `changes` from one tree to another have come about on disk: for where a restore
        stopped halfway and nothing can be kept. Raises RecordError."""
        back = {change.path: change.blob for change in self.compare(new, old)}
        found = []
        for change in changes:
            there = os.path.lexists(change.path)
            if (blob_digest(change.path) if there else "") != back.get(change.path, change.blob):
                action: Action = "modified" if there else "deleted"
                created = there and change.action == "created"
                found.append(Change(change.path, "created" if created else action))
        return found

    def _ready(self, tree: str) -> tuple[Intake, str, modes.Modes | None]:
        """What takes files in, up to date and sure to be whole, and what a tree stands for."""
        if not self.restorable(tree):
            raise _gone(tree)
        target, wanted = self._asked(lambda store: modes.unwrap(store, tree))
        if self.snapshot().tree is None or self._intake is None:
            raise self._unkept()
        return self._intake, target, wanted

    def _covered(self, tree: str, name: str = "") -> tuple[Intake, str, modes.Modes | None, str]:
        """The same, with all taken in that would be overwritten; and the snapshot of that."""
        intake, target, wanted = self._ready(tree)
        self._asked(lambda _: restore.check(intake, target))
        self._asked(lambda _: restore.cover(intake, target))
        covered = intake.tree
        found = self._held(intake, name)
        if found is None or intake.tree != covered:  # taken in anew: without what is ignored
            raise self._unkept()
        return intake, target, wanted, found

    def _unkept(self) -> RecordError:
        return RecordError(f"the files as they are cannot be kept: {self.limits or 'try again'}")

    def _held(self, intake: Intake, name: str) -> str | None:
        """A snapshot of the newest tree, under a name if there is one; None where there is none,
        and `limits` says why."""
        try:
            tree = self._sure(intake)
            if tree and name:  # in full: a copy of a session may count on from the same number
                intake.store.run("update-ref", f"refs/kept/{name}-{tree}", tree)
        except GitFailed as error:
            self._limits = f"files are not kept: {error}"
            return None
        return tree

    def _sure(self, intake: Intake) -> str | None:
        """The tree of `intake`, with permissions, each object of it ours or reachable from the
        repository's HEAD. Where one is missing all is taken in anew; None when that does not help.
        Raises GitFailed."""
        store, error = intake.store, GitFailed("objects that it needs are missing")
        for _ in range(2):
            try:
                self._own(intake)
                if self.restorable(intake.tree):
                    found = modes.gather(self.root, modes.listed(store))
                    return modes.wrap(store, intake.tree, found)
            except GitFailed as failed:
                error = failed
            intake.forget()
            if self._kept()[0] is None:
                return None
        raise error

    def _own(self, intake: Intake) -> None:
        """Keep what the repository may throw away: of the newest tree, and whenever its HEAD is
        another of all that this session keeps."""
        store, repository = intake.store, self._repository
        if repository is None or not repository.borrowable:
            return
        commit = repository.commit()
        own(store, intake.tree, commit)
        if commit != self._commit:
            asked = ("for-each-ref", "--format=%(objectname) %(tree)", f"refs/kept/{store.session}")
            with suppress(GitFailed):
                lines = store.run(*asked).decode().splitlines()
                for tree in {line.split()[-1] for line in lines}:
                    with suppress(GitFailed):  # one that is not whole any more
                        own(store, tree, commit)
        self._commit = commit

    def _stay(self, intake: Intake, tree: str) -> None:
        """Say which trees must stay in the store, and clear it when it is time."""
        store, first = intake.store, not self._newest
        if first or self._newest[-1] != tree:
            self._newest.append(tree)
        sweep.remember(store, store.session, self._newest)
        if sweep.due(store) if first else intake.taken > sweep.AFTER:
            self.sweeping = threading.Thread(target=_swept, args=(store,), daemon=True)
            self.sweeping.start()
        if first or intake.taken > sweep.AFTER:
            intake.taken = 0

    def _open(self) -> None:
        if self._opened:
            return
        self._opened = True
        home = os.path.realpath(self._env.get("HOME") or os.path.expanduser("~"))  # noqa: PTH111
        try:
            repository = find(self.root, self._env)
            if repository and repository.root not in ("/", home):
                self._repository, self.root = repository, repository.root
            if self.root in ("/", home):
                self._limits = f"files are not kept: {self.root} is not a project"
                return
            store = Store(*self._paths, self.root, self._env)
            hidden = {_below(self.root, path.parent) for path in self._paths}
            store.make(self._repository, own_excludes(self._env), sorted(filter(None, hidden)))
            self._intake = Intake(store, self._repository)
            store.refresh()
        except GitFailed as error:
            self._limits = f"files are not kept: {error}"

    def _kept(self) -> tuple[str | None, Mapping[str, Signature]]:
        """The tree of now, and the signatures of what belongs to it and is only watched."""
        if self._intake is None or not self._intake.whole:
            return None, {}
        first = not self._newest
        for last in (False, True):
            try:
                stats = self._intake.update()
            except GitFailed as error:
                self._limits = f"files are not kept: {error}"
                self._intake.forget()
                self._intake.whole = not (first and last)
            else:
                self._limits = ""
                return (self._intake.tree, stats) if self._intake.whole else (None, {})
        return None, {}

    def _asked(self, ask: Callable[[Store], T]) -> T:
        """What the store says. Raises RecordError."""
        with self._lock:
            self._open()
        if self._intake is None:
            raise RecordError(self.limits, hint="Only the conversation can be taken back.")
        try:
            return ask(self._intake.store)
        except GitFailed as error:
            raise RecordError(f"the snapshots of the files failed: {error}") from error


def _swept(store: Store) -> None:
    with suppress(GitFailed, OSError):  # another time, then
        sweep.sweep(store)


def _gone(tree: str) -> RecordError:
    return RecordError(
        f"the snapshot {tree[:12]} is not whole any more: objects of the repository that it needs "
        "were deleted",
        hint="Take another checkpoint; nothing was changed.",
    )


def _below(root: str, folder: Path) -> str:
    """A folder as seen from the root, "" when it is not below."""
    real = os.path.realpath(folder)
    return real.removeprefix(f"{root}/") if real.startswith(f"{root}/") else ""


def _watched(path: str) -> Mapping[str, Signature]:
    """The signatures of a path that was named: of the file, or of those in the folder."""
    found = signature(path, content=True)
    return {path: found} if found else scan(path, NAMED)


def _was_passing(path: str) -> bool:
    """Whether this is the name that a write of ours gives a file until it is whole, and gone."""
    return bool(_UNFINISHED.fullmatch(Path(path).name)) and not os.path.lexists(path)
