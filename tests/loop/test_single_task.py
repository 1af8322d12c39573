"""The single task of a session: it is done once, however often it is requested."""

import asyncio
from pathlib import Path

import pytest

from ctxagent.agent.errors import UsageError
from ctxagent.agent.events import Notice, TurnFinished
from ctxagent.agent.loop.single_task import find_answer
from ctxagent.agent.models.scripted import Step
from ctxagent.agent.session.entries import Assistant, End, Entry, Note, ToolResult, User

from ..support.sessions.conversation import Conversation

TASK = "count the walruses"
SAID = {"type": "text", "text": "Four walruses."}
CALL = {"type": "tool_use", "id": "c", "name": "Todo", "input": {}}
GOES_ON = "the session continues the task"
DONE = "the session has already done the task"


def answer(talk: Conversation, task: str = TASK, *, needs_end: bool = False) -> TurnFinished | None:
    return asyncio.run(find_answer(talk.agent, task, needs_end=needs_end))


def notices(talk: Conversation) -> list[Notice]:
    return [event for event in talk.seen(Notice) if event.level == "info"]


def reply(*blocks: object, reason: str = "end_turn", purpose: str = "turn") -> Assistant:
    return Assistant(
        content=list(blocks), usage={}, stop_reason=reason, model="m", purpose=purpose
    )  # type: ignore[arg-type]  # fmt: skip


def requested(project: Path, *entries: Entry) -> Conversation:
    """A session whose task was requested, with these entries of its turn."""
    talk = Conversation(project)
    assert answer(talk) is None
    for entry in (User(content=TASK), *entries):
        talk.agent.record(entry)
    return talk


def test_the_first_request_opens_the_session_and_records_the_task(project: Path) -> None:
    talk = Conversation(project)
    assert answer(talk) is None
    assert talk.kinds() == ["session", "note"]
    (note,) = talk.of(Note)
    assert (note.topic, note.text) == ("task", "the session is for one task")
    assert len(note.data["of"]) == 64
    assert notices(talk) == []


def test_a_task_with_characters_that_are_no_text_is_recorded(project: Path) -> None:
    talk = Conversation(project)
    assert answer(talk, "count \ud800") is None
    assert answer(talk, "count \ud800") is None
    assert talk.kinds() == ["session", "note"]


def test_a_finished_task_keeps_its_answer(project: Path) -> None:
    talk = Conversation(project, [Step(text="Four walruses.")])
    assert answer(talk) is None
    talk.say(TASK)
    talk.agent.log.close()
    again = Conversation(project)
    for needs_end in (True, False):
        assert answer(again, needs_end=needs_end) == TurnFinished("ok", "Four walruses.")
    assert notices(again) == [Notice("info", DONE)] * 2


def test_another_task_is_refused_with_the_id_of_the_session(project: Path) -> None:
    talk = requested(project)
    with pytest.raises(UsageError, match="the session s was begun with another task") as error:
        answer(talk, "count the herons")
    assert "--resume s" in error.value.hint


def test_a_session_that_began_without_a_task_is_refused(project: Path) -> None:
    talk = Conversation(project, [Step(text="hi")])
    talk.say("hello")
    (note,) = requested(project / "other").of(Note)
    talk.agent.record(note)
    with pytest.raises(UsageError):
        answer(talk)


@pytest.mark.parametrize(
    ("entries", "before_the_end", "with_an_end"),
    [
        ([], None, None),
        ([reply(SAID)], "Four walruses.", None),
        ([reply(SAID, reason="stop_sequence")], "Four walruses.", None),
        ([reply(SAID), End(status="ok")], "Four walruses.", "Four walruses."),
        ([reply(SAID), End(status="interrupted")], None, None),
        ([reply(SAID, reason="max_tokens")], None, None),
        ([reply({"type": "text", "text": " \n"})], None, None),
        ([reply(SAID, CALL)], None, None),
        ([reply(SAID), reply(CALL), ToolResult(tool_use_id="c", content="x")], None, None),
        ([reply(SAID), User(content="and the herons?")], None, None),
        ([reply(SAID), reply(CALL, purpose="summary")], "Four walruses.", None),
        ([reply(SAID), User(content="x"), End(status="ok")], "Four walruses.", "Four walruses."),
    ],
)
def test_what_counts_as_an_answer(
    project: Path, entries: list[Entry], before_the_end: str | None, with_an_end: str | None
) -> None:
    talk = requested(project, *entries)
    for needs_end, text in ((False, before_the_end), (True, with_an_end)):
        expected = None if text is None else TurnFinished("ok", text)
        assert answer(talk, needs_end=needs_end) == expected
        assert notices(talk)[-1].text == (GOES_ON if expected is None else DONE)


def test_a_turn_that_ended_with_a_plan_is_answered_by_the_plan(project: Path) -> None:
    plan = User(
        content="[Head]\n\n## Count\n1. Count", source="plan", details={"plan": {"agreed": True}}
    )
    end = End(status="ok")
    talk = requested(project, reply(SAID, CALL), plan, end)
    assert talk.agent.ledger.plan is not None
    assert answer(talk) == TurnFinished("ok", talk.agent.ledger.plan.text)
    assert answer(requested(project / "b", reply(SAID, CALL), end)) == TurnFinished("ok", "")
