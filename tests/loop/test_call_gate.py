"""Permission for calls: what rules, features and the user decide, and what is recorded of it."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from ctxagent.agent.events import (
    Answer,
    Question,
    ToolFinished,
    TurnFinished,
)
from ctxagent.agent.loop.turn import run_turn
from ctxagent.agent.models.scripted import Step
from ctxagent.agent.session.entries import Note, ToolResult

from ..support.sessions.conversation import Conversation, answering


def test_permission_is_asked_by_the_loop(project: Path) -> None:
    ask, questions = answering(
        Answer(allow=True, rule="Bash(touch:*)", where="session"),
        Answer(allow=False, reason="not that file"),
    )
    talk = Conversation(
        project,
        [
            Step(tools=[("Bash", {"command": "touch a"}), ("Bash", {"command": "touch a b"})]),
            Step(tools=[("Write", {"path": "c.txt", "content": "hello\n"})]),
            Step(text="ok"),
        ],
        mode="ask",
        ask=ask,
    )
    assert talk.say("go").status == "ok"
    assert [q.tool for q in questions] == ["Bash", "Write"]
    assert questions[0].rule == "Bash(touch:*)"
    assert questions[1].diff is not None
    assert "+hello" in questions[1].diff
    assert sorted(p.name for p in project.iterdir()) == ["a", "b"]
    refused = talk.of(ToolResult)[-1]
    assert refused.is_error
    assert refused.content == "The user declined this call. They say: not that file"
    always, no = talk.of(Note)
    assert (always.topic, always.text) == ("permission", "allowed: Bash touch a")
    assert always.data["answer"] == "always"
    assert (always.data["rule"], always.data["where"]) == ("Bash(touch:*)", "session")
    assert (no.topic, no.text) == ("permission", "not authorised: Write c.txt")
    assert (no.data["answer"], no.data["reason"]) == ("no", "not that file")
    assert talk.agent.ledger.denials == [no.text]
    # The reason is a message of the user, which a summary keeps.
    words = [(message.ref, message.text) for message in talk.agent.ledger.messages]
    assert words == [(2, "go"), (refused.seq, "not that file")]


EDIT = {"path": "c.txt", "old_string": "secret lime", "new_string": "x"}


def test_a_call_that_must_fail_is_not_asked_about(project: Path) -> None:
    (project / "c.txt").write_text("secret line\n")
    ask, questions = answering()
    steps = [Step(tools=[("Edit", EDIT)]), Step(text="ok")]
    talk = Conversation(project, steps, mode="ask", ask=ask)
    assert talk.say("go").status == "ok"
    assert questions == []
    (failed,) = talk.of(ToolResult)
    assert failed.is_error
    assert "secret line" in failed.content


@pytest.mark.slow
def test_the_time_that_a_person_thinks_is_none_of_a_declined_call(project: Path) -> None:
    async def slow(question: Question) -> Answer:
        await asyncio.to_thread(subprocess.run, [sys.executable, "-c", "pass"], check=True)
        return Answer(allow=False)

    steps = [Step(tools=[("Bash", {"command": "touch a"})]), Step(text="ok")]
    talk = Conversation(project, steps, mode="ask", ask=slow)
    talk.say("go")
    assert [e.seconds for e in talk.events if isinstance(e, ToolFinished)] == [0.0]


@pytest.mark.parametrize("deny", ["Edit(c.txt)", "Read(c.txt)"])
def test_what_must_fail_tells_nothing_of_a_file_that_may_not_be_read(
    project: Path, deny: str
) -> None:
    (project / "c.txt").write_text("secret line\n")
    ask, questions = answering(Answer(allow=False))
    steps = [Step(tools=[("Edit", EDIT)]), Step(text="ok")]
    talk = Conversation(project, steps, mode="ask", deny=[deny], ask=ask)
    talk.say("go")
    assert [q.diff for q in questions] == ([None] if deny.startswith("Read") else [])
    (refused,) = talk.of(ToolResult)
    assert refused.details.get("denied") is True
    assert "secret" not in refused.content


def test_where_nobody_can_be_asked_the_call_is_denied_and_the_rule_named(project: Path) -> None:
    talk = Conversation(
        project,
        [Step(tools=[("Bash", {"command": "touch a"})]), Step(text="I could not.")],
        mode="ask",
    )
    finished = talk.say("go")
    assert (finished.status, finished.text) == ("denied", "I could not.")
    assert finished.error is not None
    assert "--allow 'Bash(touch:*)'" in finished.error["message"]
    assert list(project.iterdir()) == []


def test_a_deny_rule_holds_in_bypass(project: Path) -> None:
    talk = Conversation(
        project,
        [Step(tools=[("Bash", {"command": "true && touch a"})]), Step(text="no")],
        deny=["Bash(touch:*)"],
    )
    assert talk.say("go").status == "ok"
    assert talk.of(ToolResult)[0].is_error
    assert list(project.iterdir()) == []


def test_interrupting_a_question_records_the_call_as_not_done(project: Path) -> None:
    async def run() -> TurnFinished:
        asked = asyncio.Event()

        async def ask(question: object) -> Answer:
            asked.set()
            await asyncio.Event().wait()
            raise AssertionError

        talk.agent.handle.ask = ask
        turn = asyncio.ensure_future(run_turn(talk.agent, "go"))
        await asked.wait()
        turn.cancel()
        return await turn

    talk = Conversation(
        project, [Step(tools=[("Bash", {"command": "touch a"})]), Step(text="fine")], mode="ask"
    )
    assert asyncio.run(run()).status == "interrupted"
    assert "interrupted" in talk.of(ToolResult)[0].content
    assert list(project.iterdir()) == []
    assert talk.say("go on").text == "fine"
