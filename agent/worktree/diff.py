"""Differences between two states of files: two git trees, or two sets of signatures."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Literal

from ...tools.project_encodings import text_of
from ...tools.text import NotText
from ..lazy import dataclass, regex
from .object_store import GitFailed, ObjectStore
from .signatures import FileSignature

DiffAction = Literal["created", "modified", "deleted"]

DIFF_COMMAND = ("diff-tree", "-r", "--no-renames", "--no-ext-diff", "--no-textconv")
_LIST_COMMAND = (*DIFF_COMMAND, "-z", "--raw", "--numstat")
_NEXT_FILE = b"\ndiff --git "
_NEW_NAME = regex(rb"^\+\+\+ b/(.+)$", re.MULTILINE)
_ACTIONS: dict[str, DiffAction] = {"A": "created", "D": "deleted"}


@dataclass(frozen=True, slots=True)
class TreeChange:
    """A file that differs between two states."""

    path: str  # absolute
    action: DiffAction
    added: int = 0  # lines; 0 if unknown
    removed: int = 0  # lines; 0 if unknown
    blob: str = ""  # `signatures.blob_digest` of the new content, "" if unknown


def compare_signatures(
    before: Mapping[str, FileSignature], after: Mapping[str, FileSignature]
) -> dict[str, TreeChange]:
    """Return the changes from one set of signatures to another, by path."""
    found = {path: TreeChange(path, "deleted") for path in before if path not in after}
    for path, new in after.items():
        old = before.get(path)
        if old is None or old.differs(new):
            found[path] = TreeChange(path, "modified" if old else "created", blob=new.digest)
    return found


def certain_changes(
    found: Mapping[str, TreeChange], before: Mapping[str, FileSignature]
) -> dict[str, TreeChange]:
    """Return the changes that are certain although a scan was cut off."""
    # A file that enters or leaves a cut scan may have existed all the time.
    last = max(map(_scan_order, before), default=[])
    return {
        path: change
        for path, change in found.items()
        if change.action == "modified"
        or (change.action == "created" and _scan_order(path) < last)
        or (change.action == "deleted" and not os.path.lexists(path))
    }


def _scan_order(path: str) -> list[str]:
    return path.split("/")


def without_moves(
    change: TreeChange, before: Mapping[str, FileSignature], after: Mapping[str, FileSignature]
) -> TreeChange:
    """Report a file as modified if it only became, or stopped being, a watched file."""
    came = change.action == "created" and change.path in before
    went = change.action == "deleted" and change.path in after
    return replace(change, action="modified") if came or went else change


def compare_trees(store: ObjectStore, old: str, new: str) -> list[TreeChange]:
    """Return the files with different content in two trees. Raises GitFailed."""
    if old == new:
        return []
    said = b""
    with suppress(GitFailed):  # the running git was killed
        said = store.ask(*_LIST_COMMAND, "--stdin", line=f"{old} {new}")
    repeated, _, rows = said.partition(b"\n")
    if repeated != f"{old} {new}".encode():  # or one of them is a snapshot's commit
        rows = store.run(*_LIST_COMMAND, old, new)
    return [replace(change, path=f"{store.root}/{change.path}") for change in _rows(rows)]


def _rows(said: bytes) -> Iterator[TreeChange]:
    """Parse `--raw --numstat -z`: first a pair of words per path, then the line counts."""
    words = [os.fsdecode(word) for word in said.split(b"\0") if word]
    count = next((i for i, word in enumerate(words[::2]) if not word.startswith(":")), len(words))
    heads, lines = words[: 2 * count], {}
    for word in words[2 * count :]:
        added, removed, path = word.split("\t", 2)
        lines[path] = (_number(added), _number(removed))
    for head, path in zip(heads[::2], heads[1::2], strict=True):
        _, _, _, new, status = head.split()
        action = _ACTIONS.get(status[:1], "modified")
        yield TreeChange(path, action, *lines.get(path, (0, 0)), new if new.strip("0") else "")


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def decoded(said: bytes, root: Path) -> str:
    """Return git's diff of the files below a folder as text, each part in the encoding of its
    file.
    """
    parts = said.split(_NEXT_FILE)
    return _NEXT_FILE.decode().join(_decoded_part(part, root) for part in parts)


def _decoded_part(part: bytes, root: Path) -> str:
    found = _NEW_NAME.search(part)
    name = os.fsdecode(found[1].removesuffix(b"\t")) if found else "."
    try:
        return text_of(root / name, part, whole=False)
    except NotText:
        return part.decode("utf-8", "replace")
