"""The fate of each result in a view: repeated, made stale or fixed by later calls, and its age."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from typing import Any

from ...context.items import Call, ViewResult
from ...context.view import View
from ...lazy import dataclass, regex
from ...session.change_rows import change_rows
from ...session.searches import failure
from .need_chances import (
    CURVES,
    MAX_SEEN_FACTOR,
    MIN_SEEN_FACTOR,
    PRIOR_AGE,
    PRIOR_RESULTS,
    REPEATED,
    NeedClass,
    NeedCurve,
)

CHANGING_TOOLS = ("Write", "Edit")
_SEARCHING_TOOLS = ("Grep", "Glob", "Mcp", "WebFetch", "WebSearch", "Recall")
IGNORED_ARGUMENTS = ("description", "timeout")  # arguments that do not change what a call does
_OFTEN = 2  # minimum changes of a file for "changed often"
_SHOWS_FILE = regex(r"\s*(?:cd\s[^&;|]*(?:&&|;)\s*)?(?:cat|sed|head|tail|nl|bat|less|awk)\b")


@dataclass(frozen=True, slots=True)
class Fate:
    """The effect of later calls on a result."""

    age: int  # replies since the result, or since a change of the file that it shows
    changes: int = 0  # number of later changes of this file
    repeated_by: int | None = None  # entry with the same result, or with more of the file
    changed_by: int | None = None  # newest entry that changed the file
    fixed: bool = False  # the result is of a failed command that succeeded later

    @property
    def superseded_by(self) -> int | None:
        """The newest entry that repeats the result or makes it stale."""
        if self.repeated_by is None or self.changed_by is None:
            return self.changed_by if self.repeated_by is None else self.repeated_by
        return max(self.repeated_by, self.changed_by)

    def need_chance(self, call: Call) -> float:
        """Return the usual chance that the result of `call` is needed after it was cleared."""
        if self.repeated_by is not None:
            return REPEATED
        return CURVES[kind_of(call, self.changes)].at(self.age)


def fates_of(view: View) -> dict[str, Fate]:
    """Return the fate of every result and every web search in a view, by call ID."""
    later, found = _LaterCalls(), {}
    for result in _newest_first(view, later):
        signature = _signature(result.call)
        found[result.call.id] = later.fate(result, signature)
        later.add(result, signature)
    return found


@dataclass(frozen=True, slots=True)
class SeenNeeds:
    """The number of cleared results of each kind, and how many of them were requested again."""

    gone: Mapping[NeedClass, int]
    again: Mapping[NeedClass, int]

    def chance(self, fate: Fate, call: Call) -> float:
        """Return the chance that the result of `call` is needed after it was cleared, adjusted to
        this session. The usual chance weighs as much as `PRIOR_RESULTS` cleared results of the
        kind.
        """
        chance, kind = fate.need_chance(call), kind_of(call, fate.changes)
        usual = CURVES[kind].at(PRIOR_AGE)
        if fate.repeated_by is not None or not usual:
            return chance
        seen = (PRIOR_RESULTS * usual + self.again.get(kind, 0)) / (
            PRIOR_RESULTS + self.gone.get(kind, 0)
        )
        return chance * min(MAX_SEEN_FACTOR, max(MIN_SEEN_FACTOR, seen / usual))


def seen_needs(results: Sequence[ViewResult], fates: Mapping[str, Fate]) -> SeenNeeds:
    """Count the cleared results, except results that were repeated before they were cleared."""
    gone, again = Counter[NeedClass](), Counter[NeedClass]()
    for result in results:
        fate = fates[result.call.id]
        if not result.masked or (fate.repeated_by or result.item.masked_at) < result.item.masked_at:
            continue
        kind = kind_of(result.call, fate.changes)
        gone[kind] += 1
        again[kind] += fate.repeated_by is not None
    return SeenNeeds(gone, again)


def input_curve(call: Call) -> NeedCurve:
    """Return the chance, by age, that a call's input is needed after it was shortened."""
    return CURVES["input" if call.name in CHANGING_TOOLS else "argument"]


def input_ages(view: View) -> dict[str, int]:
    """Return the number of replies after each call, by call ID."""
    replies = [item.seq for item in view.items if item.role == "assistant"]
    after = {seq: len(replies) - number for number, seq in enumerate(replies, 1)}
    return {call.id: after[call.seq] for call in view.calls.values() if call.seq in after}


def failed(result: ViewResult) -> bool:
    """Return True if the tool call failed. A command that ran and exited with an error code did not
    fail.
    """
    if failure(result.block):
        return True
    ran = isinstance(result.details.get("exit_code"), int)
    return result.block.get("is_error") is True and not ran


def ended_in_error(result: ViewResult) -> bool:
    """Return True if the call failed or its command exited with a code other than 0."""
    return result.block.get("is_error") is True or result.details.get("exit_code") not in (None, 0)


def lines_of(result: ViewResult) -> tuple[int, int] | None:
    """Return the first and last line that a Read showed; None for other results."""
    match result.details.get("lines"):
        case [int(first), int(last)] if result.call.name == "Read":
            return first, last
    return None


@dataclass(slots=True)
class _LaterCalls:
    """The calls after a result, collected newest first, with the newest entry of each."""

    replies: int = 0
    calls: dict[object, int] = field(default_factory=dict)  # by signature
    passed: set[object] = field(default_factory=set)  # signatures of the calls that succeeded
    read_to: dict[str, tuple[int, int]] = field(default_factory=dict)  # last line, if read from 1
    # By path of a changed file: the newest change's seq, the number of changes, and the replies
    # since the newest change.
    changed: dict[str, tuple[int, int, int]] = field(default_factory=dict)

    def fate(self, result: ViewResult, signature: object) -> Fate:
        repeated = [self.calls.get(signature)]
        changed_by, changes, age = None, 0, self.replies
        if result.call.name == "Read":
            path, lines = _path(result), lines_of(result)
            last, seq = self.read_to.get(path, (0, None))
            repeated.append(seq if lines is not None and lines[1] <= last else None)
            changed_by, changes, age = self.changed.get(path, (None, 0, self.replies))
        return Fate(
            age,
            changes,
            max((seq for seq in repeated if seq is not None), default=None),
            changed_by,
            result.call.name == "Bash" and ended_in_error(result) and signature in self.passed,
        )

    def add(self, result: ViewResult, signature: object) -> None:
        if failed(result):
            return
        seq = result.item.seq
        self.calls.setdefault(signature, seq)
        if result.details.get("exit_code") == 0 and not result.block.get("is_error"):
            self.passed.add(signature)
        for path in _changed_paths(result):
            newest, count, age = self.changed.get(path, (seq, 0, self.replies))
            self.changed[path] = newest, count + 1, age
        lines = lines_of(result)
        if lines is not None and lines[0] <= 1:
            path = _path(result)
            if lines[1] > self.read_to.get(path, (0, 0))[0]:
                self.read_to[path] = lines[1], seq


def _newest_first(view: View, later: _LaterCalls) -> Iterator[ViewResult]:
    """Yield results and searches, newest first, and count the replies in between."""
    results = {result.item.seq: result for result in view.results()}
    searches: dict[int, list[ViewResult]] = {}
    for search in view.searches():
        searches.setdefault(search.item.seq, []).append(search)
    for item in reversed(view.items):
        yield from reversed(searches.get(item.seq, ()))
        if item.seq in results:
            yield results[item.seq]
        later.replies += item.role == "assistant"


def kind_of(call: Call, changes: int) -> NeedClass:
    if call.name == "Read":
        return "changed often" if changes >= _OFTEN else "changed once" if changes else "read"
    if call.name == "Bash":
        return "shown" if _shows_file(str(call.input.get("command", ""))) else "command"
    is_search = call.name in _SEARCHING_TOOLS or call.name.startswith("mcp__")
    return "search" if is_search else "command"


@lru_cache(maxsize=4_096)
def _shows_file(command: str) -> bool:
    return _SHOWS_FILE.match(command) is not None


def _signature(call: Call) -> object:
    """Return a value that is equal for calls with the same request."""
    arguments = sorted((k, v) for k, v in call.input.items() if k not in IGNORED_ARGUMENTS)
    return call.name, tuple((k, v if isinstance(v, str) else repr(v)) for k, v in arguments)


def _path(result: ViewResult) -> str:
    """Return the file's path as the tool resolved it, else as the model wrote it."""
    return str(result.details.get("path") or result.call.input.get("path"))


def _changed_paths(result: ViewResult) -> set[str]:
    details: Mapping[str, Any] = result.details
    found = {str(row["path"]) for row in change_rows(details)}
    return found | {_path(result)} if result.call.name in CHANGING_TOOLS else found
