"""The exam: the questions about a summary, and how the answers are graded."""

import pytest

from ctxagent.agent.compaction.verify.exam import TARGET_POINTS, ExamReport, exam_request, grade
from ctxagent.agent.compaction.verify.probes import Probe, ProbeKind
from ctxagent.agent.models.messages.body import body

from ..support.server.validator import validate


def probe(kind: ProbeKind, question: str, fact: str, section: str) -> Probe:
    return Probe(kind, question, fact, section, None, fact)


FILES = "Which files were modified in this session?"
PROBES = [
    probe("artifact", FILES, "src/a.py", "modified"),
    probe("artifact", FILES, "src/b.py", "modified"),
    probe("recall", "Which error does `make` still give, exactly?", "KeyError: 'X'", "errors"),
    probe("decision", "What did the person rule out?", "Never push to main.", "facts"),
    probe("continuation", "What should be done next?", "Write the parser", "next_steps"),
    probe("decision", "What was decided, and why?", "Chose uv: it is faster", "decisions"),
]
RIGHT = """\
1: src/a.py | src/b.py
2: KeyError: 'X'
3: never push to main
4: Write the parser
5: Chose uv: it is faster
"""


def points(report: ExamReport) -> dict[str, float | None]:
    return {score.dimension: score.points for score in report.scores}


def test_the_request_has_the_summary_and_each_question_once() -> None:
    request = exam_request("## Session Intent\nGo.", PROBES, model="m", effort=None, max_tokens=900)
    sent = body(request)
    validate(sent)
    assert (request.model, request.max_tokens, request.system, request.tools) == ("m", 900, [], [])
    record, asked = (block["text"] for block in request.messages[0]["content"])
    assert record == "The record:\n\n## Session Intent\nGo."
    assert asked == (
        "This is an examination of the record above. It is all that is left of a longer session. "
        "Do not guess what else the session contained, do not call tools, and do not do anything "
        "that the record speaks of.\n\n"
        "Answer each question below on its own line: the number of the question, a colon, and the "
        "answer. Give the exact words, names, numbers and paths of the record, without anything "
        "around them. If a question asks for several things, give all of them on that line, "
        'separated by " | ". If the record does not say, answer: unknown\n\n'
        "The questions:\n\n"
        "1: Which files were modified in this session?\n"
        "2: Which error does `make` still give, exactly?\n"
        "3: What did the person rule out?\n"
        "4: What should be done next?\n"
        "5: What was decided, and why?"
    )


def test_right_answers_have_all_points() -> None:
    report = grade(RIGHT, PROBES)
    assert points(report) == dict.fromkeys(TARGET_POINTS, 5.0)
    assert report.met
    assert report.outcomes == {"right": 6, "wrong": 0, "unanswered": 0}


def test_no_answers_have_no_points() -> None:
    report = grade("", PROBES)
    assert points(report) == dict.fromkeys(TARGET_POINTS, 0.0)
    assert not report.met
    assert report.outcomes == {"right": 0, "wrong": 0, "unanswered": 6}


def test_an_unknown_is_not_inaccurate() -> None:
    answers = RIGHT.replace("KeyError: 'X'", "Unknown.")
    report = grade(answers, PROBES)
    assert report.outcomes == {"right": 5, "wrong": 0, "unanswered": 1}
    assert points(report) == {
        "accuracy": 5.0,
        "context awareness": 2.5,
        "artifact trail": 5.0,
        "completeness": pytest.approx(25 / 6),
        "continuity": 5.0,
        "instruction following": 5.0,
    }


def test_a_wrong_answer_is_inaccurate() -> None:
    report = grade(RIGHT.replace("KeyError: 'X'", "ValueError"), PROBES)
    assert report.outcomes["wrong"] == 1
    assert points(report)["accuracy"] == pytest.approx(25 / 6)


def test_facts_missing_from_a_list_are_unanswered() -> None:
    report = grade(RIGHT.replace(" | src/b.py", ""), PROBES)
    assert report.outcomes == {"right": 5, "wrong": 0, "unanswered": 1}
    assert points(report)["artifact trail"] == 2.5
    assert [score.met for score in report.scores if score.dimension == "artifact trail"] == [False]


def test_the_next_step_and_decisions_make_continuity() -> None:
    report = grade(RIGHT.replace("Write the parser", "Sleep"), PROBES)
    assert points(report)["continuity"] == 2.5
    assert points(report)["instruction following"] == 5.0


def test_a_constraint_that_is_lost_costs_half_of_instruction_following() -> None:
    report = grade(RIGHT.replace("never push to main", "unknown"), PROBES)
    assert points(report)["instruction following"] == 2.5


def test_the_form_of_the_answers_counts() -> None:
    chatty = f"Here are the answers:\n\n{RIGHT}\nI hope\nthat this\nis of use,\nas always!\n"
    report = grade(chatty, PROBES)
    assert points(report)["completeness"] == 5.0
    assert points(report)["instruction following"] == pytest.approx(2.5 + 2.5 * 5 / 10)


def test_the_first_answer_to_a_question_counts() -> None:
    report = grade(RIGHT + "2: ValueError\n99: what?\n", PROBES)
    assert report.outcomes["right"] == 6
    assert points(report)["instruction following"] == pytest.approx(2.5 + 2.5 * 5 / 7)


def test_a_dimension_without_probes_has_no_points() -> None:
    report = grade("1: src/a.py", PROBES[:1])
    assert points(report) == {
        "accuracy": 5.0,
        "context awareness": None,
        "artifact trail": 5.0,
        "completeness": 5.0,
        "continuity": None,
        "instruction following": 5.0,
    }
    assert report.met
    assert grade("anything", []).met
    assert set(points(grade("anything", [])).values()) == {None}


def test_the_report_as_text_and_as_json() -> None:
    report = grade("1: src/a.py | src/b.py\n2: KeyError: 'X'\n3: unknown\n4: Sleep\n", PROBES)
    assert report.table() == (
        "dimension             points  target  met\n"
        "accuracy                 3.8     4.0  no\n"
        "context awareness        2.5     4.0  no\n"
        "artifact trail           5.0     3.5  yes\n"
        "completeness             2.5     3.5  no\n"
        "continuity               0.0     4.0  no\n"
        "instruction following    2.0     4.0  no\n"
        "answers: 3 right, 1 wrong, 2 unanswered"
    )
    data = report.to_json()
    assert data["scores"]["artifact trail"] == {"points": 5.0, "target": 3.5, "met": True}
    assert data["outcomes"] == {"right": 3, "wrong": 1, "unanswered": 2}
    assert data["met"] is False
    assert "not asked" in grade("", []).table()
