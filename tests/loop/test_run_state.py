"""When a question at the end of a turn is answered by a run's state."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.compaction.language.signs import asks_to_go_on
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


def answered(run: RunContinuation, text: str = ASKED, words: str = "run the plan") -> bool:
    return asyncio.run(run.answer(text, [words])) is not None


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


def test_the_persons_rules_count_more(tmp_path: Path) -> None:
    state = {"state": "RUNNING", "current": "a"}
    asked_for = "Run the plan, but check with me before each sprint."
    assert not answered(continuation(tmp_path, state), words=asked_for)
    assert not answered(continuation(tmp_path, state, PreserveRules(always=("trajectory",))))


@pytest.mark.parametrize(
    "text",
    [
        "Shall I continue with sprint-3?",
        "Would you like me to proceed with the next unit?",
        "All of it passes. Ready to move on to sprint-3?",
        "Let me know when I should start.",
        "Please confirm that I may proceed.",
        "Sprint-2 is done; awaiting your approval.",
    ],
)
def test_questions_to_go_on(text: str) -> None:
    assert asks_to_go_on(text)


@pytest.mark.parametrize(
    "text",
    [
        "Sprint-3 is done.",
        "Should I delete the old table?",
        "Shall I proceed with the push to main?",
        "May I go on and deploy to production?",
        "Shall I continue? Which database should sprint-3 use?",
        "I asked: shall I continue? Then I did. It works. The tests pass. All is well.",
    ],
)
def test_other_ends_of_a_turn(text: str) -> None:
    assert not asks_to_go_on(text)
