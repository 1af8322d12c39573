"""Restore the files of a work tree. Git writes the files from the store's index, after checks that
the whole restore can succeed.

This module adds what git does not protect: content that no tree contains is never lost, ignored
files stay, and files get their former permissions.
"""

import os
import stat
from collections.abc import Container, Iterable, Mapping, Set
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from ..errors import RecordError
from . import saved_files
from .left_out import load_left_out
from .object_store import ObjectStore
from .saved_files import folders_of
from .staging import StagingArea, folders_above, is_real, stage_files

RAW_DIFF_COMMAND = ("diff-tree", "-r", "-z", "--no-renames", "--raw")


class NotRemoved(NamedTuple):
    """Absolute paths of files that a tree lacks and that a restore does not remove."""

    ignored: frozenset[str] = frozenset()  # ignored now
    unknown: frozenset[str] = frozenset()  # may have existed when the tree was made

    @property
    def all(self) -> frozenset[str]:
        return self.ignored | self.unknown


def not_removed(staging: StagingArea, now: str, then: str) -> NotRemoved:
    """Return the files of the snapshot `now` that a restore of `then` must not remove.

    A file is removed only if it certainly did not exist at the time of `then`: it is neither in the
    tree nor in the record of files left out, or something else was at its path. `staging` matches
    `now`. Raises GitFailed.
    """
    store = staging.store
    rows = _rows(store, now, then)
    going = {path for path, (_, new) in rows.items() if not new}
    if not going:
        return NotRemoved()
    ignored, record = going & staging.ignored(), load_left_out(store, then)
    unknown = {p for p in going - ignored if record is None or record.may_have_had(p)}
    if unknown:
        came = {path for path, (_, new) in rows.items() if new}
        taken = folders_of(came) | came  # paths at which no other file can have existed
        unknown = {p for p in unknown if p not in taken and not _is_below(p, came)}
    return NotRemoved(
        frozenset(f"{store.root}/{path}" for path in ignored),
        frozenset(f"{store.root}/{path}" for path in unknown),
    )


def _is_below(path: str, files: Container[str]) -> bool:
    """Return True if a folder above a path is among these files."""
    return any(folder in files for folder in folders_above(path))


def check_restore(staging: StagingArea, target: str) -> None:
    """Raise RecordError if content that no tree contains is at a path that a file of `target`
    needs. `staging` is up to date. Changes nothing. Raises GitFailed.
    """
    _check_not_blocked(staging.store.root, _rows(staging.store, staging.tree, target))


def stage_overwritten(staging: StagingArea, target: str) -> None:
    """Stage unkept files (ignored or large) that `target` would overwrite. Raises GitFailed."""
    store, known = staging.store, {"": True}
    covered = [
        path
        for path, (old, _) in _rows(store, staging.tree, target).items()
        if not old
        and is_real(store.root, path.rpartition("/")[0], known)
        and _exists_as_file(f"{store.root}/{path}")
    ]
    if covered:
        stage_files(store, covered)
        staging.tree = store.run("write-tree").decode().strip()


def restore_files(staging: StagingArea, target: str, wanted: saved_files.FileModes | None) -> None:
    """Restore the files of `target` with the permissions `wanted`. The tree of `staging` contains
    the current files. Raises GitFailed and RecordError.
    """
    store = staging.store
    check_restore(staging, target)
    present = saved_files.file_kinds(store)
    found = saved_files.read_modes(store.root, present)
    store.refresh()  # git refuses to overwrite a file that was only touched
    store.run("read-tree", "-m", "-u", staging.tree, target, seconds=None)
    staging.tree = target
    kinds = saved_files.file_kinds(store)
    saved_files.apply_modes(
        store.root, kinds, wanted or saved_files.keep_modes(found, present, kinds)
    )
    store.refresh()


def _rows(store: ObjectStore, old: str, new: str) -> dict[str, tuple[str, str]]:
    """Return the paths that differ, with their modes in both trees; "" for a missing path."""
    words = store.names(*RAW_DIFF_COMMAND, old, new) if old != new else []
    pairs = [word[1:].split()[:2] for word in words[::2]]
    modes = [tuple(mode if mode.strip("0") else "" for mode in pair) for pair in pairs]
    return {path: (old, new) for path, (old, new) in zip(words[1::2], modes, strict=True)}


def keep_files(store: ObjectStore, stay: Iterable[str], then: str, now: str) -> str:
    """Return a snapshot like `then`, but with the files at these absolute paths as in the snapshot
    `now`, including permissions. Raises GitFailed.
    """
    names = {p.removeprefix(f"{store.root}/") for p in stay if p.startswith(f"{store.root}/")}
    if not names:
        return then
    target, wanted = saved_files.load_with_modes(store, then)
    present, found = saved_files.load_with_modes(store, now)
    target = _with_files(store, names, present, target)
    if wanted is None or found is None:
        return target
    kinds = {n: k for n, k in saved_files.file_kinds(store, present).items() if n in names}
    files = {**wanted.files, **{name: found.of(name, kind) for name, kind in kinds.items()}}
    others = saved_files.file_kinds(store, target).keys() - kinds.keys()
    own = folders_of(kinds) - folders_of(others)
    folders = {**wanted.folders, **{path: found.of_folder(path) for path in own}}
    return saved_files.store_with_modes(
        store, target, replace(wanted, files=files, folders=folders), load_left_out(store, then)
    )


def _with_files(store: ObjectStore, names: Set[str], present: str, target: str) -> str:
    """Return the tree `target` with these files replaced by their state in the tree `present`."""
    listed = store.names("ls-tree", "-rz", present)
    kept = {row.partition("\t")[2]: row for row in listed if row.partition("\t")[2] in names}
    rows = [kept.get(name, f"0 {'0' * 40}\t{name}") for name in names]
    scratch = f"{store.index}.restore"
    try:
        store.run("read-tree", target, index=scratch)
        given = b"".join(os.fsencode(row) + b"\0" for row in rows)
        store.run("update-index", "-z", "--index-info", given=given, index=scratch)
        return store.run("write-tree", index=scratch).decode().strip()
    finally:
        for left in (scratch, f"{scratch}.lock"):
            Path(left).unlink(missing_ok=True)


def _check_not_blocked(root: str, rows: Mapping[str, tuple[str, str]]) -> None:
    """Raise RecordError if content that no tree contains is at a path that a file needs."""
    going = {path for path, (_, new) in rows.items() if not new}
    for path, (_, new) in rows.items():
        if not new:
            continue
        pieces = path.split("/")
        for length in range(1, len(pieces)):
            above = "/".join(pieces[:length])
            if _exists_as_file(f"{root}/{above}") and above not in going:
                raise _in_the_way(f"{root}/{above}")
        _check_folder(root, path, going)


def _check_folder(root: str, name: str, going: set[str]) -> None:
    """Raise RecordError if a folder that must become a file contains a file that stays."""
    whole = f"{root}/{name}"
    waiting = [whole] if os.path.lexists(whole) and not _exists_as_file(whole) else []
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(folder) as entries:
                found = [(e.path, e.is_dir(follow_symlinks=False)) for e in entries]
        except OSError as error:
            why = f"cannot be read ({error.strerror})"
            raise _in_the_way(folder, why) from error
        for path, is_folder in found:
            if is_folder:
                waiting.append(path)
            elif path.removeprefix(f"{root}/") not in going:
                raise _in_the_way(path)


def _in_the_way(path: str, why: str = "is not in a snapshot") -> RecordError:
    return RecordError(
        f"{path} is in the way and {why}: nothing was changed",
        hint="Move it elsewhere, then try again.",
    )


def _exists_as_file(path: str) -> bool:
    with suppress(OSError):
        return not stat.S_ISDIR(os.lstat(path).st_mode)
    return False
