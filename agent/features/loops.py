"""End a turn in which the model repeats itself.

The model first gets a notice of the repetition. If it continues, the user is asked in a terminal;
otherwise the turn ends with a limit. A reply that repeats its text is stopped while it streams;
`loop.odd_replies` then notifies the model, or ends the turn.
"""

import json

from ...tools.system.shorten import shorten
from ..context.items import Call
from ..errors import LimitReached
from ..events import Delta
from ..loop.feature import Feature, ToolCall, Veto
from ..loop.repeated_text import RepeatedReply
from ..loop.session_handle import SessionHandle
from ..loop.stuck import end_unless_allowed
from ..session.entries import Entry, User
from .repeated_calls import MAX_TIMES, RepeatedCalls, Repetition, newest_part

MAX_READ_ENTRIES = 500  # of the log, for calls before a resume
MAX_SHOWN_CHARS = 300  # of a call, in the notice
MAX_TITLE_CHARS = 80  # of a call, in the reason

CALL_REPEATED = """\
[This is a notice of the program. You made the same call {times} times in a row, with the same \
result each time:
{calls}
The next result will be the same. Do something else: change the arguments, use another tool, or \
read the result again for what it says. If you cannot go on, answer without a call and say what \
is missing. If you repeat it further, your turn is ended.]"""
CYCLE_REPEATED = """\
[This is a notice of the program. You made the same {count} calls {times} times in a row, in the \
same order and with the same results:
{calls}
The next results will be the same. Do something else: change the arguments, use another tool, or \
read the results again for what they say. If you cannot go on, answer without a call and say what \
is missing. If you repeat them further, your turn is ended.]"""

NOT_RUN = "the same call ran {times} times or more in a row. Read its results."


class LoopsFeature(Feature):
    """Finds repeated calls and repeated text."""

    name = "loops"

    def __init__(self, handle: SessionHandle) -> None:
        super().__init__(handle)
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
            self.handle.notify(
                "warning", f"the model is told that it repeats itself: {_describe(found)}"
            )
            self.handle.record(
                User(content=notice(found), source="notice", details=found.details())
            )
        elif found.must_end:
            hint = 'Say what to do instead. `features.off = ["loops"]` switches this check off.'
            error = LimitReached(
                f"the model repeats itself: {_describe(found)}", limit="loop", hint=hint
            )
            await end_unless_allowed(self.handle, error)
        return None

    def _state(self) -> RepeatedCalls:
        """Return the state of the calls. Initially read it from the end of the log."""
        if self._calls is None:
            self._calls = RepeatedCalls()
            for entry in newest_part(reversed(self.handle.log.entries()), MAX_READ_ENTRIES):
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
    titles = (f"{call.name} {shorten(call.argument, MAX_TITLE_CHARS)}".strip() for call in made)
    results = "result" if len(made) == 1 else "results"
    return f"{', then '.join(titles)}, {found.times} times with the same {results}"
