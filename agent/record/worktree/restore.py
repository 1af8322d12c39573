"""Putting the files of a work tree back: git does it, from the store's index, all or nothing as far
as can be seen beforehand. What is done here is what git does not care for: that nothing is lost
which no tree holds, that ignored files stay, and that files get the permissions they had."""

import os
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from ...errors import RecordError
from . import modes
from .intake import Intake, is_real, put
from .store import Store

RAW = ("diff-tree", "-r", "-z", "--no-renames", "--raw")


def check(intake: Intake, target: str) -> str:
    """The tree that the files would become: `target`, with what is ignored by now. Nothing is
    touched. `intake` is up to date. Raises GitFailed, and RecordError when something that no tree
    holds stands where a file must go."""
    store = intake.store
    target = _with_ignored(store, intake.tree, target, intake.ignored())
    _check_way(store.root, _rows(store, intake.tree, target))
    return target


def cover(intake: Intake, target: str) -> None:
    """Take into the tree of `intake` the files that are not kept (ignored, large) and that `target`
    would put another in the place of. Raises GitFailed."""
    store, known = intake.store, {"": True}
    covered = [
        path
        for path, (old, _) in _rows(store, intake.tree, target).items()
        if not old
        and is_real(store.root, path.rpartition("/")[0], known)
        and _is_file(f"{store.root}/{path}")
    ]
    if covered:
        put(store, covered)
        intake.tree = store.run("write-tree").decode().strip()


def restore(intake: Intake, target: str, wanted: modes.Modes | None) -> None:
    """Make the files as they are in `target`, with the permissions that are `wanted`, from as they
    are in the tree of `intake`, which covers them. Raises GitFailed and RecordError."""
    store, asked = intake.store, target
    target = check(intake, target)
    present = modes.listed(store)
    found = modes.gather(store.root, present)
    store.refresh()  # a file that was only touched would not be overwritten
    store.run("read-tree", "-m", "-u", intake.tree, target, seconds=None)
    intake.tree = target
    stayed = _rows(store, asked, target)
    kinds = {path: kind for path, kind in modes.listed(store).items() if path not in stayed}
    modes.put(store.root, kinds, wanted or modes.unchanged(found, present, kinds))
    store.refresh()


def _rows(store: Store, old: str, new: str) -> dict[str, tuple[str, str]]:
    """The paths that differ, with their modes in the two trees, "" where there is no such path."""
    words = store.names(*RAW, old, new) if old != new else []
    pairs = [word[1:].split()[:2] for word in words[::2]]
    return {
        path: (_mode(before), _mode(after))
        for (before, after), path in zip(pairs, words[1::2], strict=True)
    }


def _mode(text: str) -> str:
    return text if text.strip("0") else ""


def _with_ignored(store: Store, present: str, target: str, ignored: Iterable[str]) -> str:
    """The target with those files in it that only `present` has and that are ignored by now."""
    rows = _rows(store, present, target)
    stay = [path for path in ignored if path in rows and not rows[path][1]]
    if not stay:
        return target
    wanted = set(stay)
    listed = store.names("ls-tree", "-rz", present)
    rows_kept = [row for row in listed if row.partition("\t")[2] in wanted]
    scratch = f"{store.index}.restore"
    try:
        store.run("read-tree", target, index=scratch)
        given = b"".join(os.fsencode(row) + b"\0" for row in rows_kept)
        store.run("update-index", "-z", "--index-info", given=given, index=scratch)
        return store.run("write-tree", index=scratch).decode().strip()
    finally:
        for left in (scratch, f"{scratch}.lock"):
            Path(left).unlink(missing_ok=True)


def _check_way(root: str, rows: Mapping[str, tuple[str, str]]) -> None:
    """Raises RecordError when something that no tree holds stands where a file must go."""
    going = {path for path, (_, new) in rows.items() if not new}
    for path, (_, new) in rows.items():
        if not new:
            continue
        pieces = path.split("/")
        for length in range(1, len(pieces)):
            above = "/".join(pieces[:length])
            if _is_file(f"{root}/{above}") and above not in going:
                raise _in_the_way(f"{root}/{above}")
        _check_folder(root, path, going)


def _check_folder(root: str, name: str, going: set[str]) -> None:
    """The same for the folder at a path that becomes a file, if there is one."""
    whole = f"{root}/{name}"
    waiting = [whole] if os.path.lexists(whole) and not _is_file(whole) else []
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(folder) as entries:
                found = [(e.path, e.is_dir(follow_symlinks=False)) for e in entries]
        except OSError as error:
            raise RecordError(
                f"{folder} is in the way, and cannot be looked into ({error.strerror}): nothing "
                "was changed",
                hint="Move it elsewhere, then try again.",
            ) from error
        for path, is_folder in found:
            if is_folder:
                waiting.append(path)
            elif path.removeprefix(f"{root}/") not in going:
                raise _in_the_way(path)


def _in_the_way(path: str) -> RecordError:
    return RecordError(
        f"{path} is in the way, and it is not kept: nothing was changed",
        hint="Move it elsewhere, then try again.",
    )


def _is_file(path: str) -> bool:
    """Whether there is anything but a folder."""
    with suppress(OSError):
        return not stat.S_ISDIR(os.lstat(path).st_mode)
    return False
