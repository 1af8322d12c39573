"""The log for each choice of session, and the warnings of a resumed session."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ctxagent.agent.errors import NoSuchSession, SessionBusy
from ctxagent.agent.launch import SessionChoice
from ctxagent.agent.loop.open_log import fork_origin, open_log, warnings_on_resume
from ctxagent.agent.loop.resume import OpenedLog, SessionState
from ctxagent.agent.session.entries import Session, User
from ctxagent.agent.session.store import Project


@pytest.fixture
def sessions(tmp_path: Path) -> Project:
    return Project(tmp_path / "state", tmp_path)


@contextmanager
def opened(sessions: Project, **choice: object) -> Iterator[OpenedLog]:
    found = open_log(sessions, SessionChoice(**choice))  # type: ignore[arg-type]
    try:
        yield found
    finally:
        found.log.close()


def written(sessions: Project, **choice: object) -> str:
    """A session with two entries; returns its ID."""
    with opened(sessions, **choice) as found:
        id = found.log.path.parent.name
        found.log.append(Session(id=id, cwd=str(sessions.cwd), version="0", model="m"))
        found.log.append(User(content="go"))
    return id


def test_without_a_choice_it_is_a_new_session(sessions: Project) -> None:
    first = written(sessions)
    with opened(sessions) as found:
        assert found.log.path.parent.name != first
        assert found.state.entries == 0
        assert fork_origin(found.log, found.state) is None


def test_the_newest_or_one_by_the_beginning_of_its_id(sessions: Project) -> None:
    id = written(sessions)
    for choice in ({"newest": True}, {"id": id}, {"id": id[:-2]}):
        with opened(sessions, **choice) as found:
            assert found.log.path.parent.name == id
            assert found.state.entries == 2
            assert fork_origin(found.log, found.state) is None
    with pytest.raises(NoSuchSession):
        open_log(sessions, SessionChoice(id="nowhere"))


def test_a_fork_is_a_copy_that_knows_its_origin(sessions: Project) -> None:
    id = written(sessions)
    with opened(sessions, id=id, fork=True) as found:
        assert found.log.path.parent.name != id
        assert found.state.entries == 2
        assert fork_origin(found.log, found.state) == {"id": id, "seq": 2}


def test_the_session_of_a_task_is_made_once(sessions: Project) -> None:
    assert written(sessions, for_task="job-7") == "job-7"
    with opened(sessions, for_task="job-7") as found:
        assert found.state.entries == 2


def test_a_session_in_use_can_only_be_read(sessions: Project) -> None:
    id = written(sessions)
    with opened(sessions, id=id):
        with pytest.raises(SessionBusy):
            open_log(sessions, SessionChoice(id=id))
        with opened(sessions, id=id, read_only=True) as read:
            assert read.log.refusal


def test_warnings_of_a_resumed_session(tmp_path: Path) -> None:
    assert warnings_on_resume(SessionState(), tmp_path, "Mine.") == []
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    began = SessionState(began=str(tmp_path), entries=2, own_prompt="Mine.")
    assert warnings_on_resume(began, link, "Mine.") == []
    assert warnings_on_resume(began, link, "") == []
    elsewhere = SessionState(began="/elsewhere", entries=2)
    moved, prompt = warnings_on_resume(elsewhere, tmp_path, "Mine.")
    assert moved == f"this session began in /elsewhere and continues in {tmp_path}"
    assert prompt.startswith("this session began with the usual system prompt and keeps it")
    assert "another system prompt" in warnings_on_resume(began, tmp_path, "Other.")[0]
