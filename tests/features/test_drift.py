"""When replies are compared with the intent of a session. Full conversations with drift are in
`compaction/test_drift_monitor.py`.
"""

import asyncio
from collections.abc import Sequence

import pytest

from ctxagent.agent.compaction.drift.detector import WATCHED_TURNS
from ctxagent.agent.errors import LimitReached
from ctxagent.agent.events import TurnFinished
from ctxagent.agent.features.drift import DriftFeature
from ctxagent.agent.launch import Budget
from ctxagent.agent.loop.interface import IncomingMessage
from ctxagent.agent.loop.live_session import LiveSession
from ctxagent.agent.models.base import Reply
from ctxagent.agent.session.entries import Note, Summary, Usage, User

LOST = "What should I do with this?"
ASKED = "Bring the totals in src/billing/totals.py over to decimal amounts."


def summary(session: LiveSession) -> Summary:
    document = {"intent": ASKED, "next_steps": ["Sum up."]}
    recorded = session.record(Summary(document=document, text="On.", covers=[1, 2], keep_from=3))
    assert isinstance(recorded, Summary)
    return recorded


def watched(session: LiveSession, *, summarised: bool = True) -> DriftFeature:
    """Return the feature in a session with one user message, after a summary."""
    feature = DriftFeature(session)
    session.listeners.append(feature.recorded)
    gone = {"changes": [{"path": "src/billing/floats.py", "action": "deleted"}]}
    session.record(Note(topic="agent", text="a subagent deleted a file", data=gone))
    session.record(User(content=ASKED))
    asyncio.run(feature.message_recorded(IncomingMessage(ASKED)))
    if summarised:
        summary(session)
    return feature


def reply(feature: DriftFeature, text: str) -> str | None:
    """Pass a final reply to the feature."""
    received = Reply([{"type": "text", "text": text}], "end_turn", Usage(), "m")
    return asyncio.run(feature.reply_received(received, is_final=True))


def drifts(session: LiveSession) -> Sequence[Note]:
    entries = session.log.entries()
    return [each for each in entries if isinstance(each, Note) and each.topic == "drift"]


def test_a_final_reply_that_drifts_goes_on_with_the_intent(session: LiveSession) -> None:
    feature = watched(session)
    assert reply(feature, LOST) == ""
    assert [note.data["indicator"] for note in drifts(session)] == ["clarification"]
    (told,) = (e for e in session.log.entries() if isinstance(e, User) and e.source == "notice")
    assert ASKED in str(told.content)


def test_a_reply_with_calls_is_realigned_after_their_results(session: LiveSession) -> None:
    feature = watched(session)
    given = {"path": "src/billing/floats.py", "content": "total = 0.3"}
    call = {"type": "tool_use", "id": "c1", "name": "Write", "input": given}
    received = Reply([call], "tool_use", Usage(), "m")
    assert asyncio.run(feature.reply_received(received, is_final=False)) is None
    assert drifts(session) == []
    for _ in range(2):
        asyncio.run(feature.step_finished())
        assert [note.data["indicator"] for note in drifts(session)] == ["contradiction"]


@pytest.mark.parametrize("text", ["The totals are decimal now.", "It reads totals.py next."])
def test_a_reply_that_does_not_drift_ends_the_turn(session: LiveSession, text: str) -> None:
    assert reply(watched(session), text) is None
    assert drifts(session) == []


def test_without_a_summary_nothing_is_watched(session: LiveSession) -> None:
    assert reply(watched(session, summarised=False), LOST) is None
    assert drifts(session) == []


def test_a_spent_budget_ends_the_turn(session: LiveSession) -> None:
    feature = watched(session)
    session.model.budget_meter.budget = Budget(calls=1)
    session.model.budget_meter.call()
    with pytest.raises(LimitReached):
        session.model.budget_meter.check()
    assert reply(feature, LOST) is None


def test_a_resumed_session_goes_on_watching(session: LiveSession) -> None:
    watched(session)
    resumed = DriftFeature(session, session.view.summary, 0)
    assert reply(resumed, LOST) == ""
    much_later = DriftFeature(session, session.view.summary, WATCHED_TURNS)
    assert reply(much_later, LOST) is None


def test_after_some_turns_the_watch_ends(session: LiveSession) -> None:
    feature = watched(session)
    for _ in range(WATCHED_TURNS):
        asyncio.run(feature.turn_ended(TurnFinished("ok", "")))
    assert reply(feature, LOST) is None
