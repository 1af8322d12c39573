"""Snapshots of the work tree, used to list the changes of a command and to restore files.

Each snapshot is a git tree in a private store (see `object_store`; `staging` decides its content).
The project's repository is never written, and its index and settings are never applied. Files that
snapshots leave out (ignored, large, outside the root) are compared by signature, if they are
watched. Without git, or with too many files, only signatures are used and `limits` gives the
reason. A failing git command makes a state less complete and never raises.
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from ...tools.system.files import is_part_name
from ...tools.system.git_links import first_outside_link
from ..errors import RecordError
from ..lazy import dataclass
from . import diff, garbage, restore, saved_files
from .diff import DiffAction, FileSignature, TreeChange, blob_digest, read_signature, scan_folder
from .left_out import LeftOut, load_left_out
from .object_store import (
    GitFailed,
    ObjectStore,
    Repository,
    copy_borrowed_objects,
    find_repository,
    personal_excludes,
)
from .restore import NotRemoved
from .saved_files import SavedFile
from .staging import MAX_WATCHED_FILES, StagingArea, file_stamp, is_in_repository
from .watch import FolderWatch

T = TypeVar("T")

MAX_NAMED_FILES = 1_000  # watched files in a named folder
MAX_ASKED_NAMES = 500  # in one git command
MAX_DIFF_BYTES = 400_000
CUT_NOTICE = "\n[the diff is longer than {most:,} bytes and was cut here]\n"


@dataclass(frozen=True, slots=True)
class TreeState:
    """The files at one moment."""

    tree: str | None  # the kept files; in a snapshot with their permissions
    stats: Mapping[str, FileSignature] = field(default_factory=dict)  # of files only watched
    head: str = ""  # `branch commit`
    named: Mapping[str, Mapping[str, FileSignature]] = field(default_factory=dict)  # by named path
    cut: bool = False  # there were more files than MAX_WATCHED_FILES


class UnkeptFiles(NamedTuple):
    """Files that a tree does not contain, and named folders with too many files to save all of
    them.
    """

    paths: Sequence[str]
    left_out: Sequence[SavedFile]


class WorkTree:
    """The files of the project that contains `cwd`.

    `store` and `index` are the paths of the private store. `env` is the environment of the model's
    commands. Nothing is written to disk before the first scan. All methods block and are
    thread-safe.
    """

    def __init__(self, cwd: Path, *, store: Path, index: Path, env: Mapping[str, str]) -> None:
        self.root = os.path.realpath(cwd)
        self.present = ""  # the snapshot taken by the newest `restore`, with all it overwrote
        self.sweeping: threading.Thread | None = None  # the thread that clears the store
        self._paths = (store, index)
        self._env = env
        self._lock = threading.RLock()
        self._opened = False
        self._staging: StagingArea | None = None
        self._repository: Repository | None = None
        self._limits = ""
        self._newest_trees: deque[str] = deque(maxlen=garbage.MAX_NEWEST_TREES)
        self._borrowed_from: str | None = (
            None  # the HEAD whose objects this session's snapshots borrow
        )
        self._watch: FolderWatch | None = None  # used from the second scan on
        # The result of the last scan, if it has a tree, and the stamps it depends on.
        self._last: tuple[str, Mapping[str, FileSignature]] | None = None
        self._stamps: tuple[object, object] = (None, None)
        self._ignore_files: list[str] = []  # ignore files outside the work tree
        # Cached answers of git, by name: whether a missing file is ignored. Cleared by each full
        # scan, which follows every change of an ignore file.
        self._ignored: dict[str, bool] = {}

    @property
    def limits(self) -> str:
        """The files that are not kept, with the reason, or ""."""
        return self._limits or (self._staging.limits if self._staging else "")

    def observe(self, named: Collection[str] = (), *, full: bool = True) -> TreeState:
        """Return the current state. `named` are absolute paths to watch regardless of ignore rules.
        Without `full`, only the files that the folder watch has seen change are scanned, if that is
        enough.
        """
        with self._lock:
            self._open()
            tree, stats = (None if full else self._scan_changed()) or self._scan_all()
            return TreeState(
                tree,
                stats,
                self._repository.head() if self._repository else "",
                {path: _watched(path) for path in named},
                cut=tree is None and len(stats) >= MAX_WATCHED_FILES,
            )

    def changes(self, before: TreeState, after: TreeState) -> list[TreeChange]:
        """Return the changes between two states, sorted by path. A part file that has been renamed
        since is left out.
        """
        found: dict[str, TreeChange] = {}
        for name in before.named.keys() & after.named.keys():
            found |= diff.compare_signatures(before.named[name], after.named[name])
        if before.tree is None and after.tree is None:
            stats = diff.compare_signatures(before.stats, after.stats)
            cut = before.cut or after.cut
            found |= diff.certain_changes(stats, before.stats) if cut else stats
        elif before.tree is not None and after.tree is not None:
            found |= diff.compare_signatures(before.stats, after.stats)
            old, new = before.tree, after.tree
            with suppress(RecordError):
                for change in self._ask_store(lambda store: diff.compare_trees(store, old, new)):
                    found[change.path] = diff.without_moves(change, before.stats, after.stats)
        return [found[path] for path in sorted(found) if not _was_part_file(path)]

    def compare(self, old: str, new: str) -> list[TreeChange]:
        """Return the differences between two trees, including permissions if both are snapshots.
        Raises RecordError if a tree is missing.
        """
        found = self._ask_store(lambda store: diff.compare_trees(store, old, new))
        known = {change.path for change in found}
        others = self._ask_store(lambda store: saved_files.changed_modes(store, old, new))
        paths = (f"{self.root}/{name}" for name in others)
        return [*found, *(TreeChange(path, "modified") for path in paths if path not in known)]

    def unkept_files(self, look: TreeState) -> UnkeptFiles:
        """Return the named files of a state that its tree does not contain. A named path without a
        file is included if there is no tree or if a tree would leave the file out.
        """
        paths, left_out = list[str](), list[SavedFile]()
        absent = {p for p, files in look.named.items() if not (files or os.path.isdir(p))}  # noqa: PTH112
        if look.tree:
            absent = self._never_kept(absent)
        for named, files in look.named.items():
            paths += [named] if named in absent else files
            if len(files) >= MAX_NAMED_FILES:
                why = f"only the first {MAX_NAMED_FILES:,} files in it are saved"
                left_out.append(SavedFile(named, why=why))
        held = self._files_in_scan(look.tree, paths) if look.tree and paths else set()
        return UnkeptFiles([path for path in paths if path not in held], left_out)

    def _files_in_scan(self, tree: str, paths: Iterable[str]) -> set[str]:
        """Return the same as `files_in_tree` for the tree of a scan, without starting git if the
        folders are cached.
        """
        top = len(self.root) + 1
        names = {path[top:] for path in paths if self.is_inside(path)}
        with self._lock, suppress(GitFailed):
            if self._staging is not None:
                return {f"{self.root}/{name}" for name in self._staging.files_in(tree, names)}
        return self.files_in_tree(tree, paths)

    def _never_kept(self, paths: Collection[str]) -> set[str]:
        """Return the absolute paths below the root that are ignored or in another repository."""
        top = len(self.root) + 1
        names = {path[top:] for path in paths if path.startswith(f"{self.root}/")}
        found = {name for name in names if is_in_repository(self.root, name)}
        with self._lock:
            if self._staging is not None and (asked := names - found - self._ignored.keys()):
                ignored = self._staging.ignored_names(asked)
                self._ignored |= {name: name in ignored for name in asked}
        found |= {name for name in names - found if self._ignored.get(name)}
        return {f"{self.root}/{name}" for name in found}

    def files_in_tree(self, tree: str, paths: Iterable[str]) -> set[str]:
        """Return the absolute paths at which a tree or snapshot has a file. Return an empty set if
        the tree is missing.
        """
        top = len(self.root) + 1
        names = sorted({path[top:] for path in paths if path.startswith(f"{self.root}/")})
        found = set[str]()
        with suppress(RecordError):
            for at in range(0, len(names), MAX_ASKED_NAMES):
                some = names[at : at + MAX_ASKED_NAMES]
                found |= self._ask_store(
                    partial(saved_files.file_kinds, tree=tree, names=some)
                ).keys()
        return {f"{self.root}/{name}" for name in found}

    def snapshot(self, name: str = "") -> TreeState:
        """Return a state whose tree is complete and includes permissions. With a `name`, the
        snapshot survives the clearing of the store. Never fails: `limits` says why there is no
        tree.
        """
        return self._snapshot(name)

    def _snapshot(self, name: str = "", *, lasting: bool = True) -> TreeState:
        """Take a snapshot. If not `lasting`, it is only compared and does not record the files left
        out, which would need another scan.
        """
        with self._lock:
            state = self.observe()
            if state.tree is None or self._staging is None:
                return state
            return replace(state, tree=self._keep(self._staging, name, lasting=lasting))

    def diff(self, old: str, new: str) -> str:
        """Return the unified diff between two trees. A long diff is cut and ends with CUT_NOTICE.
        Raises RecordError.
        """
        command = (*diff.DIFF_COMMAND, "-p", old, new)
        said = self._ask_store(lambda store: store.start(*command, max_bytes=MAX_DIFF_BYTES + 1))
        text = diff.decoded(said[:MAX_DIFF_BYTES], Path(self.root))
        return text + CUT_NOTICE.format(most=MAX_DIFF_BYTES) if len(said) > MAX_DIFF_BYTES else text

    def is_whole(self, tree: str) -> bool:
        """Return True if every object of a tree exists."""
        try:
            self._ask_store(lambda store: store.run("rev-list", "--objects", "--quiet", tree))
        except RecordError:
            return False
        return True

    def is_inside(self, path: str) -> bool:
        """Return True if an absolute path is below the root."""
        return path.startswith(f"{self.root}/")

    def surely_absent(self, tree: str, paths: Iterable[str]) -> set[str]:
        """Return the absolute paths below the root where certainly no file existed when a snapshot
        was taken: neither the snapshot nor its record of files left out has them.
        """
        asked, top = set(paths), len(self.root) + 1
        with suppress(RecordError):
            record = self._ask_store(lambda store: load_left_out(store, tree))
            inside = {path for path in asked if self.is_inside(path)}
            if record is not None:
                absent = {path for path in inside if not record.may_have_had(path[top:])}
                return absent - self.files_in_tree(tree, absent)
        return set()

    def not_removed(self, tree: str, now: str) -> NotRemoved:
        """Return the files in the current snapshot `now` that `tree` lacks and `restore` does not
        remove. Raises RecordError.
        """
        with self._lock:
            self._open()
            staging = self._staging
            if staging is None:
                raise self._cannot_keep()
            return self._ask_store(lambda _: restore.not_removed(staging, now, tree))

    def with_current_files(self, stay: Collection[str], tree: str, now: str) -> str:
        """Return a snapshot like `tree`, but with the files `stay` as in the snapshot `now`. Raises
        RecordError.
        """
        return self._ask_store(lambda store: restore.keep_files(store, stay, tree, now))

    def check_restorable(self, tree: str, stay: Collection[str] = ()) -> None:
        """Raise RecordError if `tree` cannot be restored (except `stay`): the tree is missing, the
        current files cannot be kept, or an unkept file is in the way. Changes nothing.
        """
        with self._lock:
            staging, target, _ = self._prepare_restore(tree, stay)
            self._ask_store(lambda _: restore.check_restore(staging, target))

    def save_overwritten(self, tree: str, name: str, stay: Collection[str] = ()) -> str:
        """Take a named snapshot of everything that `restore` would overwrite, including ignored and
        large files. Raises RecordError like `check_restorable`.
        """
        with self._lock:
            *_, found = self._stage_for_restore(tree, name, stay)
            return found

    def restore(self, tree: str, stay: Collection[str] = ()) -> list[TreeChange]:
        """Restore the files of `tree` (except `stay`), with content and modes, and return the
        changes.

        Files that certainly did not exist then are removed, with folders that become empty. Ignored
        files, large files, other repositories, and files that were or may have been left out of
        `tree` stay. Raises RecordError: before any change if `check_restorable` would, or if a file
        cannot be written.
        """
        with self._lock:
            staging, target, wanted, self.present = self._stage_for_restore(tree, "", stay)
            try:
                restore.restore_files(staging, target, wanted)
            except GitFailed as error:
                raise RecordError(f"not all files could be restored: {error}") from error
            return self.compare(self.present, self._snapshot(lasting=False).tree or tree)

    def changes_done(self, changes: Collection[TreeChange], old: str, new: str) -> list[TreeChange]:
        """Return the changes that an interrupted restore has made on disk, out of `changes` from
        `old` to `new`. It is used when no snapshot can be taken. Raises RecordError.
        """
        back = {change.path: change.blob for change in self.compare(new, old)}
        found = []
        for change in changes:
            there = os.path.lexists(change.path)
            if (blob_digest(change.path) if there else "") != back.get(change.path, change.blob):
                action: DiffAction = "modified" if there else "deleted"
                created = there and change.action == "created"
                found.append(TreeChange(change.path, "created" if created else action))
        return found

    def _prepare_restore(
        self, tree: str, stay: Collection[str] = ()
    ) -> tuple[StagingArea, str, saved_files.FileModes | None]:
        """Return the up-to-date staging area, and the tree and permissions to restore."""
        if not self.is_whole(tree):
            raise _gone(tree)
        target, wanted = self._ask_store(lambda store: saved_files.load_with_modes(store, tree))
        now = self._snapshot(lasting=False).tree
        if now is None or self._staging is None:
            raise self._cannot_keep()
        left = self.not_removed(tree, now).all
        if stay := left | frozenset(stay):
            kept = self.with_current_files(stay, tree, now)
            target, wanted = self._ask_store(lambda store: saved_files.load_with_modes(store, kept))
        return self._staging, target, wanted

    def _stage_for_restore(
        self, tree: str, name: str = "", stay: Collection[str] = ()
    ) -> tuple[StagingArea, str, saved_files.FileModes | None, str]:
        """Like `_prepare_restore`, but also stage every file that would be overwritten, and return
        the snapshot of them.
        """
        staging, target, wanted = self._prepare_restore(tree, stay)
        self._ask_store(lambda _: restore.check_restore(staging, target))
        self._ask_store(lambda _: restore.stage_overwritten(staging, target))
        covered = staging.tree
        found = self._keep(staging, name)
        if found is None or staging.tree != covered:  # staged again, without ignored files
            raise self._cannot_keep()
        return staging, target, wanted, found

    def _cannot_keep(self) -> RecordError:
        return RecordError(f"the current files cannot be saved: {self.limits or 'try again'}")

    def _keep(self, staging: StagingArea, name: str, *, lasting: bool = True) -> str | None:
        """Take a snapshot of the newest tree, under a name if given. Return None if that fails."""
        try:
            tree = self._whole_tree(staging, lasting=lasting)
            if tree and name:  # with the tree, because a copied session may use the same number
                staging.store.run("update-ref", f"refs/kept/{name}-{tree}", tree)
        except GitFailed as error:
            self._limits = f"files are not kept: {error}"
            return None
        return tree

    def _whole_tree(self, staging: StagingArea, *, lasting: bool) -> str | None:
        """Return the tree of `staging` with permissions, once all its objects are in the store or
        reachable from the repository's HEAD. If objects are missing, stage everything again. Return
        None if there is no tree then. Raises GitFailed.
        """
        store, error = staging.store, GitFailed("objects that it needs are missing")
        for _ in range(2):
            try:
                with ThreadPoolExecutor(1) as pool:
                    listing = pool.submit(_list_left_out, staging) if lasting else None
                    self._copy_borrowed(staging)
                    if self.is_whole(staging.tree):
                        found = saved_files.read_modes(self.root, saved_files.file_kinds(store))
                        left_out = listing.result() if listing else None
                        return saved_files.store_with_modes(store, staging.tree, found, left_out)
            except GitFailed as failed:
                error = failed
            staging.forget()
            if self._current_tree()[0] is None:
                return None
        raise error

    def _copy_borrowed(self, staging: StagingArea) -> None:
        """Copy objects that the repository may delete: those of the newest tree, and after each
        change of HEAD those of all kept snapshots of this session.
        """
        store, repository = staging.store, self._repository
        if repository is None or not repository.borrowable:
            return
        commit = repository.commit()
        copy_borrowed_objects(store, staging.tree, commit)
        if commit != self._borrowed_from:
            asked = ("for-each-ref", "--format=%(objectname) %(tree)", f"refs/kept/{store.session}")
            with suppress(GitFailed):
                lines = store.run(*asked).decode().splitlines()
                for tree in {line.split()[-1] for line in lines}:
                    with suppress(GitFailed):  # an incomplete tree
                        copy_borrowed_objects(store, tree, commit)
        self._borrowed_from = commit

    def _protect_newest(self, staging: StagingArea, tree: str) -> None:
        """Record the trees that must stay in the store, and clear the store if due."""
        store, first = staging.store, not self._newest_trees
        if first or self._newest_trees[-1] != tree:
            self._newest_trees.append(tree)
        if first or not garbage.protect_one_more(store, store.session, tree):
            garbage.protect_trees(store, store.session, self._newest_trees)
        if garbage.is_sweep_due(store) if first else staging.taken > garbage.SWEEP_AFTER_BYTES:
            self.sweeping = threading.Thread(target=_sweep, args=(store,), daemon=True)
            self.sweeping.start()
        if first or staging.taken > garbage.SWEEP_AFTER_BYTES:
            staging.taken = 0

    def _scan_changed(self) -> tuple[str | None, Mapping[str, FileSignature]] | None:
        """Return the same as `_scan_all` by scanning only files changed since the last scan. Return
        None if a full scan is needed.
        """
        watch, staging = self._watch, self._staging
        if watch is None or staging is None or self._last is None:
            return None
        quiet = watch.is_quiet()
        if self._read_stamps() != self._stamps:
            return None
        if quiet:
            return self._last
        paths, (tree, stats) = watch.renew(), self._last
        if paths is None or (self._repository and first_outside_link(self.root)):
            return None
        try:
            if not staging.update_few({path[len(self.root) + 1 :] for path in paths}, stats):
                return None
        except GitFailed:
            return None
        self._last = (staging.tree, stats)
        if staging.tree != tree:
            self._protect_newest(staging, staging.tree)
        return self._last

    def _scan_all(self) -> tuple[str | None, Mapping[str, FileSignature]]:
        """Scan all files. Return the current tree and the signatures of files that are only
        watched, or of all files if there is no tree.
        """
        (rules, index), before = self._read_stamps(), self._last
        if self._watch:
            if rules != self._stamps[0]:
                self._watch.search_again()
            self._watch.renew()
        tree, stats = self._current_tree()
        self._last, self._ignored = None, {}
        if tree is None or self._staging is None:
            return tree, scan_folder(self.root, MAX_WATCHED_FILES)
        if self._watch is None:
            self._watch = FolderWatch(self.root, self._staging.ignored_folders)
        elif index != self._stamps[1] and before and tree != before[0]:
            self._watch.search_again()  # ignored files may count now
        self._last, self._stamps = (tree, stats), (rules, index)
        self._protect_newest(self._staging, tree)
        return tree, stats

    def _read_stamps(self) -> tuple[object, object]:
        """Return the stamps of the ignore files outside the work tree and of the project's
        index.
        """
        index = file_stamp(self._repository.index) if self._repository else None
        return [file_stamp(path) for path in self._ignore_files], index

    def _open(self) -> None:
        if self._opened:
            return
        self._opened = True
        home = os.path.realpath(self._env.get("HOME") or os.path.expanduser("~"))  # noqa: PTH111
        try:
            repository = find_repository(self.root, self._env)
            if repository and repository.root not in ("/", home):
                self._repository, self.root = repository, repository.root
            if self.root in ("/", home):
                self._limits = f"files are not kept: {self.root} is not a project"
                return
            store = ObjectStore(*self._paths, self.root, self._env)
            hidden = {_below(self.root, path.parent) for path in self._paths}
            personal = personal_excludes(self._env)
            store.make(self._repository, personal, sorted(filter(None, hidden)))
            self._ignore_files = [personal]
            self._ignore_files += [self._repository.excludes] if self._repository else []
            self._staging = StagingArea(store, self._repository)
            store.refresh()
        except GitFailed as error:
            self._limits = f"files are not kept: {error}"

    def _current_tree(self) -> tuple[str | None, Mapping[str, FileSignature]]:
        """Return the current tree, and the signatures of files that are only watched."""
        if self._staging is None or not self._staging.whole:
            return None, {}
        if self._repository and (astray := first_outside_link(self.root)):
            self._limits = f"files are not kept: {astray}"
            return None, {}
        first = not self._newest_trees
        for last in (False, True):
            try:
                stats = self._staging.update()
            except GitFailed as error:
                self._limits = f"files are not kept: {error}"
                self._staging.forget()
                self._staging.whole = not (first and last)
            else:
                self._limits = ""
                return (self._staging.tree or None, stats if self._staging.tree else {})
        return None, {}

    def _ask_store(self, ask: Callable[[ObjectStore], T]) -> T:
        """Return the result of `ask` on the store. Raises RecordError."""
        with self._lock:
            self._open()
        if self._staging is None:
            raise RecordError(self.limits, hint="Only the conversation can be rewound.")
        try:
            return ask(self._staging.store)
        except GitFailed as error:
            raise RecordError(f"the snapshots of the files failed: {error}") from error


def _list_left_out(staging: StagingArea) -> LeftOut | None:
    """Return the files left out of the tree, or None if git fails; then no missing file counts as
    new.
    """
    with suppress(GitFailed):
        return staging.left_out()
    return None


def _sweep(store: ObjectStore) -> None:
    with suppress(GitFailed, OSError):  # the next sweep tries again
        garbage.sweep(store)


def _gone(tree: str) -> RecordError:
    return RecordError(
        f"the snapshot {tree[:12]} is incomplete: objects that it needs were deleted "
        "from the repository",
        hint="Take another checkpoint; nothing was changed.",
    )


def _below(root: str, folder: Path) -> str:
    """Return a folder relative to the root, or "" if it is not below it."""
    real = os.path.realpath(folder)
    return real.removeprefix(f"{root}/") if real.startswith(f"{root}/") else ""


def _watched(path: str) -> Mapping[str, FileSignature]:
    """Return the signatures for a named path: of the file, or of the files in the folder."""
    found = read_signature(path, content=True)
    return {path: found} if found else scan_folder(path, MAX_NAMED_FILES)


def _was_part_file(path: str) -> bool:
    """Return True if a path is a part file that no longer exists."""
    return is_part_name(Path(path).name) and not os.path.lexists(path)
