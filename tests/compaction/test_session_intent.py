"""The intent of a session: the summary's intent, the user's messages and changed files, all
limited.
"""

from dataclasses import replace
from typing import Any

from ctxagent.agent.compaction import recovery as module
from ctxagent.agent.compaction.recovery import session_intent
from ctxagent.agent.context.tokens import estimate
from ctxagent.agent.session.entries import Assistant, Entry, Revert, Summary, ToolResult, User


def numbered(*entries: Entry) -> list[Entry]:
    return [replace(entry, seq=seq) for seq, entry in enumerate(entries, 1)]


def summary(intent: str) -> Summary:
    return Summary(document={"intent": intent}, text="…", covers=[1, 1], keep_from=2)


def change(path: str, tool: str = "Edit", **details: Any) -> list[Entry]:
    call = {"type": "tool_use", "id": path, "name": tool, "input": {}}
    return [
        Assistant(content=[call], usage={}, stop_reason="tool_use", model="m"),
        ToolResult(tool_use_id=path, content="ok", details={"path": path, **details}),
    ]


def test_each_part_stands_below_its_heading() -> None:
    entries = [User(content="Fix it."), *change("a.py", added=2, removed=1), summary("A fix.")]
    assert session_intent(numbered(*entries)) == (
        "## Session intent, as summary #4 states it\nA fix.\n\n"
        "## Messages of the user (1)\n<message #1, open>\nFix it.\n</message>\n\n"
        "## Changed files (1)\n- a.py: modified, +2 -1 lines, #3"
    )


def test_empty_sections_have_no_heading() -> None:
    assert session_intent([]) == ""
    assert session_intent(numbered(summary(""))) == ""
    text = session_intent(numbered(User(content="Only this.")))
    assert text.startswith("## Messages of the user (1)\n")
    assert "Session intent" not in text
    assert "Changed files" not in text


def test_only_what_the_user_typed_counts_as_a_message() -> None:
    others = (User(content="told", source=source) for source in ("environment", "notice", "plan"))
    attached = User(
        content="of a file",
        source="attachment",
        details={"call": {"name": "Read", "input": {"path": "x"}}},
    )
    text = session_intent(numbered(User(content="Fix it."), *others, attached))
    assert text == "## Messages of the user (1)\n<message #1, open>\nFix it.\n</message>"


def test_a_summary_that_was_undone_does_not_count() -> None:
    entries = numbered(summary("The first."), summary("The second."), Revert(target=2))
    assert "summary #1 states it\nThe first." in session_intent(entries)
    assert "The second." not in session_intent(entries)


def test_all_of_it_is_bounded_and_the_newest_stays() -> None:
    entries: list[Entry] = [User(content=f"Message {n}: " + "words " * 500) for n in range(200)]
    for number in range(module.MAX_LISTED_FILES + 9):
        entries += change(f"{number}-{'x' * 300}.py", added=1)
    text = session_intent(numbered(*entries, summary("Do this. " * 1_000)))
    assert estimate(text) < 10_000
    assert "Message 199: " in text
    assert "[Messages without room here, Recall has each: " in text
    assert f"- {module.MAX_LISTED_FILES + 8}-xxx" in text
    assert "\n- 0-xxx" not in text
    assert text.endswith("\n(9 more files, changed before these)")
