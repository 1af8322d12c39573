"""When a question at the end of a turn is answered from the run's state."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.compaction.policy import DEFAULT
from ctxagent.agent.config.preservation import PreserveRules
from ctxagent.agent.features.run_state import RunStateFeature
from ctxagent.agent.models.base import Reply
from ctxagent.agent.session.entries import Summary, Usage, User

from ..support.sessions.setup import live_session

ASKED = "Sprint-2 is done. Shall I continue with sprint-3?"


def continuation(
    project: Path, state: dict[str, Any] | None, rules: PreserveRules | None = None
) -> RunStateFeature:
    set_state(project, state)
    log = project / "sessions" / "s" / "log.jsonl"
    session = live_session(project, log, policy=replace(DEFAULT, rules=rules or PreserveRules()))
    session.record(User(content="Go."))
    session.record(Summary(document={}, text="Done so far.", covers=[1, 1], keep_from=2))
    return RunStateFeature(session)


def set_state(project: Path, state: dict[str, Any] | None) -> None:
    (project / ".run").mkdir(exist_ok=True)
    (project / ".run" / "plan.json").write_text(json.dumps(state))


def reply(text: str) -> Reply:
    return Reply([{"type": "text", "text": text}], "end_turn", Usage(), "m")


def answer(run: RunStateFeature, text: str = ASKED) -> str | None:
    return asyncio.run(run.reply_received(reply(text), is_final=True))


def answered(run: RunStateFeature, text: str = ASKED) -> bool:
    return answer(run, text) is not None


def work(run: RunStateFeature) -> None:
    """Let the model call a tool."""
    call = {"type": "tool_use", "id": "c", "name": "Todo", "input": {}}
    asyncio.run(run.reply_received(Reply([call], "tool_use", Usage(), "m"), is_final=False))


@pytest.mark.parametrize(
    ("state", "count"),
    [
        ({"state": "RUNNING", "sprints": {"current": "sprint-3"}}, 1),
        ({"state": "RUNNING", "sprints": {"current": "sprint-3", "total": 4, "completed": 2}}, 2),
        ({"state": "RUNNING", "sprints": {"current": "s-3", "total": 3, "completed": ["s-1"]}}, 2),
        ({"state": "RUNNING", "current": 9, "total": 2, "completed": 9}, 1),
        ({"state": "RUNNING", "sprints": {"current": "x", "total": "many"}}, 1),
        ({"state": "RUNNING"}, 1),
        ({"state": "HALTED", "sprints": {"current": "sprint-3", "total": 4}}, 0),
        (None, 0),
    ],
)
def test_as_often_as_units_are_left(
    tmp_path: Path, state: dict[str, Any] | None, count: int
) -> None:
    run = continuation(tmp_path, state)
    given = 0
    while given < 10 and answered(run):
        given += 1
        work(run)
    assert given == count


def test_a_next_unit_has_a_question_of_its_own_and_idling_none(tmp_path: Path) -> None:
    run = continuation(tmp_path, {"state": "RUNNING", "current": "a"})
    assert answered(run)
    assert not answered(run)  # nothing was done since
    work(run)
    assert not answered(run)
    set_state(tmp_path, {"state": "RUNNING", "current": "b"})
    assert answered(run)


def test_the_rules_of_what_is_kept_count_more(tmp_path: Path) -> None:
    state = {"state": "RUNNING", "current": "a"}
    assert not answered(continuation(tmp_path, state, PreserveRules(always=("trajectory",))))


@pytest.mark.parametrize(
    ("text", "is_answered"),
    [
        ("Shall I continue with sprint-3?", True),
        ("Soll ich mit sprint-3 weitermachen?", True),
        ("要继续吗？", True),
        ("Sprint-3 is done.", False),
        ("I asked: shall I continue? Then I did. It works.", False),
    ],
)
def test_a_question_at_the_end_is_answered_in_any_language(
    tmp_path: Path, text: str, is_answered: bool
) -> None:
    run = continuation(tmp_path, {"state": "RUNNING", "current": "a"})
    assert answered(run, text) == is_answered


def test_the_answer_agrees_to_nothing_and_a_repeated_question_ends_the_turn(tmp_path: Path) -> None:
    """Whatever the question was about, decisions of the user stay open."""
    run = continuation(tmp_path, {"state": "RUNNING", "current": "a", "total": 4})
    text = "Shall I delete the old table?"
    said = answer(run, text)
    assert said is not None
    assert "This notice agrees to nothing else" in said
    assert "the user wants to be asked here, put it again" in said
    assert answer(run, text) is None
