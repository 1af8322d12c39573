"""The model's texts at the start and after a summary. Their wording is in
`e2e/test_model_texts.py`.
"""

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.features.environment import (
    PRIOR_SESSION_HEADING,
    changed_files_notice,
    entry_after_summary,
    first_entries,
    system_prompt,
)
from ctxagent.agent.prompts import prompt_text
from ctxagent.agent.session.entries import Entry, User


def texts(entries: list[Entry]) -> list[tuple[str, str]]:
    return [(each.source, str(each.content)) for each in entries if isinstance(each, User)]


def test_the_prompt_of_the_user_replaces_ours_but_not_its_limits() -> None:
    usual, own = system_prompt(), system_prompt(own="Be a walrus.")
    limits = prompt_text("limits").strip()
    assert usual.endswith(limits)
    assert own == f"Be a walrus.\n\n{limits}"
    assert system_prompt("Speak French.", own="Be a walrus.") == f"{own}\n\nSpeak French."


def test_a_subagent_has_its_part_at_the_end() -> None:
    found = system_prompt("Speak French.", "Look only.")
    about = prompt_text("agent").strip()
    assert found == f"{system_prompt('Speak French.')}\n\n{about}\n\nLook only."


def first(folder: Path, **more: Any) -> list[tuple[str, str]]:
    return texts(first_entries(folder, {}, **more))


def test_a_new_session_learns_where_it_is_and_what_the_project_says(tmp_path: Path) -> None:
    entry = User(content="Feed the walrus.", source="instructions")
    where, said = first(tmp_path, instructions=[entry])
    lines = where[1].splitlines()
    assert where[0] == "environment"
    assert lines[1] == f"Working directory: {tmp_path}"
    assert f"Date: {date.today().isoformat()}" in lines
    assert said == ("instructions", "Feed the walrus.")


def test_a_new_session_learns_of_servers_and_of_an_earlier_session(tmp_path: Path) -> None:
    where, prior = first(tmp_path, prior="It was fed.", servers=["a", "b"])
    assert where[1].endswith("\nMCP servers, whose tools Mcp finds and calls: a, b")
    assert prior == ("environment", f"{PRIOR_SESSION_HEADING}It was fed.")
    ((_, many),) = first(tmp_path, servers=[f"s{n}" for n in range(30)])
    assert many.endswith("s18, s19, 10 more")


def after(folder: Path, **more: Any) -> str:
    """Return the text about the state after a summary."""
    given: dict[str, Any] = {"mode": "ask", "todos": [], "jobs": "", "preserved": "", **more}
    return str(entry_after_summary(folder, **given).content)


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({}, "Permission mode: ask"),
        ({"mode": "plan"}, "Permission mode: plan: change nothing; look around, then propose"),
        ({"todos": [{"status": "pending", "content": "Feed it"}]}, "- [pending] Feed it"),
        ({"jobs": "job-1: make"}, "Background jobs:\njob-1: make"),
        ({"agents": "explore-1 did not finish"}, "explore-1 did not finish"),
        (
            {"changed": ["a.txt"]},
            "this session last read or wrote them: a.txt. To use them, read them again.",
        ),
        ({"servers": ["a"]}, "MCP servers, whose tools Mcp finds and calls: a"),
        ({"preserved": "## Phase\nbuild"}, "\n\n## Phase\nbuild"),
    ],
)
def test_after_a_summary_the_model_gets_the_current_state(
    tmp_path: Path, given: dict[str, Any], line: str
) -> None:
    found = after(tmp_path, **given)
    assert found.startswith(f"After the compression, as things stand now:\n{'Working directory'}")
    assert line in found


def test_no_text_about_an_empty_state(tmp_path: Path) -> None:
    assert len(after(tmp_path).splitlines()) == 4
    assert changed_files_notice([]) == []


def test_many_changed_files_are_counted() -> None:
    ((_, text),) = texts(changed_files_notice([f"{n}.txt" for n in range(50)]))
    assert "39.txt, and 10 more. To use them, read them again." in text
