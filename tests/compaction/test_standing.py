"""Standing instructions: their sections in instruction files, and the check of what they quote."""

from pathlib import Path

import pytest

from ctxagent.agent.compaction.document import SummaryDocument, SummaryFact, render
from ctxagent.agent.compaction.summary.standing import quoted_lines, section_of, standing_text
from ctxagent.agent.compaction.verify import add_missed_facts, choose_probes
from ctxagent.agent.compaction.verify.probes import is_answered
from ctxagent.agent.features.instruction_places import InstructionFile
from ctxagent.agent.features.instructions import entry_of
from ctxagent.agent.session.entries import User
from ctxagent.agent.session.ledger import Ledger

from ..support.sessions.history import History

SECTION = "Keep the `API_PORT`.\n\n### Also\n- `DECISION:` lines"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"# Rules\nx\n\n## Compact Instructions\n\n{SECTION}\n\n## Style\nShort.", SECTION),
        (f"# compact instructions:\n{SECTION}\n# Style", f"{SECTION}"),
        (f"## Compact Instructions ##\n{SECTION}", SECTION),
        ("## Compact Instructions\n```\n# a comment\n```\nmore\n", "```\n# a comment\n```\nmore"),
        ("```\n## Compact Instructions\nno\n```", ""),
        ("## Compact\nno\n## Instructions\nno", ""),
        ("", ""),
    ],
)
def test_the_section_of_an_instruction_file(text: str, found: str) -> None:
    assert section_of(text) == found


def give(history: History, path: str, text: str, most: int | None = None) -> str:
    """Add the entry of an instruction file, and return its content."""
    entry = entry_of(InstructionFile(Path(path), text), max_tokens=most)
    history.add(User, content=entry.content, source=entry.source, details=entry.details)
    return str(entry.content)


def test_the_newest_text_of_each_file_counts_after_the_settings() -> None:
    history = History()
    assert standing_text(history.view(), ()) == ""
    give(history, "/p/AGENTS.md", "## Compact Instructions\nKeep the port.")
    give(history, "/p/other.md", "## Other\nno")
    give(history, "/p/AGENTS.md", "## Compact Instructions\nKeep the host.")
    assert standing_text(history.view(), ["Keep this."]) == "Keep this.\nKeep the host."


def test_the_section_of_a_file_that_is_cut_counts_in_full() -> None:
    history, text = History(), "word " * 3_000 + "\n\n## Compact Instructions\nKeep the port."
    assert "Keep the port" not in give(history, "/p/AGENTS.md", text, most=400)
    assert standing_text(history.view(), ()) == "Keep the port."


def worked() -> History:
    history = History()
    give(history, "/p/AGENTS.md", "## Compact Instructions\nKeep `API_PORT` and `GONE_NAME`.")
    history.say("Which port?")
    history.call("Bash", {"command": "env"}, "HOME=/\nAPI_PORT=8080\nDEBUG=1")
    history.reply({"type": "text", "text": "DECISION: use SQLite.\n- DECISION: no cache.\nDone."})
    return history


def kept(standing: str, *previous: str) -> list[tuple[str, str]]:
    view = worked().view()
    return [(each.quoted, each.line) for each in quoted_lines(standing, view.items, previous)]


def test_a_quoted_text_is_kept_with_its_newest_line_and_a_mark_with_each_line() -> None:
    assert kept("Keep `API_PORT` and `GONE_NAME`.") == [("API_PORT", "API_PORT=8080")]
    assert kept('Keep "DECISION:" lines', "DECISION: earlier one") == [
        ("DECISION:", "DECISION: no cache."),
        ("DECISION:", "DECISION: use SQLite."),
        ("DECISION:", "DECISION: earlier one"),
    ]


@pytest.mark.parametrize(
    "standing", ["Leave out `DEBUG`.", "Don't keep `DEBUG`.", "Keep the port.", ""]
)
def test_what_should_be_left_out_or_is_not_quoted_is_not_checked(standing: str) -> None:
    assert kept(standing) == []


def test_what_the_instructions_quote_is_a_probe_and_added_with_its_source() -> None:
    history, ledger = worked(), Ledger()
    for entry in history.entries:
        ledger.add(entry)
    written = SummaryDocument("Set the port.", facts=(SummaryFact("DECISION: use SQLite."),))
    asked = choose_probes(
        history.view().items, ledger, None, 2_000, written=written,
        standing="Keep `API_PORT` and each `DECISION:`.",
    )  # fmt: skip
    facts = [probe for probe in asked if probe.section == "facts"]
    assert [(p.fact, p.entry, p.is_constraint) for p in facts] == [
        ("API_PORT", "API_PORT=8080", True),
        ("DECISION: no cache.", "DECISION: no cache.", True),
        ("DECISION: use SQLite.", "DECISION: use SQLite.", True),
    ]
    document = add_missed_facts(written, asked, 2_000)
    assert all(is_answered(probe, render(document)) for probe in facts)
    added = {fact.text: fact.ref for fact in document.facts}
    assert added["DECISION: use SQLite."] == 0, "as the model wrote it"
    assert added["API_PORT=8080"] == next(p.ref for p in facts if p.fact == "API_PORT") > 0
