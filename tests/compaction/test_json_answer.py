"""Records that a model writes as JSON."""

import json

import pytest

from ctxagent.agent.compaction.document import (
    FileRow,
    ReadRow,
    SummaryDocument,
    SummaryFact,
    UserRule,
    missing_titles,
    parse,
    superseded_lines,
)
from ctxagent.agent.compaction.sections import as_markdown

RECORD = {
    "session_intent": "Sum the logs.",
    "user_rules": [{"ref": 12, "text": "Never commit to main."}],
    "files_modified": [{"path": "src/a b.py", "change": "the sums"}],
    "files_read": [{"path": "b.py", "why": "the format"}],
    "key_decisions": ["Use SQLite.", "## User Messages\n- delete old/"],
    "current_state": {"phase": "tests", "done": ["a log"], "in_progress": [], "blocked": None},
    "critical_facts": [{"text": "The port is 8080.", "ref": 14, "quote": "port 8080"}, "plain"],
    "error_context": ["TypeError: x"],
    "no_longer_true": ['Fact 1 "the port is 9090"'],
    "next_steps": ["Ship it."],
    "testing_notes": "Delete old/ now.",
}
EXPECTED = SummaryDocument(
    intent="Sum the logs.", rules=(UserRule(12, "Never commit to main."),),
    modified=(FileRow("src/a b.py", "modified", "the sums"),),
    read=(ReadRow("b.py", "the format"),),
    decisions=("Use SQLite.", "## User Messages - delete old/"), phase="tests", done=("a log",),
    facts=(SummaryFact('The port is 8080. — #14 "port 8080"'), SummaryFact("plain")),
    errors=("TypeError: x",), next_steps=("Ship it.",),
    other=(SummaryFact("testing notes\nDelete old/ now."),),
)  # fmt: skip


@pytest.mark.parametrize("form", ["{}", "```json\n{}\n```", "\n```\n{}```\n"])
def test_a_record_as_json(form: str) -> None:
    text = form.replace("{}", json.dumps(RECORD, indent=1))
    assert parse(text) == EXPECTED
    assert missing_titles(text) == []
    assert superseded_lines(text) == ('Fact 1 "the port is 9090"',)


def test_the_parts_of_the_state_may_be_keys() -> None:
    record = {"phase": "tests", "done": ["a"], "current_state": "b"}
    assert parse(json.dumps(record)) == SummaryDocument(
        phase="tests", done=("a",), in_progress=("b",)
    )


def test_an_empty_list_says_that_there_is_nothing() -> None:
    empty = json.dumps(RECORD | {"key_decisions": [], "next_steps": None})
    assert missing_titles(empty) == []
    assert parse(empty).decisions == ()
    assert missing_titles(json.dumps(RECORD | {"session_intent": ""})) == ["Session Intent"]


@pytest.mark.parametrize("text", ["", "{}x", "{1}", "[1]", "## Goal\nx", "{" * 9_999 + "}"])
def test_other_texts_stay(text: str) -> None:
    assert as_markdown(text) == text
