"""End a turn in which the model repeats itself: in its text, or in calls with the same results.

The model first gets a notice of the repetition. If it continues, the user is asked in a terminal;
otherwise the turn ends with a limit. A reply that repeats its text is stopped while it streams;
`loop.turn` then notifies the model, or ends the turn.

A repetition of calls is a single call or a short cycle of calls. It is computed from the entries of
the log, so it is the same after a resume. Only the newest few calls are compared, so the cost per
call does not depend on the length of the session.
"""

import hashlib
import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from datetime import datetime
from pathlib import PurePath
from typing import Any

from ...tools.system.phrasing import shorten
from ..context.items import Call
from ..context.request import PAUSED_STOP_REASON
from ..errors import LimitReached
from ..events import Delta
from ..lazy import dataclass, regex
from ..loop.interface import Feature, ToolCall, Veto
from ..loop.live_session import LiveSession
from ..loop.repeated_text import RepeatedReply
from ..loop.stuck import LOOP_TOPIC, REPEATS, describe_calls, end_unless_allowed
from ..models.base import text_of
from ..permissions.rules import TOOL_NAMES
from ..session.entries import Assistant, Block, End, Entry, Note, ToolResult, User
from ..session.searches import SEARCH_TOOL, is_search, query_of

MAX_PERIOD = 4  # calls of a cycle
TIMES_UNTIL_NOTICE = 3  # times that the same calls run until the model gets a notice
MAX_TIMES = 6  # times until the turn ends, if the model got a notice
# Factor on these limits for calls that wait for something and for third-party tools, which may
# have effects that their results do not show.
PATIENCE_FACTOR = 5
WAIT_SECONDS = 5.0  # a call that takes this long counts as waiting

# Parts of an output that differ between runs: durations, times of day, addresses.
_VARYING = regex(
    r"\b\d+(?:\.\d+)?\s?(?:s|ms|us|µs|ns|sec|secs|seconds?)\b|\b\d{1,2}:\d\d(?::\d\d(?:[.,]\d+)?)?\b"
    r"|\b0x[0-9a-fA-F]+\b"
)


@dataclass(frozen=True, slots=True)
class CallMade:
    """A call with its result."""

    tool: str
    arguments: str  # JSON
    result: str  # a digest
    waits: bool = field(compare=False)
    id: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Repetition:
    """Calls that were repeated."""

    calls: tuple[CallMade, ...]
    times: int
    has_notice: bool  # the model got a notice
    must_end: bool  # the model continued despite the notice, up to the limit

    def details(self) -> dict[str, Any]:
        """Return the details of the notice for the model."""
        ids = [call.id for call in self.calls]
        return {REPEATS: {"period": len(ids), "times": self.times, "calls": ids}}


@dataclass(slots=True)
class RepeatedCalls:
    """The newest calls of a conversation, and their repetitions."""

    _open: dict[str, Block | CallMade] = field(default_factory=dict)  # newest reply's calls by ID
    _unanswered: int = 0  # calls of the newest reply without a result
    _newest: deque[CallMade] = field(default_factory=lambda: deque(maxlen=MAX_PERIOD))
    # For each period: number of consecutive calls that equal the call `period` calls earlier.
    _equal: list[int] = field(default_factory=lambda: [0] * (MAX_PERIOD + 1))
    _noticed_period: int = 0  # period of the repetition in the last notice; 0 for none
    _over_limit: frozenset[str] = frozenset()  # IDs of calls of the newest reply that must not run
    _at: str = ""  # when the last entry was recorded

    def add(self, entry: Entry) -> None:
        """Process one more entry."""
        if resets(entry):
            self._open, self._noticed_period, self._equal = {}, 0, [0] * (MAX_PERIOD + 1)
            self._newest.clear()
        elif isinstance(entry, Assistant) and entry.purpose == "turn":
            self._open = {call["id"]: call for call in _calls(entry)}
            self._unanswered = len(self._open)
            self._over_limit = frozenset(self._calls_over_limit())
            if entry.stop_reason != PAUSED_STOP_REASON:  # pauses count as odd replies
                for block in filter(is_search, entry.content):
                    query = json.dumps({"query": query_of(block)})
                    self._push(CallMade(SEARCH_TOOL, query, "", waits=False))
        elif isinstance(entry, ToolResult):
            self._add_result(entry)
        elif isinstance(entry, User) and isinstance(told := entry.details.get(REPEATS), Mapping):
            period = told.get("period")
            if isinstance(period, int) and 0 < period <= MAX_PERIOD:
                self._noticed_period = period
        self._at = entry.at

    def is_over_limit(self, id: str) -> bool:
        """Return True if a call of the newest reply must not run, because it is equal to too many
        calls right before it.
        """
        return id in self._over_limit

    def _calls_over_limit(self) -> Iterator[str]:
        """Yield the IDs of calls of the newest reply that are equal to too many calls right before
        them. Their results are not known yet.
        """
        last, times = ("", ""), 0
        factor = 1
        if self._newest:
            newest = self._newest[-1]
            last, times = (newest.tool, newest.arguments), self._equal[1] + 1
            factor = PATIENCE_FACTOR if newest.waits else 1
        for id, call in self._open.items():
            if (made := _tool_and_arguments(call)) != last:
                last, times, factor = made, 0, PATIENCE_FACTOR if _is_foreign(made[0]) else 1
            times += 1
            if times > MAX_TIMES * factor:
                yield id

    def _add_result(self, entry: ToolResult) -> None:
        call = self._open.get(entry.tool_use_id)
        if not isinstance(call, dict):
            return
        name, arguments = _tool_and_arguments(call)
        waits = bool(entry.details.get("running")) or (_is_foreign(name) and not entry.is_error)
        waits = waits or _seconds_between(self._at, entry.at) >= WAIT_SECONDS
        id = entry.tool_use_id
        self._open[id] = CallMade(name, arguments, _digest(entry), waits, id)
        self._unanswered -= 1
        if not self._unanswered:  # keep the order of the calls in the reply
            made, self._open = self._open, {}
            for id, each in made.items():
                if isinstance(each, CallMade) and id not in self._over_limit:
                    self._push(each)

    def _push(self, call: CallMade) -> None:
        for period in range(1, MAX_PERIOD + 1):
            is_equal = len(self._newest) >= period and self._newest[-period] == call
            self._equal[period] = self._equal[period] + 1 if is_equal else 0
        self._newest.append(call)
        if not self._equal[self._noticed_period]:
            self._noticed_period = 0

    def found(self) -> Repetition | None:
        """Return a repetition that needs a notice or the end of the turn, or None."""
        for period in range(1, MAX_PERIOD + 1):
            times = self._equal[period] // period + 1
            if times < TIMES_UNTIL_NOTICE:
                continue
            calls = tuple(self._newest)[-period:]
            factor = PATIENCE_FACTOR if any(call.waits for call in calls) else 1
            has_notice = self._noticed_period == period
            if times >= TIMES_UNTIL_NOTICE * factor:
                return Repetition(
                    calls, times, has_notice, has_notice and times >= MAX_TIMES * factor
                )
        return None


def resets(entry: Entry) -> bool:
    """Return True if an entry restarts the count: a final answer, a limit that ended the turn, or
    the user's permission to continue.
    """
    if isinstance(entry, Assistant):
        is_answer = entry.purpose == "turn" and entry.stop_reason in ("end_turn", "stop_sequence")
        return is_answer and not _calls(entry) and bool(text_of(entry.content).strip())
    if isinstance(entry, End):
        return entry.status == "limit"
    return isinstance(entry, Note) and entry.topic == LOOP_TOPIC


def newest_part(entries: Iterable[Entry], most: int) -> list[Entry]:
    """Return the entries since the last reset, at most `most`, oldest first. `entries` is a log,
    newest first.
    """
    found = list[Entry]()
    for entry in entries:
        if resets(entry) or len(found) == most:
            break
        found.append(entry)
    return found[::-1]


def _tool_and_arguments(call: Block | CallMade) -> tuple[str, str]:
    if isinstance(call, CallMade):
        return call.tool, call.arguments
    return str(call.get("name")), json.dumps(call.get("input"), sort_keys=True)


def _is_foreign(tool: str) -> bool:
    """Return True for a third-party tool and for an unknown tool."""
    return tool == "Mcp" or tool not in TOOL_NAMES


def _calls(entry: Assistant) -> list[Block]:
    return [block for block in entry.content if block.get("type") == "tool_use" and "id" in block]


def _digest(entry: ToolResult) -> str:
    """Return a digest of a result without varying parts: durations, times of day, memory addresses,
    and the name of the file with the full result.
    """
    content = entry.content
    text = content if isinstance(content, str) else json.dumps(content, sort_keys=True)
    names = [PurePath(entry.offloaded).name, f"#{entry.seq}"] if entry.offloaded else []
    for name in names:
        text = text.replace(name, "")
    text = f"{entry.is_error} {_VARYING.sub('', text)}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _seconds_between(begin: str, end: str) -> float:
    """Return the seconds between two entry times, or 0 if a time is missing."""
    try:
        return (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds()
    except (ValueError, TypeError):
        return 0.0


MAX_READ_ENTRIES = 500  # of the log, for calls before a resume
MAX_SHOWN_CHARS = 300  # of a call, in the notice

CALL_REPEATED = """\
[This is a notice of the program. You made the same call {times} times in a row, with the same \
result each time:
{calls}
Do not make this call again, and do not repeat this notice. If the result has what the user asked \
for, answer the user now in your own words. If not, change the arguments or use another tool. If \
you cannot go on, answer without a call and say what is missing. Another repetition can end the \
turn.]"""
CYCLE_REPEATED = """\
[This is a notice of the program. You made the same {count} calls {times} times in a row, in the \
same order and with the same results:
{calls}
Do not make these calls again, and do not repeat this notice. If the results have what the user \
asked for, answer the user now in your own words. If not, change the arguments or use another \
tool. If you cannot go on, answer without a call and say what is missing. Another repetition can \
end the turn.]"""

NOT_RUN = "the same call ran {times} times or more in a row. Use its results."


class LoopsFeature(Feature):
    """Finds repeated calls and repeated text."""

    def __init__(self, session: LiveSession) -> None:
        super().__init__(session)
        self._calls: RepeatedCalls | None = None  # None until the first call of the process
        self._reply = RepeatedReply()

    def reply_streamed(self, delta: Delta) -> str:
        """Return the text that a reply repeats at its end, or ""."""
        return self._reply.add(delta)

    def recorded(self, entry: Entry) -> None:
        """Add a new entry to the state."""
        if self._calls is not None:
            self._calls.add(entry)

    async def before_tool(self, call: ToolCall) -> None:
        """Raise Veto for a call that is equal to too many calls right before it."""
        if self._state().is_over_limit(call.id):
            raise Veto(NOT_RUN.format(times=MAX_TIMES))

    async def step_finished(self) -> str | None:
        """Notify the model of a repetition, or end the turn. Raises LimitReached."""
        found = self._state().found()
        if found is None:
            return None
        if not found.has_notice:
            self.session.notify(
                "warning", f"the model is told that it repeats itself: {_describe(found)}"
            )
            self.session.record(
                User(content=notice(found), source="notice", details=found.details())
            )
        elif found.must_end:
            hint = 'Say what to do instead. `features.off = ["loops"]` switches this check off.'
            error = LimitReached(
                f"the model repeats itself: {_describe(found)}", limit="loop", hint=hint
            )
            await end_unless_allowed(self.session, error)
        return None

    def _state(self) -> RepeatedCalls:
        """Return the state of the calls. Initially read it from the end of the log."""
        if self._calls is None:
            self._calls = RepeatedCalls()
            for entry in newest_part(reversed(self.session.log.entries()), MAX_READ_ENTRIES):
                self._calls.add(entry)
        return self._calls


def notice(found: Repetition) -> str:
    """Return the notice for the model about a repetition."""
    text = CALL_REPEATED if len(found.calls) == 1 else CYCLE_REPEATED
    shown = (f"- {each.tool} {shorten(each.arguments, MAX_SHOWN_CHARS)}" for each in found.calls)
    return text.format(times=found.times, count=len(found.calls), calls="\n".join(shown))


def _describe(found: Repetition) -> str:
    """Return the repeated calls on one line, for the user."""
    made = [Call("", 0, each.tool, json.loads(each.arguments)) for each in found.calls]
    return describe_calls(made, found.times)
