"""Truncate: replace long arguments of old calls with a short note.

For Write and Edit, the note says whether the file on disk still has the content. For other calls,
the beginning of the argument stays. The log keeps every input in full, and the note names its
entry. `plan` only reads the view, and reads files through `sha256_of`.
"""

import hashlib
import os
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from ....tools.offered import EVERY, Offered
from ....tools.system.phrasing import count_of, shorten
from ....tools.text import count_lines, strings_in
from ...context import tokens
from ...context.items import Call, ViewResult
from ...context.view import View
from ...lazy import dataclass
from ...session.entries import TRUNCATE
from ..policy import Policy, reached
from .break_even import DueMask
from .later_calls import CHANGING_TOOLS, input_ages, input_curve
from .layer import NO_PASS, Layer, LayerState, Pass

MIN_TRUNCATION_SHARE = 0.01  # of the window: smaller savings are not worth an edit of history
MIN_INPUT_TOKENS = 200  # a smaller input is not worth an edit of history
MAX_KEPT_STRING_TOKENS = 50  # longer strings are shortened
KEPT_CHARS = 80  # of the beginning of a string that is not in a file
MAX_FILE_BYTES = 16 * 1024 * 1024  # the tools write no larger files
SETTLED_NS = 2_000_000_000  # after this time, any later change has another time stamp
MAX_CACHED_DIGESTS = 4_096

_digests: dict[tuple[int, int, int, int], str] = {}  # by device, inode, size and time of change
KEPT_TOOLS = ("Plan",)  # approved by the user
REPLACED = "old_string"  # the argument with the text that an Edit has replaced
_WRITTEN = ("content", REPLACED, "new_string")
_REST = "[compacted]"
_estimate = lru_cache(maxsize=4_096)(tokens.estimate)  # needed again at every call


@dataclass(frozen=True, slots=True)
class _OldInput:
    """The input of a call that may be shortened."""

    call: Call
    long: tuple[str, ...]  # its long strings
    path: str = ""  # the file written by Write or Edit

    @property
    def size(self) -> int:
        """The estimated tokens of the long strings."""
        return sum(map(_estimate, self.long))


def plan(
    view: View,
    policy: Policy,
    sha256_of: Callable[[str], str | None],
    offered: Offered = EVERY,
) -> list[dict[str, Any]]:
    """Return the inputs that are due for shortening as mask targets: oldest first, then largest.

    An input is due if it has more than MIN_INPUT_TOKENS and its call has a result. Inputs are never
    due for the newest `clear_keep` calls that change files, the newest `clear_keep` other calls,
    and failed calls to change files. If `truncate` is "persisted", only inputs of Write and Edit
    are due whose content is still on disk. `sha256_of` returns the current sha256 of a file, or
    None, and is called once for each path.
    """
    answered = {result.call.id: result for result in view.results()}
    shortened = view.unmasked_calls | {
        id
        for item in view.items
        for id, shown in item.inputs.items()
        if id not in view.calls or shown != _without_replaced(view.calls[id])
    }
    replaced = {item.seq for item in view.items if item.is_replaced}
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
        if call.id in answered and call.id not in shortened and call.seq not in replaced
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
            "input": _shortened(
                each, view.scaled(each.size), status.get(each.call.id, ""), offered
            ),
        }
        for each in due
    ]


def plan_replaced(view: View, policy: Policy) -> list[dict[str, Any]]:
    """Return mask targets that shorten only the replaced text of each Edit, oldest first. The text
    is no longer in the file. The newest `clear_keep` calls that change files and failed calls are
    never due.
    """
    calls = [call for call in view.calls.values() if call.name in CHANGING_TOOLS]
    old = calls[: max(0, len(calls) - policy.clear_keep)]
    replacing = {call.id: call for call in old if _is_replacing(call)}
    return [
        {"seq": call.seq, "tool_use_id": call.id, "input": _without_replaced(call)}
        for result in view.results()
        if not _failed(result)
        and (call := replacing.get(result.call.id))
        and call.id not in view.unmasked_calls
        and (place := view.position(call.seq)) is not None
        and not view.items[place].is_replaced
        and call.id not in view.items[place].inputs
    ]


def _is_replacing(call: Call) -> bool:
    text = call.input.get(REPLACED)
    return call.name == "Edit" and isinstance(text, str) and _is_long(text)


def _without_replaced(call: Call) -> dict[str, Any]:
    """Return the input of an Edit with a note instead of the replaced text."""
    text = str(call.input.get(REPLACED))
    note = f"[{_lines(text)}, {_estimate(text):,} tokens compacted · full text: #{call.seq}]"
    return {**call.input, REPLACED: note} if _is_replacing(call) else call.input


def file_sha256(path: str) -> str | None:
    """Return the sha256 of a file; None unless it is a readable regular file of at most
    MAX_FILE_BYTES. The digest is cached until the file may have changed.
    """
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
    except (OSError, ValueError):  # ValueError: the recorded text is not a valid path
        return None
    if time.time_ns() - status.st_ctime_ns > SETTLED_NS:
        if len(_digests) >= MAX_CACHED_DIGESTS:
            _digests.clear()
        _digests[known] = found
    return found


def _old_input(call: Call, result: ViewResult) -> _OldInput | None:
    """Return the input of a call if it may be shortened; None for a failed change of a file."""
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
    """Return the disk status for the note, by call ID. Only files that are as this call or a later
    one left them have a status. `disk` has the current sha256 by path.
    """
    unchanged: set[str] = set()  # paths without later changes by others
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


def _shortened(old: _OldInput, tokens_cut: int, status: str, offered: Offered) -> dict[str, Any]:
    """Return the call's input with a note for the first long string and a mark for the others.
    `tokens_cut` is the size of these strings, `status` their state on disk.
    """
    notes = iter([_note(old, tokens_cut, status, offered)])

    def replaced(given: Any) -> Any:
        if isinstance(given, str):
            return next(notes, _rest(old, given)) if given in old.long else given
        if isinstance(given, dict):
            return {name: replaced(each) for name, each in given.items()}
        return [replaced(each) for each in given] if isinstance(given, list) else given

    shorter: dict[str, Any] = replaced(old.call.input)
    return shorter


def _note(old: _OldInput, tokens_cut: int, status: str, offered: Offered) -> str:
    """Return the note in one line: size, action, status and where the full text is."""
    call, size = old.call, f"{tokens_cut:,} tokens compacted"
    if not old.path:
        return f"{shorten(old.long[0], KEPT_CHARS)} [{size} · full text: #{call.seq}]"
    path = call.input.get("path", old.path)
    content, before, after = (_lines(call.input.get(name)) for name in _WRITTEN)
    if lines := call.input.get("lines"):
        before = f"lines {lines}"
    done = f"wrote {content} to" if call.name == "Write" else f"replaced {before} by {after} in"
    if not status:
        return f"[{size} · {done} {path} · the file differs now · full text: #{call.seq}]"
    where = offered.say(("{Read} it there, or see #{seq}", "see #{seq}"), seq=call.seq)
    return f"[{size} · {done} {path} · {status} · {where}]"


def _rest(old: _OldInput, text: str) -> str:
    """Return the replacement for every long string after the first."""
    return _REST if old.path else f"{shorten(text, KEPT_CHARS)} {_REST}"


def _lines(text: Any) -> str:
    return count_of(count_lines(text) if isinstance(text, str) else 0, "line")


class TruncateInputs(Layer):
    """Truncates long inputs of old calls."""

    name, word = TRUNCATE.logged, TRUNCATE.word
    nouns = ("old input", "old inputs")
    done = ("truncated", "truncated")
    title = "Tool inputs truncated"
    tier = "TIER_2"
    gate = "HOOK-CTX-002"
    mark = '<path d="M-4 -4H4V4H-4Z" fill="var(--paper)" stroke="var(--good)" stroke-width="2"/>'
    off = ("truncate.at=off",)

    def now(self, state: LayerState) -> Pass:
        """Shorten old inputs, if the policy's threshold is reached and it saves enough."""
        policy, view, window = state.policy, state.view, state.window
        if policy.clear_when == "pays" or not reached(policy.truncate_at, window):
            return NO_PASS
        targets = plan(view, policy, state.host.file_sha256, state.offered)
        saved = view.scaled(sum(_saved_tokens(view, target) for target in targets))
        return (targets, "level") if saved > MIN_TRUNCATION_SHARE * window.size else NO_PASS

    def due(self, state: LayerState, due: Sequence[DueMask]) -> list[DueMask]:
        """Add all inputs that may be shortened now. A part of the mask of an Edit shortens only the
        replaced text, which nothing needs any more.
        """
        policy, view = state.policy, state.view
        if not reached(policy.truncate_at, state.window):
            return [*due]
        replaced = {}
        for target in plan_replaced(view, policy) if policy.truncate == "all" else ():
            saved = view.scaled(_saved_tokens(view, target))
            if saved > 0:
                part = DueMask(self.name, target, saved, argument=REPLACED)
                replaced[target["tool_use_id"]] = part
        ages, found = input_ages(view), [*due]
        for target in plan(view, policy, state.host.file_sha256, state.offered):
            id, saved = target["tool_use_id"], view.scaled(_saved_tokens(view, target))
            if saved > 0:
                chance = input_curve(view.calls[id]).at(ages[id])
                parts = (replaced.pop(id),) if id in replaced else ()
                found.append(DueMask(self.name, target, saved, chance, parts))
        return [*found, *replaced.values()]

    def to_fit(self, state: LayerState, *, answered_only: bool) -> list[dict[str, Any]]:
        """Shorten the input of every call whose content is on disk. This includes the newest calls,
        since a single call may be larger than the window.
        """
        every = replace(state.policy, clear_keep=0)
        return plan(state.view, every, state.host.file_sha256, state.offered)


def _saved_tokens(view: View, target: dict[str, Any]) -> int:
    """Return the unscaled tokens that shortening one input saves."""
    call, place = view.calls.get(target["tool_use_id"]), view.position(target["seq"])
    if call is None or place is None:
        return 0
    shown = view.items[place].inputs.get(call.id, call.input)
    old = tokens.estimate_block({"type": "tool_use", "input": shown})
    return old - tokens.estimate_block({"type": "tool_use", "input": target["input"]})
