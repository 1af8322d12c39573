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
from ctxagent.agent.loop.feature import IncomingMessage
from ctxagent.agent.loop.live_session import LiveSession
from ctxagent.agent.models.base import Reply
from ctxagent.agent.session.entries import Note, Summary, Usage, User

LOST = "What should I do with this?"
ASKED = "Bring the totals in src/billing/totals.py over to decimal amounts."


def summary(handle: LiveSession) -> Summary:
    document = {"intent": ASKED, "next_steps": ["Sum up."]}
    recorded = handle.record(Summary(document=document, text="On.", covers=[1, 2], keep_from=3))
    assert isinstance(recorded, Summary)
    return recorded


def watched(handle: LiveSession, *, summarised: bool = True) -> DriftFeature:
    """Return the feature in a session with one user message, after a summary."""
    feature = DriftFeature(handle)
    handle.listeners.append(feature.recorded)
    gone = {"changes": [{"path": "src/billing/floats.py", "action": "deleted"}]}
    handle.record(Note(topic="agent", text="a subagent deleted a file", data=gone))
    handle.record(User(content=ASKED))
    asyncio.run(feature.message_recorded(IncomingMessage(ASKED)))
    if summarised:
        summary(handle)
    return feature


def reply(feature: DriftFeature, text: str) -> str | None:
    """Pass a final reply to the feature."""
    received = Reply([{"type": "text", "text": text}], "end_turn", Usage(), "m")
    return asyncio.run(feature.reply_received(received, is_final=True))


def drifts(handle: LiveSession) -> Sequence[Note]:
    entries = handle.log.entries()
    return [each for each in entries if isinstance(each, Note) and each.topic == "drift"]


def test_a_final_reply_that_drifts_goes_on_with_the_intent(handle: LiveSession) -> None:
    feature = watched(handle)
    assert reply(feature, LOST) == ""
    assert [note.data["indicator"] for note in drifts(handle)] == ["clarification"]
    (told,) = (e for e in handle.log.entries() if isinstance(e, User) and e.source == "notice")
    assert ASKED in str(told.content)


def test_a_reply_with_calls_is_realigned_after_their_results(handle: LiveSession) -> None:
    feature = watched(handle)
    given = {"path": "src/billing/floats.py", "content": "total = 0.3"}
    call = {"type": "tool_use", "id": "c1", "name": "Write", "input": given}
    received = Reply([call], "tool_use", Usage(), "m")
    assert asyncio.run(feature.reply_received(received, is_final=False)) is None
    assert drifts(handle) == []
    for _ in range(2):
        asyncio.run(feature.step_finished())
        assert [note.data["indicator"] for note in drifts(handle)] == ["contradiction"]


@pytest.mark.parametrize("text", ["The totals are decimal now.", "It reads totals.py next."])
def test_a_reply_that_does_not_drift_ends_the_turn(handle: LiveSession, text: str) -> None:
    assert reply(watched(handle), text) is None
    assert drifts(handle) == []


def test_without_a_summary_nothing_is_watched(handle: LiveSession) -> None:
    assert reply(watched(handle, summarised=False), LOST) is None
    assert drifts(handle) == []


def test_a_spent_budget_ends_the_turn(handle: LiveSession) -> None:
    feature = watched(handle)
    handle.model.budget_meter.budget = Budget(calls=1)
    handle.model.budget_meter.call()
    with pytest.raises(LimitReached):
        handle.model.budget_meter.check()
    assert reply(feature, LOST) is None


def test_a_resumed_session_goes_on_watching(handle: LiveSession) -> None:
    watched(handle)
    resumed = DriftFeature(handle, handle.view.summary, 0)
    assert reply(resumed, LOST) == ""
    much_later = DriftFeature(handle, handle.view.summary, WATCHED_TURNS)
    assert reply(much_later, LOST) is None


def test_after_some_turns_the_watch_ends(handle: LiveSession) -> None:
    feature = watched(handle)
    for _ in range(WATCHED_TURNS):
        asyncio.run(feature.turn_ended(TurnFinished("ok", "")))
    assert reply(feature, LOST) is None
