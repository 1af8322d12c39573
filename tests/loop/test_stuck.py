"""The user is asked before a turn without progress ends."""

import asyncio
from pathlib import Path

import pytest

from ctxagent.agent.errors import LimitReached
from ctxagent.agent.events import Answer
from ctxagent.agent.loop.live_session import LiveSession
from ctxagent.agent.loop.stuck import GO_ON, LOOP_TOPIC, STOP, end_unless_allowed
from ctxagent.agent.models.scripted import Step
from ctxagent.agent.session.entries import Note, User
from ctxagent.agent.session.log import read_log

from ..support.sessions.conversation import Conversation, answering

ERROR = LimitReached("it repeats itself", limit="loop")


def ends(session: LiveSession) -> None:
    asyncio.run(end_unless_allowed(session, ERROR))


def test_nobody_to_ask_ends_the_turn(session: LiveSession) -> None:
    with pytest.raises(LimitReached, match="it repeats itself"):
        ends(session)


@pytest.mark.parametrize(
    "answer", [Answer(True, words=[STOP]), Answer(False), Answer(True), None], ids=str
)
def test_a_user_who_does_not_let_it_go_on(session: LiveSession, answer: Answer | None) -> None:
    session.ask, questions = answering(answer)  # type: ignore[arg-type]
    with pytest.raises(LimitReached, match="it repeats itself"):
        ends(session)
    (form,) = questions[0].form
    assert form.text == "It repeats itself. Go on?"
    assert [label for label, _ in form.choices] == [STOP, GO_ON]


def test_the_user_continues_with_or_without_a_message(session: LiveSession) -> None:
    session.ask, _ = answering(Answer(True, words=[GO_ON]), Answer(True, words=["Read the log."]))
    ends(session)
    ends(session)
    entries = read_log(session.log.path).entries
    assert [entry.topic for entry in entries if isinstance(entry, Note)] == [LOOP_TOPIC] * 2
    (said,) = [entry for entry in entries if isinstance(entry, User)]
    assert (said.content, said.source, said.mid_turn) == ("Read the log.", "person", True)


def test_odd_replies_are_asked_about_too(project: Path) -> None:
    ask, questions = answering(Answer(True, words=[GO_ON]), Answer(True, words=[STOP]))
    talk = Conversation(project, [Step()] * 6, ask=ask)
    finished = talk.say("go")
    assert finished.status == "error"
    assert "3 replies in a row were empty. Go on?" in questions[1].title
