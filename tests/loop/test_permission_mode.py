"""Announcements of the permission mode to the model."""

import pytest

from ctxagent.agent.loop.live_session import LiveSession
from ctxagent.agent.loop.permission_mode import (
    MEANINGS,
    announce_mode,
    announced_mode,
    mode_notice,
)
from ctxagent.agent.session.entries import Assistant, User

AFTER_SUMMARY = "After the compression, all is as before.\n\nPermission mode: plan\nBranch: main"


def notices(session: LiveSession) -> list[object]:
    return [
        entry.content
        for entry in session.log.entries()
        if isinstance(entry, User) and entry.source == "notice"
    ]


def test_the_model_is_notified_of_each_change_once(session: LiveSession) -> None:
    session.record(User(content="go"))
    announce_mode(session, "bypass")
    assert notices(session) == []
    session.approval.mode = "plan"
    for _ in range(2):
        announce_mode(session, "bypass")
    assert notices(session) == [f"The permission mode is now plan: {MEANINGS['plan']} with Plan."]
    session.approval.mode = "bypass"
    announce_mode(session, "bypass")  # the view counts more than the mode of the last turn
    assert notices(session)[1:] == [mode_notice("bypass")]


def test_a_new_conversation_is_told_nothing(session: LiveSession) -> None:
    announce_mode(session, "ask")
    assert notices(session) == []


def test_the_mode_that_is_named_last_counts(session: LiveSession) -> None:
    assert announced_mode(session.view) is None
    session.record(User(content="The mode is what? Permission mode: ask"))
    assert announced_mode(session.view) is None
    session.record(User(content=mode_notice("accept-edits"), source="notice"))
    assert announced_mode(session.view) == "accept-edits"
    session.record(User(content=AFTER_SUMMARY, source="environment"))
    assert announced_mode(session.view) == "plan"
    said = [{"type": "text", "text": mode_notice("ask")}]
    session.record(Assistant(content=said, usage={}, stop_reason="end_turn", model="m"))
    image = {"type": "image", "source": {}}
    session.record(User(content=[image]))
    assert announced_mode(session.view) == "plan"


@pytest.mark.parametrize("mode", MEANINGS)
def test_each_mode_can_be_announced_and_read_again(session: LiveSession, mode: str) -> None:
    session.record(User(content=mode_notice(mode), source="notice"))  # type: ignore[arg-type]
    assert announced_mode(session.view) == mode
