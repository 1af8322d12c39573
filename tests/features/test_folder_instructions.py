"""Which calls give the model a folder's instructions, live and after a resume."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.events import Event, Notice
from ctxagent.agent.features.folder_instructions import FolderInstructionsFeature, Touch
from ctxagent.agent.loop.live_session import LiveSession
from ctxagent.agent.permissions.approval import Approval
from ctxagent.agent.session.entries import Assistant, Summary, ToolResult, User

from ..support.instruction_files import places


@pytest.fixture
def folder(project: Path) -> Path:
    folder = project / "in"
    folder.mkdir()
    (folder / "AGENTS.md").write_text("Feed the walrus.")
    (folder / "a.py").write_text("a")
    return folder


def feature(session: LiveSession) -> FolderInstructionsFeature:
    made = FolderInstructionsFeature(
        session, places(session.context.cwd, session.folder / "config", session.folder)
    )
    session.listeners.append(made.recorded)
    return made


def call(
    session: LiveSession, tool: str, details: dict[str, Any], *, is_error: bool = False
) -> None:
    """Record a call and its result."""
    id = f"c{session.log.last_seq}"
    block = {"type": "tool_use", "id": id, "name": tool, "input": {}}
    session.record(Assistant(content=[block], usage={}, stop_reason="tool_use", model="m"))
    session.record(ToolResult(tool_use_id=id, content="x", details=details, is_error=is_error))


def given(made: FolderInstructionsFeature) -> list[str]:
    """Return the texts recorded before the next model call."""
    before = made.session.log.last_seq
    asyncio.run(made.before_call())
    entries = [entry for entry in made.session.log.entries() if entry.seq > before]
    return [str(entry.content).partition("\n\n")[2] for entry in entries if isinstance(entry, User)]


@pytest.mark.parametrize(
    ("tool", "details", "is_error", "is_given"),
    [
        ("Read", {"path": "in/a.py"}, False, True),
        ("Edit", {"path": "in/a.py"}, False, True),
        ("Write", {"path": "in/new.py"}, False, True),
        ("Read", {"path": "in/a.py"}, True, False),
        ("Read", {"path": "in/AGENTS.md"}, False, False),  # the model has just read it
        ("Bash", {"command": "cat in/a.py"}, True, True),
        ("Bash", {"command": "cd in && cat a.py"}, False, True),
        ("Bash", {"command": "ls in; echo x"}, False, False),
        ("Bash", {}, False, False),
        ("Grep", {"path": "in/a.py"}, False, False),
    ],
)
def test_which_calls_count(
    session: LiveSession, folder: Path, tool: str, details: dict[str, Any], is_error: bool,
    is_given: bool,
) -> None:  # fmt: skip
    made = feature(session)
    call(session, tool, details, is_error=is_error)
    assert given(made) == ["Feed the walrus."] * is_given
    assert given(made) == []


def test_a_resumed_session_gets_the_missed_instructions(
    session: LiveSession, events: list[Event], folder: Path
) -> None:
    call(session, "Read", {"path": str(folder / "a.py")})
    assert given(feature(session)) == ["Feed the walrus."]
    assert given(feature(session)) == []
    told = "in/AGENTS.md, for work in its folder: the model gets its text now"
    assert events == [Notice("info", told)]


def test_after_a_summary_only_what_is_touched_again(session: LiveSession, folder: Path) -> None:
    made = feature(session)
    call(session, "Read", {"path": "in/a.py"})
    given(made)
    last = session.log.last_seq
    session.record(Summary(document={}, text="s", covers=(1, last), keep_from=last + 1, trigger="t",
                          tokens_before=2, tokens_after=1))  # fmt: skip
    assert given(made) == given(feature(session)) == []
    call(session, "Read", {"path": "in/a.py"})
    assert given(feature(session)) == ["Feed the walrus."]
    assert given(made) == []


def test_the_paths_of_a_command(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "in").mkdir()
    assert [*Touch("Bash", "cat a.txt in > b.txt").paths(tmp_path)] == [
        tmp_path / "a.txt", tmp_path / "b.txt",
    ]  # fmt: skip
    assert [*Touch("Bash", "((").paths(tmp_path)] == []
    assert [*Touch("Read", "in/../a.txt").paths(tmp_path)] == [tmp_path / "a.txt"]


def test_a_file_that_must_not_be_read_is_not_given(session: LiveSession, folder: Path) -> None:
    session.approval = Approval(mode="ask", cwd=session.context.cwd, deny=["Read(in/AGENTS.md)"])
    call(session, "Read", {"path": "in/a.py"})
    assert given(feature(session)) == []


def test_the_same_text_in_two_folders_counts_for_both(session: LiveSession, folder: Path) -> None:
    made = feature(session)
    for name in ("b", "in/deep"):
        (folder.parent / name).mkdir()
        (folder.parent / name / "AGENTS.md").write_text("Feed the walrus.")
    (folder.parent / "linked").mkdir()
    (folder.parent / "linked/AGENTS.md").symlink_to(folder / "AGENTS.md")
    call(session, "Read", {"path": "in/a.py"})
    assert given(made) == ["Feed the walrus."]
    for name in ("in/deep", "linked"):
        call(session, "Write", {"path": f"{name}/x.py"})
        assert given(made) == []
    for times in (1, 0):
        call(session, "Write", {"path": "b/x.py"})
        assert len(given(made)) == times
    (last,) = [entry for entry in session.log.entries() if "b/AGENTS.md" in str(entry)]
    assert isinstance(last, User)
    text = (
        f"{folder.parent}/b/AGENTS.md, for work in its folder, says the same as {folder}/AGENTS.md."
    )
    assert last.content == text
    (folder / "AGENTS.md").write_text("Feed the seal.")
    for name in ("in", "b"):
        call(session, "Write", {"path": f"{name}/y.py"})
    assert given(made)[0] == "Feed the seal."
    call(session, "Write", {"path": "b/z.py"})
    assert given(made) == ["Feed the walrus."]  # what its earlier entry refers to was replaced
