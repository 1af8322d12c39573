"""When a question at the end of a turn is answered by a run's state."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.config.preservation import PreserveRules
from ctxagent.agent.loop.run_state import RunContinuation

ASKED = "Sprint-2 is done. Shall I continue with sprint-3?"


def continuation(
    project: Path, state: dict[str, Any] | None, rules: PreserveRules | None = None
) -> RunContinuation:
    set_state(project, state)
    return RunContinuation(project, rules or PreserveRules())


def set_state(project: Path, state: dict[str, Any] | None) -> None:
    (project / ".run").mkdir(exist_ok=True)
    (project / ".run" / "plan.json").write_text(json.dumps(state))


def answered(run: RunContinuation, text: str = ASKED) -> bool:
    return asyncio.run(run.answer(text)) is not None


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
        run.work()
    assert given == count


def test_a_next_unit_has_a_question_of_its_own_and_idling_none(tmp_path: Path) -> None:
    run = continuation(tmp_path, {"state": "RUNNING", "current": "a"})
    assert answered(run)
    assert not answered(run)  # nothing was done since
    run.work()
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
    """Whatever the question was about: what only the user can decide stays undecided."""
    run = continuation(tmp_path, {"state": "RUNNING", "current": "a", "total": 4})
    text = "Shall I delete the old table?"
    said = asyncio.run(run.answer(text))
    assert said is not None
    assert "This notice agrees to nothing else" in said
    assert "the user wants to be asked here, put it again" in said
    assert asyncio.run(run.answer(text)) is None
