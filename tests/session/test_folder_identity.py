"""Which folder a project was before it was renamed."""

from pathlib import Path

import pytest

from ctxagent.agent.errors import SessionBusy, UsageError
from ctxagent.agent.session.entries import User
from ctxagent.agent.session.folder_identity import (
    IDENTITY_NAME,
    FolderIdentity,
    adopt,
    former_project,
    newest_log,
    read_identity,
    record_identity,
    refuse,
)
from ctxagent.agent.session.log import Log
from ctxagent.agent.session.store import Project

HERE = FolderIdentity("/a", 1, 2, "c1")


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (FolderIdentity("/b", 1, 2, "c1"), True),
        (FolderIdentity("/b", 7, 7, "c1"), True),  # moved to another disk, or cloned
        (FolderIdentity("/b", 1, 2), True),
        (FolderIdentity("/b", 1, 2, "c2"), False),  # an inode is used again
        (FolderIdentity("/b", 1, 3), False),
    ],
)
def test_a_folder_is_the_same(other: FolderIdentity, same: bool) -> None:
    assert HERE.is_same(other) is same
    assert other.is_same(HERE) is same


def begin(project: Project) -> None:
    log = Log(project.new_log())
    log.append(User(content="go"))
    log.close()


@pytest.fixture
def former(tmp_path: Path) -> Project:
    """A project with one session, whose folder was renamed to `now`."""
    project = Project(tmp_path / "state", tmp_path / "then")
    project.cwd.mkdir()
    begin(project)
    record_identity(project)
    project.cwd.rename(tmp_path / "now")
    return project


@pytest.fixture
def project(former: Project, tmp_path: Path) -> Project:
    return Project(former.state, tmp_path / "now")


def test_the_former_project_is_found_and_moved(former: Project, project: Project) -> None:
    assert former_project(project) == former
    (log,) = former.logs()
    assert adopt(project, former) == 1
    assert newest_log(project).parent.name == log.parent.name
    assert not former.folder.exists()
    known = read_identity(project.folder)
    assert known is not None
    assert known.path == str(project.cwd)
    assert former_project(project) is None


def test_files_without_a_session_are_set_aside(former: Project, project: Project) -> None:
    project.folder.mkdir(parents=True)
    (project.folder / "history").write_text("kept")
    adopt(project, former)
    (aside,) = project.folder.parent.glob("*.empty-1/history")
    assert aside.read_text() == "kept"


def test_a_refusal_is_remembered(former: Project, project: Project) -> None:
    refuse(project, former)
    assert former_project(project) is None
    assert former.logs()


def test_an_open_session_is_not_moved(former: Project, project: Project) -> None:
    log = Log.open(former.logs()[0])
    try:
        with pytest.raises(SessionBusy):
            adopt(project, former)
    finally:
        log.close()
    assert adopt(project, former) == 1


def test_sessions_are_not_mixed(former: Project, project: Project) -> None:
    begin(project)
    with pytest.raises(UsageError, match="sessions of its own"):
        adopt(project, former)


@pytest.mark.parametrize("data", ["", "[]", "{}", '{"path": 1}', "\x00"])
def test_a_damaged_record_is_no_record(former: Project, project: Project, data: str) -> None:
    (former.folder / IDENTITY_NAME).write_text(data)
    assert former_project(project) is None
