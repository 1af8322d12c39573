"""Truncation: the arguments of old Write and Edit calls give way to a short note (S0, Tier 2).

What such a call wrote is on disk, so the context need not hold it too. That is checked, not
assumed: where a file's bytes are not those that this call, or a later one of ours, left there, the
input stays. `plan` looks at a view and changes nothing; it asks for the disk through `digest_of`.
"""

import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ..context import tokens
from ..context.view import Call, View
from .policy import Policy

LARGE = 200  # estimated tokens of input; a smaller one is not worth an edit of history
SHORT = 50  # estimated tokens; a string up to this size stays as it is
LARGEST_FILE = 16 * 1024 * 1024  # bytes; the tools write no larger one

SETTLED = 2_000_000_000  # nanoseconds after which a change of a file shows in its times
MOST_DIGESTS = 4_096  # kept

_digests: dict[
    tuple[int, int, int, int], str
] = {}  # by device, inode, size and when it was changed
_CHANGING = ("Write", "Edit")
_STRINGS = ("content", "old_string", "new_string")
_REST = "[compacted]"


@dataclass(frozen=True, slots=True)
class _Change:
    """A call that changed a file; `sha256` is of the bytes it left at `path`."""

    call: Call
    path: str
    sha256: str

    @property
    def size(self) -> int:
        """Estimated tokens of the strings it wrote."""
        return sum(_size(text) for text in _strings(self.call).values())


def plan(
    view: View, policy: Policy, digest_of: Callable[[str], str | None]
) -> list[dict[str, Any]]:
    """The inputs that are due, as a mask's targets: oldest first, then largest; empty when none.

    Due are inputs over LARGE tokens whose content was persisted, except those of the newest
    `clear_keep` Write and Edit calls. `digest_of` gives the sha256 of the file at a path now, or
    None; it is asked once for each path that could be due.
    """
    changes = list(_changes(view))
    old = _old(view, policy)
    large = [change for change in changes if change.call.id in old and change.size > LARGE]
    disk = {path: digest_of(path) for path in dict.fromkeys(c.path for c in large)}
    persisted = _persisted(changes, disk)
    due = [change for change in large if change.call.id in persisted]
    due.sort(key=lambda change: (change.call.seq, -change.size))
    return [
        {
            "seq": change.call.seq,
            "tool_use_id": change.call.id,
            "input": _shortened(change, current=disk[change.path] == change.sha256),
        }
        for change in due
    ]


def digest(path: str) -> str | None:
    """The sha256 of a file's bytes; None where there is no regular file of at most LARGEST_FILE
    that can be read. A file is read again only where it may have changed."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST_FILE:
                return None
            known = (status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns)
            if known in _digests:
                return _digests[known]
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, ValueError):  # ValueError: what was recorded cannot be a path
        return None
    if time.time_ns() - status.st_ctime_ns > SETTLED:
        if len(_digests) >= MOST_DIGESTS:
            _digests.clear()
        _digests[known] = found
    return found


def _changes(view: View) -> Iterator[_Change]:
    """The calls that are known to have changed a file, oldest first."""
    for result in view.results():
        if result.call.name in _CHANGING and result.block.get("is_error") is not True:
            match result.details.get("seen"):
                case {"path": str(path), "sha256": str(sha256)}:
                    yield _Change(result.call, path, sha256)


def _old(view: View, policy: Policy) -> set[str]:
    """Ids of the Write and Edit calls that are not among the newest and not shortened yet."""
    calls = [call for call in view.calls.values() if call.name in _CHANGING]
    newest = {call.id for call in calls[::-1][: policy.clear_keep]}
    shortened = {id for item in view.items for id in item.inputs}
    return {call.id for call in calls} - newest - shortened - view.spared


def _persisted(changes: Sequence[_Change], disk: Mapping[str, str | None]) -> set[str]:
    """Ids of the calls whose file is as they left it, or as a later one of them did."""
    ours: set[str] = set()  # paths where nobody has written after us
    persisted: set[str] = set()
    for change in reversed(changes):
        if disk.get(change.path) == change.sha256:
            ours.add(change.path)
        if change.path in ours:
            persisted.add(change.call.id)
    return persisted


def _shortened(change: _Change, *, current: bool) -> dict[str, Any]:
    """The call's input with a note for its first long string and a mark for any other. `current`
    says that the file still is as this call left it."""
    given = change.call.input
    long = [name for name, text in _strings(change.call).items() if tokens.estimate(text) > SHORT]
    note = _note(change, current=current)
    return {**given, **dict.fromkeys(long, _REST), long[0]: note}


def _note(change: _Change, *, current: bool) -> str:
    """S1's truncated format on one line: size, path, summary, status, and where the text is."""
    call, path = change.call, change.call.input.get("path")
    strings = _strings(call)
    if call.name == "Write":
        done = f"wrote {_lines(strings.get('content', ''))} to {path}"
    else:
        before, after = strings.get("old_string", ""), strings.get("new_string", "")
        done = f"replaced {_lines(before)} by {_lines(after)} in {path}"
    status = "content persisted to disk" if current else "content persisted to disk, changed since"
    where = f"Read it there, or see #{call.seq}"
    return f"[{change.size:,} tokens compacted · {done} · {status} · {where}]"


@lru_cache(maxsize=1_024)
def _size(text: str) -> int:
    """Estimated tokens, which are asked for again at every call as long as the text stands."""
    return tokens.estimate(text)


def _strings(call: Call) -> dict[str, str]:
    given = call.input
    return {name: given[name] for name in _STRINGS if isinstance(given.get(name), str)}


def _lines(text: str) -> str:
    count = text.count("\n") + (not text.endswith("\n")) if text else 0
    return f"{count:,} line{'s' * (count != 1)}"
