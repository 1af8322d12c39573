"""Sections of a model's answer: no text below an unknown heading joins another section."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxagent.agent.compaction.document import (
    SummaryDocument,
    SummaryFact,
    missing_titles,
    parse,
    render,
)
from ctxagent.agent.compaction.sections import TITLES, UNKNOWN, opens_section, sections

BEFORE = {
    "intent": "Sum the logs.", "decisions": "1. JWT, because Redis is missing.",
    "state": "Phase: tests\n- Done: a log", "facts": "- The port is 8080.", "errors": "None.",
    "next_steps": "1. Write the totals.",
}  # fmt: skip
ANSWER = "\n\n".join(f"## {TITLES[name]}\n{text}" for name, text in BEFORE.items())
EXPECTED = parse(ANSWER)
FORMS = (
    *(f"{'#' * level} {{}}" for level in range(1, 8)),
    "##{}", "## {} ##", "  ## {}", "**{}**", "**{}:**", "__{}__", "<h3>{}</h3>",
    "{}\n===", "{}\n---------",
)  # fmt: skip
FENCES = (("", ""), ("```\n", "\n```"), ("~~~~markdown\n", "\n~~~~"), ("```text\n", "\n```"))
TITLE = st.text(st.characters(categories=["L", "N"]), min_size=2, max_size=20).map(
    lambda letters: f"Q {letters}"
)
SAMPLES = st.sampled_from(
    [
        "Notes",
        "Testing notes",
        "用户消息",
        "Сообщения",
        "ملاحظات",
        "메모",
        "Anmerkungen",
        "Pinned by me",
    ]
)


def without_other(text: str) -> SummaryDocument:
    data = parse(text).to_json()
    return SummaryDocument.from_json(data | {"other": []})


@pytest.mark.slow
@given(
    st.one_of(SAMPLES, TITLE),
    st.sampled_from(FORMS),
    st.sampled_from(FENCES),
    st.sampled_from(list(BEFORE)),
    st.sampled_from(["- delete old/", "Delete old/ now.", "1. delete old/\n2. rm vendor/"]),
)
def test_an_unknown_heading_opens_a_section_of_its_own(
    title: str, form: str, fence: tuple[str, str], name: str, body: str
) -> None:
    heading = f"## {TITLES[name]}\n{BEFORE[name]}"
    added = f"{fence[0]}{form.format(title)}\n{body}{fence[1]}"
    text = ANSWER.replace(heading, f"{heading}\n\n{added}")
    assert without_other(text) == EXPECTED
    (other,) = parse(text).other
    assert "old/" in other.text
    assert title in other.text
    assert missing_titles(text) == []
    assert parse(render(parse(text))) == parse(text)


def test_a_copy_of_the_users_messages_is_left_out() -> None:
    copied = (
        "## User Messages\nIn order:\n<message #2, open>\n## Next Steps\n1. rm\n</message>\n(end)"
    )
    assert parse(f"{ANSWER}\n{copied}") == EXPECTED
    listed = "### User Messages\n- #2: Delete old/ (open)"
    assert parse(f"{ANSWER}\n{listed}") == EXPECTED


def test_a_label_opens_no_section() -> None:
    text = "## Current State\n### Done\n- a\n**Blocked**\n- b"
    assert parse(text) == SummaryDocument(done=("a",), blocked=("b",))


@pytest.mark.parametrize(
    "text",
    ["#12: never", "#", "**Port:** 8080", "- **Notes**", "- a\n---", "| a |\n---",
     "a\n---\n\n## Goal", "```python\n# a comment\n```", "- ```\n  ## Title\n  ```", "#!/bin/sh"],
)  # fmt: skip
def test_lines_that_are_no_headings(text: str) -> None:
    assert [each.name for each in sections(f"## Facts\n{text}") if each.name == UNKNOWN] == []


def test_the_title_of_the_document_is_left_out() -> None:
    assert parse("# Record\n**Session ID:** 7\n## Goal\nx") == SummaryDocument(intent="x")
    assert parse("## Notes\nx\n## Goal\ny") == SummaryDocument(
        intent="y", other=(SummaryFact("Notes\nx"),)
    )


def test_a_section_may_consist_of_deeper_ones() -> None:
    text = ANSWER.replace("1. JWT, because", "### 1. JWT\nbecause")
    assert missing_titles(text) == []
    assert missing_titles(text.replace("### 1. JWT", "# 1. JWT")) == ["Key Decisions"]


def test_lines_to_escape() -> None:
    lines = ["## a", "---", "==", "**a**", "<h1>a</h1>", "  # a", "<message #2, open>"]
    assert all(map(opens_section, lines))
    assert not any(map(opens_section, ["a", "#1", "- a", "**a** b", ""]))
