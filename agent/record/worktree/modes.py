"""The permissions of files and folders, which a tree of git does not have: it knows no more of a
file than whether its owner can run it. They stand beside a tree in a commit without parents, so one
name stands for both, and git takes it wherever it takes a tree.

Who owns a file, and lists of access, are not kept.
"""

import json
import os
import stat
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from .store import GitFailed, Store

_HEAD = "tree {}\nauthor ctxagent <ctxagent> 0 +0000\ncommitter ctxagent <ctxagent> 0 +0000\n\n{}\n"
_RUNS = "100755"
_LINK = "120000"
_HELD = ("100644", _RUNS, _LINK)


@dataclass(frozen=True, slots=True)
class Modes:
    """Permission bits. `file`, `program` and `folder` are those of most; `files` and `folders` have
    the others, by path below the root."""

    file: int = 0o644
    program: int = 0o755
    folder: int = 0o755
    files: Mapping[str, int] = field(default_factory=dict)
    folders: Mapping[str, int] = field(default_factory=dict)

    def of(self, path: str, kind: str) -> int:
        """Those of a file; `kind` is what git says of it."""
        return self.files.get(path, self.program if kind == _RUNS else self.file)

    def of_folder(self, path: str) -> int:
        return self.folders.get(path, self.folder)


def listed(store: Store) -> dict[str, str]:
    """The files in the store's index, with what git says of each. Raises GitFailed."""
    return _held(store.names("ls-files", "-sz"))


def gather(root: str, kinds: Mapping[str, str]) -> Modes:
    """The permissions of files, and of the folders above them, as they are on disk."""
    files = {path: mode for path in kinds if (mode := _mode(f"{root}/{path}", stat.S_ISREG)) >= 0}
    above = _folders(kinds)
    folders = {path: mode for path in above if (mode := _mode(f"{root}/{path}", stat.S_ISDIR)) >= 0}
    file = _most((m for p, m in files.items() if kinds[p] != _RUNS), 0o644)
    program = _most((m for p, m in files.items() if kinds[p] == _RUNS), 0o755)
    folder = _most(folders.values(), 0o755)
    usual = Modes(file, program, folder)
    return Modes(
        file,
        program,
        folder,
        {path: mode for path, mode in files.items() if mode != usual.of(path, kinds[path])},
        {path: mode for path, mode in folders.items() if mode != folder},
    )


def unchanged(found: Modes, old: Mapping[str, str], new: Mapping[str, str]) -> Modes:
    """The permissions for the files of a tree that has none (`new`), where those that are there are
    as `found` (`old`): who could read and write a file still can, whether it runs is said by git;
    what is not there gets what is usual."""
    files = {}
    for path in new.keys() & old.keys():
        mode = found.of(path, old[path])
        if old[path] != new[path]:
            mode = (mode & ~0o111) | ((mode & 0o444) >> 2 if new[path] == _RUNS else 0)
        files[path] = mode
    folders = {path: found.of_folder(path) for path in _folders(old)}
    return Modes(found.file, found.program, found.folder, files, folders)


def put(root: str, kinds: Mapping[str, str], modes: Modes) -> None:
    """Give files, and the folders above them, their permissions, as far as that is allowed."""
    for path, kind in kinds.items():
        _set(f"{root}/{path}", modes.of(path, kind), stat.S_ISREG)
    for path in sorted(_folders(kinds), reverse=True):  # the inner ones first
        _set(f"{root}/{path}", modes.of_folder(path), stat.S_ISDIR)


def wrap(store: Store, tree: str, modes: Modes) -> str:
    """The name that stands for a tree with permissions. Raises GitFailed."""
    said = {
        "file": modes.file,
        "program": modes.program,
        "folder": modes.folder,
        "files": dict(sorted(modes.files.items())),
        "folders": dict(sorted(modes.folders.items())),
    }
    given = _HEAD.format(tree, json.dumps(said)).encode("ascii")
    return store.run("hash-object", "-t", "commit", "-w", "--stdin", given=given).decode().strip()


def unwrap(store: Store, name: str) -> tuple[str, Modes | None]:
    """The tree that a name stands for, and the permissions beside it; None where there are none.
    Raises GitFailed."""
    said = store.run("cat-file", "--batch", given=f"{name}\n".encode())
    head, _, body = said.partition(b"\n")
    words = head.split()
    if len(words) == 3 and words[1] == b"tree":
        return words[0].decode(), None
    if len(words) != 3 or words[1] != b"commit":
        raise GitFailed(f"there is no tree {name}")
    lines, _, message = body.partition(b"\n\n")
    tree = lines.split()[1].decode()
    try:
        data = json.loads(message)
        files, folders = (
            {path: int(mode) for path, mode in data[name].items()} for name in ("files", "folders")
        )
        file, program, folder = (int(data[name]) for name in ("file", "program", "folder"))
        return tree, Modes(file, program, folder, files, folders)
    except (ValueError, KeyError, TypeError, AttributeError):
        return tree, None


def differing(store: Store, old: str, new: str) -> list[str]:
    """The files that are in two trees as the same kind, and not with the same permissions, as far
    as both have them. Raises GitFailed."""
    if old == new:
        return []
    before, after = unwrap(store, old)[1], unwrap(store, new)[1]
    if before is None or after is None or before == after:
        return []
    were, are = _kinds(store, old), _kinds(store, new)
    return [
        path
        for path, kind in are.items()
        if were.get(path) == kind != _LINK and before.of(path, kind) != after.of(path, kind)
    ]


def _kinds(store: Store, tree: str) -> dict[str, str]:
    return _held(store.names("ls-tree", "-rz", tree))


def _held(rows: Iterable[str]) -> dict[str, str]:
    parts = (row.partition("\t") for row in rows)
    return {path: said[:6] for said, _, path in parts if said.startswith(_HELD)}


def _folders(paths: Iterable[str]) -> set[str]:
    found: set[str] = set()
    for path in paths:
        while (path := path.rpartition("/")[0]) and path not in found:
            found.add(path)
    return found


def _most(modes: Iterable[int], usual: int) -> int:
    common = Counter(modes).most_common(1)
    return common[0][0] if common else usual


def _mode(path: str, kind: Any) -> int:
    """The permissions of what is there if it is of a kind, else -1."""
    with suppress(OSError, ValueError):
        found = os.lstat(path).st_mode
        if kind(found):
            return stat.S_IMODE(found)
    return -1


def _set(path: str, mode: int, kind: Any) -> None:
    if _mode(path, kind) not in (-1, mode):
        with suppress(OSError):
            os.chmod(path, mode)  # noqa: PTH101 - no link, as `_mode` says
