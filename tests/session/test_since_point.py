"""Facts in a log after a point: saved files, changes and commands."""

from typing import Any

from ctxagent.agent.session.entries import Entry, Note, Session, ToolResult, User
from ctxagent.agent.session.since_point import (
    COMMAND,
    EDIT,
    read_facts_since,
    read_lineage,
    saved_note,
)
from ctxagent.agent.worktree import SavedFile

OLD, NEW = "1" * 40, "2" * 40


def numbered(*entries: Entry) -> list[Entry]:
    from dataclasses import replace

    return [replace(entry, seq=n) for n, entry in enumerate(entries, 1)]


def result(**details: Any) -> ToolResult:
    return ToolResult(tool_use_id="c", content="", details=details)


def test_the_first_state_after_the_point_counts() -> None:
    entries = numbered(
        User(content="one"),
        saved_note([SavedFile("/a", OLD, 1)], EDIT),
        User(content="two"),
        saved_note([SavedFile("/a", NEW, 1)], EDIT),
        saved_note([SavedFile("/a", OLD, 1), SavedFile("/b", why="large")], COMMAND),
    )
    assert read_facts_since(entries, 0).saved["/a"].blob == OLD
    since = read_facts_since(entries, 3)
    assert since.saved["/a"].blob == NEW
    assert since.own == {"/a"}
    assert since.not_saved == ["/b"]


def test_changes_are_own_or_uncertain() -> None:
    rows = [
        {"path": "/made", "action": "created"},
        {"path": "/seen", "action": "created", "certain": False},
        {"path": "/changed", "action": "modified"},
    ]
    since = read_facts_since(numbered(result(changes=rows, command="make > /made; cat x")), 0)
    assert since.own == {"/made", "/changed"}
    assert since.uncertain == {"/seen"}
    assert since.saved == {"/made": SavedFile("/made")}
    assert since.not_saved == ["/changed", "/seen"]


def test_commands_that_only_read_are_left_out() -> None:
    entries = numbered(result(command="make"), result(command="cat a"), result(command="make"))
    assert read_facts_since(entries, 0).commands == ("make",)
    assert read_facts_since(entries, 3).commands == ()


def test_damage_counts_as_nothing() -> None:
    bad: list[Any] = [5, {"path": 5}, {"path": "/x", "blob": "/etc"}]
    entries = numbered(
        Note(topic="saved", text="", data={"files": bad}),
        Note(topic="saved", text="", data={"files": 5}),
        result(changes=5, command=5),
    )
    since = read_facts_since(entries, 0)
    assert (since.saved, since.own, since.commands) == ({}, frozenset(), ())


def test_a_copy_knows_its_originals() -> None:
    first = Session(id="one", cwd="/", version="1", model="m", at="2026-01-01T00:00:00Z")
    own = Session(id="two", cwd="/", version="1", model="m", at="2026-01-02T00:00:00Z")
    assert read_lineage([first, own], "two").sessions == {"one"}
    assert read_lineage([first, own], "two").until == own.at
    assert read_lineage([first], "two").until == ""
    assert read_lineage([own], "two").sessions == set()
