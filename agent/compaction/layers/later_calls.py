"""The fate of each result in a view: repeated, made stale or fixed by later calls, and its age; the
chance that it is needed again; and the lines that an outline keeps of it.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from typing import Any, Literal

from ....tools.system.phrasing import shorten
from ...context.items import Call, ViewResult
from ...context.view import View
from ...lazy import dataclass, regex
from ...permissions.shell.parser import Script, SimpleCommand, parse
from ...session.change_rows import change_rows
from ...session.command_output import DISPLAY_PROGRAMS, SETUP_PROGRAMS
from ...session.searches import failure

_KNOWN_COMMANDS = 4_096  # results that are cached
_DEVICES = "/dev/"
_FILE_TOOLS = ("Read", "Write", "Edit")
_WORD = regex(r"(?:\"[^\"]*\"|'[^']*'|\\.|\S)+")  # a blank in quotes or after a backslash is in it


def told_call(result: ViewResult, limit: int, *, short: bool = False) -> str:
    """Return the main argument of a call in `limit` characters; paths are whole, however long.

    `short` tells only the programs of a command, without pipes and texts.
    """
    call = result.call
    if call.name in _FILE_TOOLS:
        path = call.input.get("path")
        changed = dict.fromkeys(row["path"] for row in change_rows(result.details))
        return path if isinstance(path, str) else "; ".join(changed)
    command = call.input.get("command")
    if call.name == "Bash" and isinstance(command, str):
        told = "; ".join(told_programs(command)) if short else without_setup(command)
        return cut_between_words(told, limit)
    return shorten(call.argument, limit)


@lru_cache(maxsize=_KNOWN_COMMANDS)
def without_setup(command: str) -> str:
    """Return a command from its first program on that is not set-up, on one line."""
    first = next(_programs(parse(command)), None)
    place = command.find(first.source) if first else 0
    return " ".join(command[max(0, place) :].split())


@lru_cache(maxsize=_KNOWN_COMMANDS)
def told_programs(command: str) -> tuple[str, ...]:
    """Return the programs of a command with their arguments, and the files that it writes. Return
    the command itself if it is only set-up.
    """
    script = parse(command)
    programs = [*_programs(script)]
    written = dict.fromkeys(f"> {w.text}" for w in script.writes if w.text[:5] != _DEVICES)
    shown = [part for part in programs if not _only_displays(part)]
    texts = dict.fromkeys(map(_text_of, shown or ([] if written else programs)))
    return (*texts, *written) or (" ".join(command.split()),)


def _programs(script: Script) -> Iterator[SimpleCommand]:
    """Yield the parts of a command that are no set-up, without wrappers and without substitutions,
    which their command shows.
    """
    parts = script.parts
    for place, part in enumerate(parts):
        is_wrapper = any(_starts(part, inner) for inner in parts[place + 1 : place + 2])
        is_shown = any(f"$({part.source})" in outer.source for outer in parts[:place])
        name = part.name.rpartition("/")[2]
        if not (is_wrapper or is_shown or name in SETUP_PROGRAMS):
            yield part


def _starts(outer: SimpleCommand, inner: SimpleCommand) -> bool:
    """Return True if a command only starts another one: with its last words, or as a script in one
    of its words.
    """
    ends = outer.words[-len(inner.words) :] == inner.words and len(outer.words) > len(inner.words)
    return ends or any(word.text.lstrip().startswith(inner.source) for word in outer.words[1:])


def _only_displays(part: SimpleCommand) -> bool:
    """Return True if a program only shows a part of another one's output."""
    operands = (w.text for w in part.words[1:] if w.text[:1] != "-" and not w.text.isdigit())
    return part.name in DISPLAY_PROGRAMS and not any(operands)


def _text_of(part: SimpleCommand) -> str:
    """Return a program with its arguments as written, or with the values of a loop."""
    texts = [word.text for word in part.words]
    is_looped = "$" in part.source and not all(text in part.source for text in texts)
    return " ".join((" ".join(texts) if is_looped else part.source).split())


def cut_between_words(text: str, limit: int) -> str:
    """Cut a text to `limit` characters, between words of the shell: a quoted path stays whole. The
    first word always stays.
    """
    if len(text) <= limit:
        return text
    ends = [word.end() for word in _WORD.finditer(text)]
    end = max([end for end in ends if end < limit], default=ends[0] if ends else 0)
    return f"{text[:end]} …" if end < len(text) else text


NeedClass = Literal[
    "read",
    "changed once",
    "changed often",
    "shown",
    "command",
    "search",
    "input",
    "argument",
]


@dataclass(frozen=True, slots=True)
class NeedCurve:
    """A chance that falls with the number of replies since a text was added or last worked on."""

    first: float
    half_life: float  # replies in which the part above `rest` halves
    rest: float

    def at(self, age: int) -> float:
        """Return the chance after `age` replies."""
        return self.rest + (self.first - self.rest) * math.exp2(-age / self.half_life)


CURVES: dict[NeedClass, NeedCurve] = {
    "read": NeedCurve(0.34, 5, 0.085),  # a file that was not changed since
    "changed once": NeedCurve(0.039, 5, 0.0094),  # a file that this session changed since
    "changed often": NeedCurve(0.0057, 10, 0.0),
    "shown": NeedCurve(0.041, 5, 0.0),  # a file, by a command such as cat or sed
    "command": NeedCurve(0.052, 8, 0.0026),
    "search": NeedCurve(0.041, 5, 0.013),
    "input": NeedCurve(0.16, 8, 0.015),  # the text of a Write or an Edit
    "argument": NeedCurve(0.052, 8, 0.0026),  # the arguments of any other call
}
REPEATED = 0.0005  # for a result that a later call repeated or included
# The chances are adjusted to how often the session needs each kind again. The curve counts as this
# many cleared results, with the chance at this age. The adjustment is limited to these factors.
PRIOR_RESULTS = 20
PRIOR_AGE = 5  # replies
MIN_SEEN_FACTOR, MAX_SEEN_FACTOR = 0.1, 3.0
# Extra cost of a miss, in input tokens: the output of one more call and the user's waiting time.
# Reading the context again and restoring the text are counted separately. Not measured: chosen so
# that about one result in a hundred is missed. In a small window the cost is limited to a share of
# the window, since keeping a result brings the next summary nearer.
MISS_TOKENS = 32_000
MAX_MISS_SHARE = 0.16


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
