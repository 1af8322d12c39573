"""A project folder, and a new session in it."""

from pathlib import Path

import pytest

from ctxagent.agent.events import Event
from ctxagent.agent.loop.live_session import LiveSession

from ..support.sessions.setup import live_session


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
def events() -> list[Event]:
    return []


@pytest.fixture
def session(project: Path, events: list[Event]) -> LiveSession:
    """A new session. `events` gets its events."""
    return live_session(
        project, project.parent / "sessions" / "s" / "log.jsonl", emit=events.append
    )
