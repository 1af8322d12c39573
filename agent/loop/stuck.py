"""End a turn in which the model makes no progress, unless the user lets it continue."""

from collections.abc import Sequence

from ...tools.system.phrasing import shorten
from ..context.items import Call
from ..errors import CtxagentError
from ..events import FormQuestion, Question
from ..session.entries import Note, User
from .live_session import LiveSession

REPEATS = "repeats"  # key in the details of a notice: period, times, IDs of the repeated calls
LOOP_TOPIC = "loop"  # of the note that the user let the model continue
MAX_TITLE_CHARS = 80  # of a repeated call
STOP, GO_ON = "Stop", "Go on"
_CHOICES = (
    (STOP, "end the turn"),
    (GO_ON, "let the model try again; type something else to tell it what to do"),
)


def describe_calls(calls: Sequence[Call], times: int) -> str:
    """Return repeated calls on one line, for the user."""
    titles = (f"{call.name} {shorten(call.argument, MAX_TITLE_CHARS)}".strip() for call in calls)
    results = "result" if len(calls) == 1 else "results"
    return f"{', then '.join(titles)}, {times} times with the same {results}"


async def end_unless_allowed(session: LiveSession, error: CtxagentError) -> None:
    """Ask the user whether the model may continue. Raises the error if it may not, or if the user
    cannot be asked.
    """
    if session.ask is None:
        raise error
    why = f"{error.message[:1].upper()}{error.message[1:]}"
    form = FormQuestion(f"{why}. Go on?", _CHOICES)
    answer = await session.ask(Question("AskUser", form.text, {}, "", "", form=[form]))
    said = answer.words[0] if answer and answer.allow and answer.words else STOP
    if said == STOP:
        raise error
    session.record(Note(topic=LOOP_TOPIC, text=f"allowed to go on: {error.message}"))
    if said != GO_ON:
        session.record(User(content=said, mid_turn=True))
