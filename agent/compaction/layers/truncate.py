"""Truncate: replace long arguments of old calls by a short note.

What Write and Edit wrote is usually on disk, which the note says; where the bytes there are not
those that this call, or a later call of the session, left, it says that instead. Of another call's
long argument the beginning stays. The log has every input in full, and the note names its entry.
`plan` looks at a view and changes nothing; it asks for the disk through `sha256_of`.
"""

import hashlib
import os
import stat
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from ....tools.system.plural import count_of
from ....tools.system.shorten import shorten
from ....tools.text import count_lines, strings_in
from ...context import tokens
from ...context.items import Call, ViewResult
from ...context.view import View
from ...lazy import dataclass
from ..policy import Policy

MIN_INPUT_TOKENS = 200  # a smaller input is not worth an edit of history
MAX_KEPT_STRING_TOKENS = 50  # a string up to this size stays as it is
KEPT_CHARS = 80  # of the beginning of a string that no file has
MAX_FILE_BYTES = 16 * 1024 * 1024  # the tools write no larger file
SETTLED_NS = 2_000_000_000  # after this time a change of a file shows in its times
MAX_CACHED_DIGESTS = 4_096

_digests: dict[tuple[int, int, int, int], str] = {}  # by device, inode, size and time of change
CHANGING_TOOLS = ("Write", "Edit")
KEPT_TOOLS = ("Plan",)  # what the user has agreed to
_WRITTEN = ("content", "old_string", "new_string")
_REST = "[compacted]"
_estimate = lru_cache(maxsize=4_096)(tokens.estimate)  # asked for again at every call


@dataclass(frozen=True, slots=True)
class _OldInput:
    """The input of a call that may be shortened."""

    call: Call
    long: tuple[str, ...]  # its long strings
    path: str = ""  # the file that Write or Edit wrote it to

    @property
    def size(self) -> int:
        """The estimated tokens of the long strings."""
        return sum(map(_estimate, self.long))


def plan(
    view: View, policy: Policy, sha256_of: Callable[[str], str | None]
) -> list[dict[str, Any]]:
    """Return the inputs that are due, as a mask's targets: oldest first, then largest.

    Due are inputs over MIN_INPUT_TOKENS of calls that have a result, except those of the newest
    `clear_keep` calls that change files, of the newest so many others, and of failed calls that
    would have changed a file. With `truncate` "persisted" only what Write and Edit wrote, where the
    disk still has it. `sha256_of` returns the sha256 of the file at a path as it is now, or None;
    it is called once for each path that could be due.
    """
    answered = {result.call.id: result for result in view.results()}
    shortened = {id for item in view.items for id in item.inputs} | view.unmasked_calls
    outlined = {item.seq for item in view.items if item.outline is not None}
    calls = [call for call in view.calls.values() if call.name not in KEPT_TOOLS]
    changing = [call for call in calls if call.name in CHANGING_TOOLS]
    others = [call for call in calls if call.name not in CHANGING_TOOLS]
    keep = policy.clear_keep
    old = changing[: len(changing) - keep] if len(changing) > keep else []
    if policy.truncate == "all" and len(others) > keep:
        old += others[: len(others) - keep]
    inputs = [
        each
        for call in old
        if call.id in answered and call.id not in shortened and call.seq not in outlined
        if (each := _old_input(call, answered[call.id])) and each.size > MIN_INPUT_TOKENS
    ]
    paths = dict.fromkeys(each.path for each in inputs if each.path)
    status = _on_disk(view, {path: sha256_of(path) for path in paths})
    due = [each for each in inputs if policy.truncate == "all" or each.call.id in status]
    due.sort(key=lambda each: (each.call.seq, -each.size))
    return [
        {
            "seq": each.call.seq,
            "tool_use_id": each.call.id,
            "input": _shortened(each, view.scaled(each.size), status.get(each.call.id, "")),
        }
        for each in due
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


def _old_input(call: Call, result: ViewResult) -> _OldInput | None:
    """Return the input of a call, if it may go; of a call that failed to change a file it stays."""
    if call.name in CHANGING_TOOLS and _failed(result):
        return None
    written = [call.input.get(name) for name in _WRITTEN]
    match result.details.get("seen"):
        case {"path": str(path), "sha256": str()} if any(written):
            long = tuple(text for text in strings_in(written) if _is_long(text))
        case _:
            path, long = "", tuple(text for text in strings_in(call.input) if _is_long(text))
    return _OldInput(call, long, path) if long else None


def _failed(result: ViewResult) -> bool:
    return result.block.get("is_error") is True


def _is_long(text: str) -> bool:
    return len(text) > MAX_KEPT_STRING_TOKENS and _estimate(text) > MAX_KEPT_STRING_TOKENS


def _on_disk(view: View, disk: Mapping[str, str | None]) -> dict[str, str]:
    """Return what a note says of the disk, by the ids of the calls whose file is as they, or later
    ones of them, left it. `disk` has the sha256 of the files as they are."""
    unchanged: set[str] = set()  # paths where nobody else has written since
    found = {}
    for result in reversed([*view.results()]):
        if result.call.name not in CHANGING_TOOLS or _failed(result):
            continue
        match result.details.get("seen"):
            case {"path": str(path), "sha256": str(sha256)} if path in disk:
                current = disk[path] == sha256
                if current:
                    unchanged.add(path)
                if path in unchanged:
                    since = "" if current else ", changed since"
                    found[result.call.id] = f"content persisted to disk{since}"
    return found


def _shortened(old: _OldInput, tokens_cut: int, status: str) -> dict[str, Any]:
    """Return the call's input with a note for its first long string and a mark for any other.
    `tokens_cut` are those of the strings, `status` says what the disk has of them."""
    notes = iter([_note(old, tokens_cut, status)])

    def replaced(given: Any) -> Any:
        if isinstance(given, str):
            return next(notes, _rest(old, given)) if given in old.long else given
        if isinstance(given, dict):
            return {name: replaced(each) for name, each in given.items()}
        return [replaced(each) for each in given] if isinstance(given, list) else given

    shorter: dict[str, Any] = replaced(old.call.input)
    return shorter


def _note(old: _OldInput, tokens_cut: int, status: str) -> str:
    """Return the note on one line: size, what was done, status, and where the text is."""
    call, size = old.call, f"{tokens_cut:,} tokens compacted"
    if not old.path:
        return f"{shorten(old.long[0], KEPT_CHARS)} [{size} · full text: #{call.seq}]"
    path = call.input.get("path", old.path)
    content, before, after = (_lines(call.input.get(name)) for name in _WRITTEN)
    done = f"wrote {content} to" if call.name == "Write" else f"replaced {before} by {after} in"
    if not status:
        return f"[{size} · {done} {path} · the file differs now · full text: #{call.seq}]"
    where = f"Read it there, or see #{call.seq}"
    return f"[{size} · {done} {path} · {status} · {where}]"


def _rest(old: _OldInput, text: str) -> str:
    """Return what stands for a string after the first."""
    return _REST if old.path else f"{shorten(text, KEPT_CHARS)} {_REST}"


def _lines(text: Any) -> str:
    return count_of(count_lines(text) if isinstance(text, str) else 0, "line")
