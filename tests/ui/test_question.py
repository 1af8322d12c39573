"""The rows of a question: display, selection and answers."""

import re
from typing import Any

import pytest

from ctxagent.agent.events import Question
from ctxagent.agent.ui.conversation.questions import permission_rows
from ctxagent.agent.ui.screen import BACK, ChoiceRow, OpenQuestion, as_lines, row_of

ROWS = [
    ChoiceRow("y", "[y]es"),
    ChoiceRow("a", "[a] always"),
    ChoiceRow("n", "[n]o, and why", reply_prefix="n "),
]


def question(**more: Any) -> Question:
    return Question("Bash", "ls", {"command": "ls"}, "Bash(ls)", "why", **more)


def shown(asked: OpenQuestion, typed: str = "", *, width: int = 80, height: int = 20) -> str:
    return "".join(text for _, text in asked.shown(typed, width, height))


def test_no_row_is_chosen_at_first() -> None:
    asked = OpenQuestion(rows=ROWS)
    assert asked.row is None
    assert "❯" not in shown(asked)


@pytest.mark.parametrize(
    ("steps", "row"),
    [([1], 0), ([-1], 2), ([1, 1], 1), ([1, -1], 0), ([-1, 1], 2), ([1, 1, 1, 1, 1], 2)],
)
def test_the_arrows_stay_within_the_rows(steps: list[int], row: int) -> None:
    asked = OpenQuestion(rows=ROWS)
    for step in steps:
        asked.move(step)
    assert asked.row == row
    (line,) = [line for line in shown(asked).split("\n") if line.startswith("❯")]
    assert line == f"❯ {row + 1}. {ROWS[row].label}"


def test_letters_and_numbers_answer_at_once_but_for_a_row_that_needs_a_text() -> None:
    assert OpenQuestion(keys=BACK, rows=ROWS).instant == f"{BACK}ya123"
    assert [row_of(text, ROWS) for text in ("1", " 3 ", "0", "4", "y", "")] == [
        ROWS[0], ROWS[2], None, None, None, None,
    ]  # fmt: skip


def test_rows_make_room_for_words_that_are_typed() -> None:
    asked = OpenQuestion(lambda typed: "the model gets these words" if typed else "", rows=ROWS)
    assert "1. [y]es" in shown(asked, "y")
    assert shown(asked, "n because") == "the model gets these words · Esc: back"


def test_every_row_is_seen_on_a_small_terminal() -> None:
    asked = OpenQuestion(lambda typed: "a reminder of what is asked " * 9, rows=ROWS)
    for height in range(4, 20):
        lines = shown(asked, width=40, height=height).split("\n")
        assert len(lines) <= height
        assert [line.strip()[:2] for line in lines if re.match(r"  \d\.", line)] == [
            "1.", "2.", "3.",
        ]  # fmt: skip
        assert lines[0].startswith("a reminder")


def test_lines_number_the_rows() -> None:
    text = as_lines(lambda typed: "Which?", (), ROWS, back=True)
    assert text.split("\n") == [
        "Which?", "1. [y]es", "2. [a] always", "3. [n]o, and why", "type back to go back",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "keys"),
    [
        (question(), "yn"),
        (question(offers=["Bash(ls:*)"], check=lambda rule: ""), "yarn"),
        (question(offers=["Bash"], check=lambda rule: "it is broad"), "yan"),
        (question(may_accept_edits=True), "yen"),
        (question(may_be_sandboxed=True), "ysn"),
        (
            question(
                offers=["Edit(a)"], check=lambda rule: "", may_accept_edits=True,
                may_be_sandboxed=True,
            ),
            "yaesrn",
        ),
    ],
)  # fmt: skip
def test_a_permission_offers_what_may_be_answered(asked: Question, keys: str) -> None:
    assert "".join(row.key for row in permission_rows(asked)) == keys


def test_the_rule_is_shown_in_full_before_one_key_takes_it() -> None:
    for rule in ("Bash(npm test:*)", "Edit(src/**)"):
        row = permission_rows(question(offers=[rule], check=lambda rule: ""))[1]
        assert rule in row.label
        assert rule in row.short
    long = f"Bash(make {'x' * 200}:*)"
    row = permission_rows(question(offers=[long], check=lambda rule: ""))[1]
    assert row.label == "[a] yes, and don't ask again: choose a rule"
