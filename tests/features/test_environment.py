"""The surroundings of a session: described at the start, after changes, and after a summary."""

import asyncio
import hashlib
from pathlib import Path

import pytest

from ctxagent.agent.events import Event, Notice
from ctxagent.agent.features.environment import EnvironmentFeature, Surroundings
from ctxagent.agent.loop.interface import Turn
from ctxagent.agent.loop.live_session import LiveSession
from ctxagent.agent.session.entries import Assistant, Entry, ToolResult, User

from ..support.instruction_files import places


def environment(session: LiveSession, **more: object) -> EnvironmentFeature:
    """Return the feature in an open session."""
    session.record_opening()
    config = session.context.cwd.parent / "config"
    return EnvironmentFeature(
        session,
        Surroundings(places(session.context.cwd, config, session.folder), **more),  # type: ignore[arg-type]
    )


def begin(feature: EnvironmentFeature) -> list[Entry]:
    """Record the first entries, and return them."""
    return [feature.session.record(entry) for entry in feature.first_entries()]


def turn(feature: EnvironmentFeature) -> None:
    asyncio.run(feature.turn_started(Turn()))


def sources(entries: list[Entry]) -> list[str]:
    return [entry.source if isinstance(entry, User) else entry.kind for entry in entries]


def read(session: LiveSession, name: str, text: str) -> None:
    """Record that the session read a file with this text from disk."""
    path = session.context.cwd / name
    path.write_text(text)
    digest = hashlib.sha256(text.encode()).hexdigest()
    seen = {"path": str(path), "sha256": digest}
    call = {"type": "tool_use", "id": "c1", "name": "Read", "input": {"path": name}}
    session.record(Assistant(content=[call], usage={}, stop_reason="tool_use", model="m"))
    details = {"path": str(path), "seen": seen}
    session.record(ToolResult(tool_use_id="c1", content=text, details=details))


@pytest.fixture
def instructions(project: Path) -> Path:
    path = project / "AGENTS.md"
    path.write_text("Feed the walrus.\n")
    return path


def test_a_session_gets_its_surroundings_once(session: LiveSession, instructions: Path) -> None:
    assert sources(begin(environment(session))) == ["environment", "instructions"]
    assert begin(environment(session)) == []  # of the process that resumes


def test_a_resumed_session_learns_which_files_have_changed(session: LiveSession) -> None:
    begin(environment(session))
    read(session, "a.txt", "alpha")
    (session.context.cwd / "a.txt").write_text("beta, by another program")
    (told,) = begin(environment(session))
    assert isinstance(told, User)
    assert "Changed on disk since this session last read or wrote them: a.txt" in str(told.content)


def test_changed_instructions_are_told_at_the_next_turn(
    session: LiveSession, events: list[Event], instructions: Path
) -> None:
    feature = environment(session)
    begin(feature)
    turn(feature)
    assert events == []
    before = session.log.last_seq
    instructions.write_text("Feed the heron.\n")
    turn(feature)
    turn(feature)
    (told,) = (entry for entry in session.log.entries() if entry.seq > before)
    assert isinstance(told, User)
    assert str(told.content).endswith(
        "This text replaces the one given earlier:\n\nFeed the heron."
    )
    assert events == [Notice("info", f"{instructions} has changed: the model gets its text now")]


def test_after_a_summary_missing_instructions_are_inserted_again(
    session: LiveSession, instructions: Path
) -> None:
    feature = environment(session)
    _, said = begin(feature)
    session.context.todos.append({"status": "pending", "content": "Feed it"})
    state, again = feature.reinserted([])
    assert isinstance(state, User)
    assert "- [pending] Feed it" in str(state.content)
    assert isinstance(again, User)
    assert isinstance(said, User)
    assert again.content == said.content
    assert sources([*feature.reinserted([said.seq])]) == ["environment"]
