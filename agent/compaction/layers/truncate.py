"""Truncate: replace the arguments of old Write and Edit calls by a short note.

What such a call wrote is on disk, so the context need not hold it too. That is checked, not
assumed: the input stays where a file's bytes are not those that this call, or a later call of the
session, left there. `plan` looks at a view and changes nothing; it asks for the disk through
`sha256_of`.
"""

import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from ....tools.system.plural import count_of
from ....tools.text import count_lines
from ...context import tokens
from ...context.view import Call, View
from ...lazy import dataclass
from ..policy import Policy

MIN_INPUT_TOKENS = 200  # a smaller input is not worth an edit of history
MAX_KEPT_STRING_TOKENS = 50  # a string up to this size stays as it is
MAX_FILE_BYTES = 16 * 1024 * 1024  # the tools write no larger file
SETTLED_NS = 2_000_000_000  # after this time a change of a file shows in its times
MAX_CACHED_DIGESTS = 4_096

_digests: dict[tuple[int, int, int, int], str] = {}  # by device, inode, size and time of change
_CHANGING_TOOLS = ("Write", "Edit")
_STRINGS = ("content", "old_string", "new_string")
_REST = "[compacted]"
_estimate = lru_cache(maxsize=1_024)(tokens.estimate)  # asked for again at every call


@dataclass(frozen=True, slots=True)
class _Change:
    """A call that changed a file."""

    call: Call
    path: str
    sha256: str  # of the bytes that the call left at `path`

    @property
    def size(self) -> int:
        """The estimated tokens of the strings that the call wrote."""
        return sum(_estimate(text) for text in _strings(self.call).values())


def plan(
    view: View, policy: Policy, sha256_of: Callable[[str], str | None]
) -> list[dict[str, Any]]:
    """Return the inputs that are due, as a mask's targets: oldest first, then largest.

    Due are inputs over MIN_INPUT_TOKENS whose content was persisted, except those of the newest
    `clear_keep` Write and Edit calls. `sha256_of` returns the sha256 of the file at a path as it is
    now, or None; it is called once for each path that could be due.
    """
    changes = list(_changes(view))
    old = _old(view, policy)
    large = [
        change for change in changes if change.call.id in old and change.size > MIN_INPUT_TOKENS
    ]
    disk = {path: sha256_of(path) for path in dict.fromkeys(c.path for c in large)}
    persisted = _persisted(changes, disk)
    due = [change for change in large if change.call.id in persisted]
    due.sort(key=lambda change: (change.call.seq, -change.size))
    return [
        {
            "seq": change.call.seq,
            "tool_use_id": change.call.id,
            "input": _shortened(
                change, view.scaled(change.size), current=disk[change.path] == change.sha256
            ),
        }
        for change in due
    ]


def file_sha256(path: str) -> str | None:
    """Return the sha256 of a file's bytes; None where there is no regular file of at most
    MAX_FILE_BYTES that can be read. A file is read again only where it may have changed."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_FILE_BYTES:
                return None
            known = (status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns)
            if known in _digests:
                return _digests[known]
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, ValueError):  # ValueError: what was recorded cannot be a path
        return None
    if time.time_ns() - status.st_ctime_ns > SETTLED_NS:
        if len(_digests) >= MAX_CACHED_DIGESTS:
            _digests.clear()
        _digests[known] = found
    return found


def _changes(view: View) -> Iterator[_Change]:
    """Yield the calls that are known to have changed a file, oldest first."""
    for result in view.results():
        if result.call.name in _CHANGING_TOOLS and result.block.get("is_error") is not True:
            match result.details.get("seen"):
                case {"path": str(path), "sha256": str(sha256)}:
                    yield _Change(result.call, path, sha256)


def _old(view: View, policy: Policy) -> set[str]:
    """Return the ids of Write and Edit calls that are neither among the newest nor shortened."""
    calls = [call for call in view.calls.values() if call.name in _CHANGING_TOOLS]
    newest = {call.id for call in calls[::-1][: policy.clear_keep]}
    shortened = {id for item in view.items for id in item.inputs}
    return {call.id for call in calls} - newest - shortened - view.unmasked_calls


def _persisted(changes: Sequence[_Change], disk: Mapping[str, str | None]) -> set[str]:
    """Return the ids of the calls whose file is as they, or later ones of them, left it."""
    unchanged: set[str] = set()  # paths where nobody else has written since
    persisted: set[str] = set()
    for change in reversed(changes):
        if disk.get(change.path) == change.sha256:
            unchanged.add(change.path)
        if change.path in unchanged:
            persisted.add(change.call.id)
    return persisted


def _shortened(change: _Change, tokens_cut: int, *, current: bool) -> dict[str, Any]:
    """Return the call's input with a note for its first long string and a mark for any other.
    `tokens_cut` are those of the strings, `current` says that the file is as this call left it."""
    long = [
        name
        for name, text in _strings(change.call).items()
        if tokens.estimate(text) > MAX_KEPT_STRING_TOKENS
    ]
    note = _note(change, tokens_cut, current=current)
    return {**change.call.input, **dict.fromkeys(long, _REST), long[0]: note}


def _note(change: _Change, tokens_cut: int, *, current: bool) -> str:
    """Return the note on one line: size, what was done, status, and where the text is."""
    call, path = change.call, change.call.input.get("path", change.path)
    strings = _strings(call)
    if call.name == "Write":
        done = f"wrote {_lines(strings.get('content', ''))} to {path}"
    else:
        before, after = strings.get("old_string", ""), strings.get("new_string", "")
        done = f"replaced {_lines(before)} by {_lines(after)} in {path}"
    status = "content persisted to disk" if current else "content persisted to disk, changed since"
    where = f"Read it there, or see #{call.seq}"
    return f"[{tokens_cut:,} tokens compacted · {done} · {status} · {where}]"


def _strings(call: Call) -> dict[str, str]:
    return {name: call.input[name] for name in _STRINGS if isinstance(call.input.get(name), str)}


def _lines(text: str) -> str:
    count = count_lines(text)
    return count_of(count, "line")
