"""The interface of a conversation for features."""

import asyncio

import pytest

from ctxagent.agent.errors import RecordError
from ctxagent.agent.events import Event, Notice
from ctxagent.agent.loop.live_session import LiveSession
from ctxagent.agent.session.entries import Checkpoint, Note, Session, User
from ctxagent.agent.session.log import read_log
from ctxagent.tools.bash import BashParams, BashTool


def test_an_entry_goes_to_the_log_and_to_all_that_is_computed_from_it(
    session: LiveSession,
) -> None:
    heard = []
    session.listeners.append(heard.append)
    recorded = session.record(User(content="Go."))
    assert recorded.seq == session.log.last_seq == 1
    assert [item.seq for item in session.view.items] == [1]
    assert [message.text for message in session.ledger.messages] == ["Go."]
    assert heard == [recorded]
    assert read_log(session.folder / "log.jsonl").entries == [recorded]


def test_queued_messages_are_recorded_in_order_and_once(session: LiveSession) -> None:
    session.queued_messages += ["first", "second"]
    session.record_queued_messages()
    session.record_queued_messages()
    found = [entry for entry in session.log.entries() if isinstance(entry, User)]
    assert [(each.content, each.mid_turn) for each in found] == [("first", True), ("second", True)]


def test_a_queued_message_that_cannot_be_recorded_stays(
    session: LiveSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(entry: object) -> None:
        raise RecordError("the disk is full")

    session.queued_messages.append("first")
    monkeypatch.setattr(session.log, "append", full)
    with pytest.raises(RecordError):
        session.record_queued_messages()
    assert session.queued_messages == ["first"]


def test_rules_of_a_turn_name_their_source_when_they_are_wrong(
    session: LiveSession, events: list[Event]
) -> None:
    session.approval.mode = "ask"
    session.allow_for_turn(["Bash(touch:*)", "Bsh"], "/walrus")
    (notice,) = events
    assert isinstance(notice, Notice)
    assert notice.level == "warning"
    assert notice.text.startswith("/walrus: allowed-tools: ")
    touch = (BashTool(), BashParams(command="touch a"))
    assert session.approval.judge(*touch).action == "allow"
    session.turn_rules.end()
    assert session.approval.judge(*touch).action == "ask"


def test_the_opening_is_recorded(session: LiveSession) -> None:
    session.record_opening()
    assert isinstance(next(iter(session.log.entries())), Session)


def test_a_turn_has_one_snapshot(session: LiveSession) -> None:
    session.record(User(content="Go."))
    for _ in range(2):
        asyncio.run(session.snapshot())
    assert sum(isinstance(entry, Checkpoint) for entry in session.log.entries()) == 1
    session.record(User(content="Go on."))
    asyncio.run(session.snapshot())
    assert sum(isinstance(entry, Checkpoint) for entry in session.log.entries()) == 2


def test_a_snapshot_without_files_is_reported(
    session: LiveSession, events: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session.checkpoints, "missing_files_notice", lambda taken: "no git")
    session.record(User(content="Go."))
    asyncio.run(session.snapshot())
    assert events == [Notice("warning", "no git")]


def test_a_notice_is_shown_and_not_recorded(session: LiveSession, events: list[Event]) -> None:
    session.notify("info", "a walrus")
    assert events == [Notice("info", "a walrus")]
    assert session.log.last_seq == 0
    session.record(Note(topic="t", text="x"))
    assert len(events) == 1
