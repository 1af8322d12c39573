"""Permissions of files and folders. A git tree records only whether the owner can execute a file.

The permissions are stored in the message of a commit of the tree. One name then identifies both,
and git accepts it in place of a tree. The commit's parent, if any, records the files that were left
out (see `left_out`). File owners and access control lists are not saved.
"""

import json
import os
import stat
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, field, replace
from typing import Any

from ..lazy import dataclass
from .left_out import LeftOut
from .object_store import GitFailed, ObjectStore

_COMMIT = (
    "tree {}\n{}author ctxagent <ctxagent> 0 +0000\ncommitter ctxagent <ctxagent> 0 +0000\n\n{}\n"
)
_EXECUTABLE = "100755"
_LINK = "120000"
_KINDS = ("100644", _EXECUTABLE, _LINK)


@dataclass(frozen=True, slots=True)
class FileModes:
    """Permission bits: the usual ones, and the exceptions by path below the root."""

    file: int = 0o644  # usual bits of a file that is not executable
    program: int = 0o755  # usual bits of an executable file
    folder: int = 0o755
    files: Mapping[str, int] = field(default_factory=dict)
    folders: Mapping[str, int] = field(default_factory=dict)

    def of(self, path: str, kind: str) -> int:
        """Return the permissions of a file; `kind` is its mode in git."""
        return self.files.get(path, self.program if kind == _EXECUTABLE else self.file)

    def of_folder(self, path: str) -> int:
        return self.folders.get(path, self.folder)


def file_kinds(store: ObjectStore, tree: str = "", names: Sequence[str] = ()) -> dict[str, str]:
    """Return the files of a tree (default: the index) with their modes in git. With `names`, return
    only these files. Raises GitFailed.
    """
    asked = ("ls-tree", *(() if names else ("-r",)), "-z", tree, *(("--", *names) if names else ()))
    rows = store.names(*asked) if tree else store.names("ls-files", "-sz")
    parts = (row.partition("\t") for row in rows)
    return {path: said[:6] for said, _, path in parts if said.startswith(_KINDS)}


def read_modes(root: str, kinds: Mapping[str, str]) -> FileModes:
    """Return the permissions on disk of files and of the folders above them."""
    files = {path: mode for path in kinds if (mode := _mode(f"{root}/{path}", stat.S_ISREG)) >= 0}
    above = folders_of(kinds)
    folders = {path: mode for path in above if (mode := _mode(f"{root}/{path}", stat.S_ISDIR)) >= 0}
    file = _most((m for p, m in files.items() if kinds[p] != _EXECUTABLE), 0o644)
    program = _most((m for p, m in files.items() if kinds[p] == _EXECUTABLE), 0o755)
    folder = _most(folders.values(), 0o755)
    usual = FileModes(file, program, folder)
    return replace(
        usual,
        files={path: mode for path, mode in files.items() if mode != usual.of(path, kinds[path])},
        folders={path: mode for path, mode in folders.items() if mode != folder},
    )


def keep_modes(found: FileModes, old: Mapping[str, str], new: Mapping[str, str]) -> FileModes:
    """Return permissions for `new`, the files of a tree without recorded permissions. Existing
    files (`old`, with permissions `found`) keep their read and write bits, and git decides the
    execute bits. Other files get the usual permissions.
    """
    files = {}
    for path in new.keys() & old.keys():
        mode = found.of(path, old[path])
        if old[path] != new[path]:
            mode = (mode & ~0o111) | ((mode & 0o444) >> 2 if new[path] == _EXECUTABLE else 0)
        files[path] = mode
    folders = {path: found.of_folder(path) for path in folders_of(old)}
    return replace(found, files=files, folders=folders)


def apply_modes(root: str, kinds: Mapping[str, str], modes: FileModes) -> None:
    """Set the permissions of files and of the folders above them. Ignore those that cannot be
    set.
    """
    for path, kind in kinds.items():
        _set(f"{root}/{path}", modes.of(path, kind), stat.S_ISREG)
    for path in sorted(folders_of(kinds), reverse=True):  # the inner ones first
        _set(f"{root}/{path}", modes.of_folder(path), stat.S_ISDIR)


def store_with_modes(
    store: ObjectStore, tree: str, modes: FileModes, left_out: LeftOut | None = None
) -> str:
    """Store a tree with its permissions and, if given, the record of files left out. Return the
    name of the commit. Raises GitFailed.
    """
    said = asdict(modes)
    for name in ("files", "folders"):
        said[name] = dict(sorted(said[name].items()))
    parent = f"parent {left_out.store(store)}\n" if left_out is not None else ""
    given = _COMMIT.format(tree, parent, json.dumps(said)).encode("ascii")
    return store.run("hash-object", "-t", "commit", "-w", "--stdin", given=given).decode().strip()


def load_with_modes(store: ObjectStore, name: str) -> tuple[str, FileModes | None]:
    """Return the tree that a name refers to, and its permissions or None. Raises GitFailed."""
    found = next(store.read_objects([name]), None)
    if found is None or found[1] not in (b"tree", b"commit"):
        raise GitFailed(f"there is no tree {name}")
    object_name, kind, body = found
    if kind == b"tree":
        return object_name, None
    lines, _, message = body.partition(b"\n\n")
    tree = lines.split()[1].decode()
    try:
        data = json.loads(message)
        files, folders = (
            {path: int(mode) for path, mode in data[name].items()} for name in ("files", "folders")
        )
        file, program, folder = (int(data[name]) for name in ("file", "program", "folder"))
        return tree, FileModes(file, program, folder, files, folders)
    except (ValueError, KeyError, TypeError, AttributeError):
        return tree, None


def changed_modes(store: ObjectStore, old: str, new: str) -> list[str]:
    """Return the files whose permissions differ between two trees and whose git mode is the same.
    Return [] if a tree has no recorded permissions. Raises GitFailed.
    """
    if old == new:
        return []
    before, after = load_with_modes(store, old)[1], load_with_modes(store, new)[1]
    if before is None or after is None or before == after:
        return []
    were, are = file_kinds(store, old), file_kinds(store, new)
    return [
        path
        for path, kind in are.items()
        if were.get(path) == kind != _LINK and before.of(path, kind) != after.of(path, kind)
    ]


def folders_of(paths: Iterable[str]) -> set[str]:
    """Return all folders above these files."""
    found: set[str] = set()
    for path in paths:
        while (path := path.rpartition("/")[0]) and path not in found:
            found.add(path)
    return found


def _most(modes: Iterable[int], usual: int) -> int:
    common = Counter(modes).most_common(1)
    return common[0][0] if common else usual


def _mode(path: str, kind: Any) -> int:
    """Return the permissions of a path of this kind, or -1."""
    with suppress(OSError, ValueError):
        found = os.lstat(path).st_mode
        if kind(found):
            return stat.S_IMODE(found)
    return -1


def _set(path: str, mode: int, kind: Any) -> None:
    if _mode(path, kind) not in (-1, mode):
        with suppress(OSError):
            os.chmod(path, mode)  # noqa: PTH101 - no link, as `_mode` says
