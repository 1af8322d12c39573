"""Drift in a whole conversation: it is detected, shown and recorded, and the work continues with
the task. Conversations without drift are not interrupted.
"""

import asyncio
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ctxagent.agent.compaction.policy import DEFAULT, PRESETS
from ctxagent.agent.compaction.summary.request import is_summary_question
from ctxagent.agent.context.request import Request
from ctxagent.agent.events import Notice
from ctxagent.agent.features.drift import DriftFeature
from ctxagent.agent.launch import Budget
from ctxagent.agent.models.scripted import Step
from ctxagent.agent.session.entries import Mask, Note, User

from ..support.sessions.conversation import Conversation

ASKED = (
    "Bring the totals in src/billing/totals.py over to decimal amounts, and write "
    "src/billing/report.py. Never touch migrations/. The ticket is PAY-4711."
)
RECORD = """## Session Intent
Bring the totals in src/billing/totals.py over to decimal amounts and write src/billing/report.py.
## User Rules
- "Never touch migrations/."
## Key Decisions
1. Use the decimal module, not floats, because cents must add up.
2. Chose httpx over requests, because it is asynchronous.
## Current State
Phase: implementation
- In progress: src/billing/report.py
## Critical Facts
- Never touch migrations/.
## Next Steps
1. Write src/billing/report.py.
"""
ON = Step(text="I read the request again and go on.")
DRIFTS = {
    "clarification": [Step(text="Mir fehlt der Zusammenhang. Was soll ich tun?")],
    "complete": [Step(text="All tasks are complete. Everything has been implemented.")],
    "unrelated": [
        Step(tools=[("Write", {"path": f"games/snake/level{n}.js", "content": f"let apple={n}"})])
        for n in range(6)
    ],
    "contradiction": [
        Step(tools=[("Write", {"path": "src/billing/floats.py", "content": "total = 0.3"})])
    ],
    "constraint": [
        Step(tools=[("Write", {"path": "migrations/0002_totals.sql", "content": "select 1;"})])
    ],
}


@pytest.fixture
def compacted(tmp_path: Path) -> Callable[..., Conversation]:
    """A conversation after a summary, whose next replies are `steps`."""
    project = tmp_path / "project"
    (project / "src" / "billing").mkdir(parents=True)
    (project / "src" / "billing" / "totals.py").write_text("total = 0.1 + 0.2\n")

    def made(*steps: Step) -> Conversation:
        work = [
            Step(tools=[("Read", {"path": "src/billing/totals.py"})]),
            Step(tools=[("Bash", {"command": "seq -f 'PAY-4711 line %g' 4000"})]),
            Step(text="The totals are decimal now; the report is next."),
            *steps,
        ]

        def answer(request: Request) -> Step:
            if is_summary_question(str(request.messages[-1]["content"][-1].get("text", ""))):
                return Step(text=RECORD)
            return work.pop(0)

        policy = replace(DEFAULT, clear_when="off", keep_tokens=0, keep_messages=1)
        talk = Conversation(project, answer, policy=policy)
        gone = {"changes": [{"path": "src/billing/floats.py", "action": "deleted"}]}
        talk.agent.record(Note(topic="agent", text="a subagent deleted a file", data=gone))
        talk.say(ASKED)
        asyncio.run(talk.agent.engine.compact())
        return talk

    return made


def drifts(talk: Conversation) -> list[str]:
    return [note.data["indicator"] for note in talk.of(Note) if note.topic == "drift"]


@pytest.mark.slow
@pytest.mark.parametrize("indicator", DRIFTS)
def test_each_kind_of_drift_is_detected_and_corrected(
    compacted: Callable[..., Conversation], indicator: str
) -> None:
    talk = compacted(*DRIFTS[indicator], ON, ON)
    finished = talk.say("continue")
    assert finished.status == "ok"
    assert finished.text == ON.text  # the work went on, whatever the reply before said
    assert drifts(talk) == [indicator]
    (told,) = [e.text for e in talk.seen(Notice) if "Goal Drift Warning" in e.text]
    assert "decimal amounts" in told
    (put,) = [e for e in talk.of(User) if "[Goal check]" in str(e.content)]
    assert put.source == "notice"
    assert "Never touch migrations/" in put.content
    assert "PAY-4711" in put.content
    requests = [str(request.messages) for request in talk.model.requests]
    assert "[Goal check]" in requests[-1]
    assert "[Goal check]" not in requests[-1 - len(DRIFTS[indicator])]


@pytest.mark.slow
def test_the_notice_quotes_the_archive(compacted: Callable[..., Conversation]) -> None:
    talk = compacted(DRIFTS["contradiction"][0], ON)
    talk.say("continue")
    (note,) = [n for n in talk.of(Note) if n.topic == "drift"]
    assert any("floats.py" in line for line in note.data["found"])
    (put,) = [e for e in talk.of(User) if "[Goal check]" in str(e.content)]
    assert "From the archive:" in put.content


@pytest.mark.slow
@pytest.mark.parametrize("error", [sqlite3.DatabaseError("a log is gone"), OSError(28, "full")])
def test_an_archive_that_cannot_be_searched_is_ignored(
    compacted: Callable[..., Conversation], error: Exception
) -> None:
    def search(terms: str) -> list[str]:
        raise error

    talk = compacted(DRIFTS["contradiction"][0], ON)
    talk.agent.features.find(DriftFeature).monitor.search = search
    assert talk.say("continue").text == ON.text
    (put,) = [e for e in talk.of(User) if "[Goal check]" in str(e.content)]
    assert "Never touch migrations/" in put.content


@pytest.mark.slow
def test_the_notice_is_never_cleared(compacted: Callable[..., Conversation]) -> None:
    talk = compacted(DRIFTS["complete"][0], ON, ON, ON)
    for words in ("continue", "and?", "and now?"):
        talk.say(words)
    requests = [str(request.messages) for request in talk.model.requests[-3:]]
    assert all("[Goal check]" in request for request in requests)


def test_at_the_limit_of_calls_an_answer_stays_an_answer(
    compacted: Callable[..., Conversation],
) -> None:
    talk = compacted(DRIFTS["complete"][0])
    talk.agent.model.budget_meter.budget = Budget(calls=talk.agent.model.budget_meter.calls + 1)
    finished = talk.say("continue")
    assert (finished.status, finished.text) == ("ok", DRIFTS["complete"][0].text)


@pytest.mark.slow
def test_a_reply_that_was_cut_off_is_asked_for_its_rest_first(
    compacted: Callable[..., Conversation],
) -> None:
    cut = replace(DRIFTS["complete"][0], stop_reason="max_tokens")
    talk = compacted(cut, Step(text="Shall I add a header row to `report.py`?"), ON)
    talk.say("continue")
    assert "cut off at the output limit" in str(talk.model.requests[-1].messages[-1])


@pytest.mark.slow
def test_a_session_that_keeps_to_its_work_is_left_alone(
    compacted: Callable[..., Conversation],
) -> None:
    talk = compacted(
        Step(tools=[("Read", {"path": "src/billing/totals.py"})]),
        Step(tools=[("Write", {"path": "src/billing/report.py", "content": "import decimal\n"})]),
        Step(tools=[("Bash", {"command": "python3 -c 'import decimal'"})]),
        Step(text="src/billing/report.py is written. Shall I also add a header row?"),
        Step(text="Done."),
    )
    talk.say("continue")
    talk.say("no, thanks")
    assert drifts(talk) == []
    assert not [e for e in talk.of(User) if "[Goal check]" in str(e.content)]


@pytest.mark.slow
def test_the_watch_ends_after_three_turns(compacted: Callable[..., Conversation]) -> None:
    talk = compacted(*[Step(text="Yes.")] * 3, DRIFTS["constraint"][0], ON)
    for words in ("why decimals?", "is it slow?", "are you sure?", "continue"):
        talk.say(words)
    assert drifts(talk) == []


@pytest.mark.slow
def test_a_session_that_is_resumed_is_still_watched(compacted: Callable[..., Conversation]) -> None:
    first = compacted()
    asyncio.run(first.agent.close())
    again = Conversation(first.cwd, [*DRIFTS["constraint"], ON])
    again.agent.features.find(DriftFeature).monitor.resume(again.agent.view.summary, 0)
    again.say("continue")
    assert drifts(again) == ["constraint"]


def test_a_mask_is_watched_too(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    steps = [
        Step(tools=[("Todo", {"todos": [{"content": "Write the report", "status": "pending"}]})]),
        *[Step(tools=[("Bash", {"command": f"seq {n}000 {n}600"})]) for n in range(1, 5)],
        *DRIFTS["clarification"], ON,
    ]  # fmt: skip
    talk = Conversation(project, steps, policy=replace(PRESETS["v5"], prepare_at=None))
    assert talk.say(ASKED).text == ON.text
    assert [entry.layer for entry in talk.of(Mask)] == ["microcompact"] * len(talk.of(Mask))
    assert drifts(talk) == ["clarification"]
