"""The summary document as JSON and as Markdown, also in the forms that models write."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxagent.agent.compaction.document import (
    FileRow,
    ReadRow,
    SummaryDocument,
    SummaryFact,
    UserRule,
    missing_titles,
    parse,
    render,
    superseded_lines,
)

FULL = SummaryDocument(
    intent="Build it\nwell", rules=(UserRule(3, "no tabs"), UserRule(5, "")),
    modified=(FileRow("a.py", "created", "made | new", "partial"), FileRow("b c.py", "deleted")),
    read=(ReadRow("d.py", "why"), ReadRow("e", "")), decisions=("one",
    "two\nlines"), phase="testing",
    done=("d1",), in_progress=("p1",), blocked=("b1",),
    facts=(SummaryFact("f1"), SummaryFact("f2", 3)),
    errors=("e1",),
    next_steps=("n1",), recovery=("r1",),
)  # fmt: skip


def test_all_sections_make_the_round_trip() -> None:
    assert parse(render(FULL)) == FULL
    assert SummaryDocument.from_json(FULL.to_json()) == FULL


def test_the_markdown_of_a_document() -> None:
    text = render(FULL)
    titles = [line for line in text.splitlines() if line.startswith("## ")]
    assert titles == [
        "## Session Intent", "## User Rules", "## Files Modified", "## Files Read",
        "## Key Decisions",
        "## Current State", "## Critical Facts", "## Error Context", "## Next Steps",
        "## Recovery References",
    ]  # fmt: skip
    for line in (
        '1. #3: "no tabs"', "2. #5", "| File | Action | What Changed | Status |",
        "| a.py | created | made \\| new | partial |",
        "| `b c.py` | deleted |  |  |", "- d.py — why", "- e", "2. two", "   lines",
        "- **Phase:** testing", "- **Done:**",
        "  - d1", "  1. b1", "- e1", "1. n1",
    ):  # fmt: skip
        assert line in text.splitlines(), line


def test_empty_sections_say_so_or_are_left_out() -> None:
    empty = SummaryDocument(intent="x", in_progress=("y",))
    assert render(empty).count("None.") == 11
    assert render(empty, filled=True).count("## ") == 2
    assert "None." in render(empty, filled=True)
    assert render(SummaryDocument(), filled=True) == ""
    assert "Status" not in render(SummaryDocument(modified=(FileRow("a", "modified"),)))


@pytest.mark.parametrize(
    "text",
    ["None.", "none yet", "N/A", "## Facts", "---", "- a\n- b", "1. a", "```\ncode\n```", "```",
    " a ", "a\r\nb", "&#35;", "| a |", "a \\| b", "`x`", "**Done:** x", "a\n\nb", "  b", "#3: x",
    "\"a\"", "nothing to report", "~~~"],
)  # fmt: skip
def test_texts_that_look_like_markup(text: str) -> None:
    document = SummaryDocument(
        intent=text, rules=(UserRule(1, text),),
        modified=(FileRow("p", "modified", text, "partial"),),
        read=(ReadRow("p", text),), decisions=(text,), phase=text, done=(text,), blocked=(text,),
        facts=(SummaryFact(text), SummaryFact("b")), errors=(text,),
        next_steps=(text,), recovery=(text,),
    )  # fmt: skip
    assert parse(render(document)) == document


@pytest.mark.parametrize(
    "path", ["a b", "`a`", "none", "a|b", "a\nb", "a\\|b", "ä.py", "-", "#a", "a: b", "* a"]
)
def test_paths_that_look_like_markup(path: str) -> None:
    document = SummaryDocument(
        modified=(FileRow(path, "created", "x"),), read=(ReadRow(path, "y"),)
    )
    assert parse(render(document)) == document


@pytest.mark.slow
@given(st.text(min_size=1, max_size=30))
def test_any_text_makes_the_round_trip(text: str) -> None:
    document = SummaryDocument(
        intent=text, decisions=(text,), phase=text, facts=(SummaryFact(text), SummaryFact(text))
    )
    found = parse(render(document))
    assert (found.intent, found.decisions, found.phase) == (text, (text,), text)


@pytest.mark.parametrize(
    ("text", "document"),
    [
        ("# Goal\nx", SummaryDocument(intent="x")),
        ("**Objective:** x", SummaryDocument(intent="x")),
        ("### Task: x\ny", SummaryDocument(intent="x\ny")),
        ("## Decisions Made\n* a\n+ b\n1) c", SummaryDocument(decisions=("a", "b", "c"))),
        ("## Next Steps (if any)\n- a", SummaryDocument(next_steps=("a",))),
        (
            "## Constraints\n- a\n  more\n- b",
            SummaryDocument(facts=(SummaryFact("a\nmore"), SummaryFact("b"))),
        ),
        ("## Facts\na\n\nb", SummaryDocument(facts=(SummaryFact("a"), SummaryFact("b")))),
        (
            "## Facts\n- a\n  - b\n- c",
            SummaryDocument(facts=(SummaryFact("a\n- b"), SummaryFact("c"))),
        ),
        ("## Facts\n- none\n- a", SummaryDocument(facts=(SummaryFact("a"),))),
        ("talk\n## Facts\n- a", SummaryDocument(facts=(SummaryFact("a"),))),
        ("## Facts\n- a\n---\n- b", SummaryDocument(facts=(SummaryFact("a"), SummaryFact("b")))),
        (
            "## Facts\n- a\n## Errors\n- b\n## Facts\n- c",
            SummaryDocument(facts=(SummaryFact("a"), SummaryFact("c")), errors=("b",)),
        ),
        (
            "## Facts\n- a\n### Own title\n- b",
            SummaryDocument(facts=(SummaryFact("a"),), other=(SummaryFact("Own title\n- b"),)),
        ),
        (
            "## Progress\n- Completed:\n  - a\n- Remaining: b\n- Blockers:\n  - c",
            SummaryDocument(done=("a",), in_progress=("b",), blocked=("c",)),
        ),
        ("## Status\n- x\n**Phase:** now", SummaryDocument(in_progress=("x",), phase="now")),
        ("## 1. Goal\nx", SummaryDocument(intent="x")),
        (
            "## Files Changed\n- a.py: created the thing\n- b.py — modified: x\n- c.py (deleted)",
            SummaryDocument(
                modified=(
                    FileRow("a.py", "created", "created the thing"),
                    FileRow("b.py", "modified", "x"),
                    FileRow("c.py", "deleted"),
                )
            ),
        ),
        (
            "## Files Changed\n- `a b.py` – new text",
            SummaryDocument(modified=(FileRow("a b.py", "modified", "new text"),)),
        ),
        (
            "## Files Changed\n- a.py: (created) x\n- b.py: deleted\n- c.py: Created, to test",
            SummaryDocument(
                modified=(
                    FileRow("a.py", "created", "x"),
                    FileRow("b.py", "deleted"),
                    FileRow("c.py", "created", "to test"),
                )
            ),
        ),
        (
            "## Files Modified\n| File | Action | What |\n|---|---|---|\n"
            "| a | added | x |\n| b | Removed | none |\n| c | odd | y |",
            SummaryDocument(
                modified=(
                    FileRow("a", "created", "x"),
                    FileRow("b", "deleted"),
                    FileRow("c", "modified", "y"),
                )
            ),
        ),
        (
            "## Files Modified\n| a | new | x | y |",
            SummaryDocument(modified=(FileRow("a", "created", "x | y"),)),
        ),
        (
            "## Artifacts\n| Name | Path | Status |\n| --- | --- | --- |\n| n | `p q` | s |\n| n |",
            SummaryDocument(modified=(FileRow("p q", "created", "n | s"),)),
        ),
        (
            "## Rules\n1. #4: “a b”\n2. no tabs (#5)\n3. plain\n4. `x`",
            SummaryDocument(
                rules=(
                    UserRule(4, "a b"),
                    UserRule(5, "no tabs (#5)"),
                    UserRule(0, "plain"),
                    UserRule(0, "x"),
                )
            ),
        ),
        (
            "## Files Read Not Modified\n- a.py - why\n- `b c`: how",
            SummaryDocument(read=(ReadRow("a.py", "why"), ReadRow("b c", "how"))),
        ),
        ("## Pinned\n- a\n## Facts\n- b", SummaryDocument(facts=(SummaryFact("b"),))),
        ("## Facts\n```\n## Goal\n```", SummaryDocument(other=(SummaryFact("```\n## Goal\n```"),))),
        (
            "## Facts\n- ```\n  ## Goal\n  ```",
            SummaryDocument(facts=(SummaryFact("```\n## Goal\n```"),)),
        ),
        ("", SummaryDocument()),
        ("no heading", SummaryDocument()),
        ("## Unknown\n- a", SummaryDocument(other=(SummaryFact("Unknown\n- a"),))),
    ],
)
def test_what_models_write(text: str, document: SummaryDocument) -> None:
    assert parse(text) == document


@pytest.mark.parametrize(
    ("data", "section"),
    [
        ({"intent": 1}, "intent"), ({"phase": []}, "phase"), ({"facts": "a"}, "facts"),
        ({"facts": [1]}, "facts"), ({"modified": [{"path": "a"}]}, "modified"),
        ({"modified": [{"path": "a", "action": "x", "change": 1}]}, "modified"),
        ({"rules": [{"ref": "1", "text": "a"}]}, "rules"), ({"read": [[]]}, "read"),
        ({"read": [{"path": "a", "why": "", "more": ""}]}, "read"),
    ],
)  # fmt: skip
def test_a_garbled_section_is_named(data: dict[str, Any], section: str) -> None:
    with pytest.raises(ValueError, match=rf"summary\.{section} has the wrong type for its section"):
        SummaryDocument.from_json(data)


def test_documents_of_older_logs() -> None:
    old = SummaryDocument.from_json(
        {
            "facts": ["The person ruled (#7): no tabs", "a"],
            "modified": [{"path": "p", "action": "created", "change": ""}],
        }
    )
    assert old.rules == (UserRule(7, "no tabs"),)
    assert old.facts == (SummaryFact("a"),)
    assert old.modified == (FileRow("p", "created"),)
    new = SummaryDocument.from_json({"facts": ["The person ruled (#7): no tabs"], "rules": []})
    assert new.rules == ()


def test_titles_that_are_missing() -> None:
    assert missing_titles("") == ["Session Intent", "Key Decisions", "Current State", "Next Steps"]
    assert missing_titles("## Goal\nx\n## Decisions\nNone.\n## State\n- a\n## Next\n- b") == []
    assert missing_titles("## Goal\nNone.\n## Decisions\n\n## State\n- a\n## Next\n- b") == [
        "Session Intent",
        "Key Decisions",
    ]


def test_the_list_of_outdated_entries_is_not_part_of_the_document() -> None:
    text = "## Facts\n- a\n## No Longer True\n- fact 1: b\n- rule: c"
    assert superseded_lines(text) == ("fact 1: b", "rule: c")
    assert parse(text) == SummaryDocument(facts=(SummaryFact("a"),))
    assert superseded_lines("## Facts\n- a") == ()
