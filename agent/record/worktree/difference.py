"""What is different between two looks at files: between two trees of git, or by signatures."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from .signatures import Signature
from .store import Store

Action = Literal["created", "modified", "deleted"]

COMPARED = ("diff-tree", "-r", "--no-renames", "--no-ext-diff", "--no-textconv")
_ACTIONS: dict[str, Action] = {"A": "created", "D": "deleted"}


@dataclass(frozen=True, slots=True)
class Change:
    """`path` is absolute. `added` and `removed` are lines, 0 for what has none or is not known;
    `blob` is the digest of the new content (`signatures.blob_digest`), "" when not known."""

    path: str
    action: Action
    added: int = 0
    removed: int = 0
    blob: str = ""


def compared(before: Mapping[str, Signature], after: Mapping[str, Signature]) -> dict[str, Change]:
    found = {path: Change(path, "deleted") for path in before if path not in after}
    for path, new in after.items():
        old = before.get(path)
        if old is None or old.differs(new):
            found[path] = Change(path, "modified" if old else "created", blob=new.digest)
    return found


def certain(found: Mapping[str, Change], before: Mapping[str, Signature]) -> dict[str, Change]:
    """What can be said although a scan did not come to its end: a file that came into it, or left
    it, may have been there all the time."""
    last = max(map(_order, before), default=[])
    return {
        path: change
        for path, change in found.items()
        if change.action == "modified"
        or (change.action == "created" and _order(path) < last)
        or (change.action == "deleted" and not os.path.lexists(path))
    }


def _order(path: str) -> list[str]:
    """The place of a path in a scan."""
    return path.split("/")


def placed(
    change: Change, before: Mapping[str, Signature], after: Mapping[str, Signature]
) -> Change:
    """A change of a tree, where a file came from those that are only watched or went there."""
    came = change.action == "created" and change.path in before
    went = change.action == "deleted" and change.path in after
    return replace(change, action="modified") if came or went else change


def changes(store: Store, old: str, new: str) -> list[Change]:
    """What is different in the contents of two trees. Raises GitFailed."""
    if old == new:
        return []
    rows = _rows(store.names(*COMPARED, "-z", "--raw", "--numstat", old, new))
    return [replace(change, path=f"{store.root}/{change.path}") for change in rows]


def _rows(words: list[str]) -> Iterator[Change]:
    """What `--raw --numstat -z` says: first a pair of words for each path, then its lines."""
    count = next((i for i, word in enumerate(words[::2]) if not word.startswith(":")), len(words))
    heads = words[: 2 * count]
    lines = {}
    for word in words[2 * count :]:
        added, removed, path = word.split("\t", 2)
        lines[path] = (_number(added), _number(removed))
    for head, path in zip(heads[::2], heads[1::2], strict=True):
        _, _, _, new, status = head.split()
        action = _ACTIONS.get(status[:1], "modified")
        yield Change(path, action, *lines.get(path, (0, 0)), new if new.strip("0") else "")


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0
