"""The identity of a project's folder, and finding the sessions of a renamed one."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from ctxagent.agent.session.project_record import (
    RECORD_NAME,
    decline,
    find_former,
    is_gone,
    load_record,
    save_record,
    update_record,
)
from ctxagent.agent.session.store import Project


def begun(tmp_path: Path, name: str) -> Project:
    """A project with one session and its record."""
    project = Project(tmp_path / "state", tmp_path / name)
    project.cwd.mkdir()
    log = project.new_log()
    log.parent.mkdir(parents=True)
    log.write_bytes(b"")
    update_record(log, project.cwd)
    return project


def renamed(project: Project, name: str) -> Project:
    return Project(project.state, project.cwd.rename(project.cwd.with_name(name)))


def test_a_renamed_folder_is_found_until_the_user_declines(tmp_path: Path) -> None:
    old = begun(tmp_path, "old")
    new = renamed(old, "new")
    former = find_former(new.folder, new.cwd)
    assert former is not None
    assert (former.folder, former.path, former.sessions) == (old.folder, str(old.cwd), 1)
    assert former.hint.endswith(f"ctxagent sessions adopt {old.cwd}")
    decline(new.folder, new.cwd)
    assert find_former(new.folder, new.cwd) is None
    update_record(new.new_log(), new.cwd)  # keeps the answer
    assert find_former(new.folder, new.cwd) is None
    again = renamed(new, "again")
    assert find_former(again.folder, again.cwd) == former


def test_another_root_commit_is_another_project(tmp_path: Path) -> None:
    """An inode can belong to a new folder after its folder was deleted."""
    old = begun(tmp_path, "old")
    record = load_record(old.folder)
    assert record is not None
    new = renamed(old, "new")
    save_record(old.folder, replace(record, root_commit="a" * 40))
    assert find_former(new.folder, new.cwd) is not None  # it is no repository
    (new.cwd / ".git").mkdir()
    assert find_former(new.folder, new.cwd) is not None  # without a commit
    (new.cwd / ".git").rmdir()
    who = ("git", "-c", "user.name=a", "-c", "user.email=a@b")
    for words in ("init -q", "commit -q --allow-empty -m x"):
        subprocess.run([*who, *words.split()], cwd=new.cwd, check=True)
    assert find_former(new.folder, new.cwd) is None


def test_the_record_follows_the_folder_at_its_path(tmp_path: Path) -> None:
    project = begun(tmp_path, "old")
    first = load_record(project.folder)
    assert first is not None
    save_record(project.folder, replace(first, inode=1, root_commit="a" * 40))
    update_record(project.logs()[0], project.cwd)
    assert load_record(project.folder) == first
    update_record(project.logs()[0], tmp_path)  # a session of another project
    assert load_record(project.folder) == first
    (project.folder / RECORD_NAME).write_text('{"path": 1}')
    assert load_record(project.folder) is None
    update_record(project.logs()[0], project.cwd)
    assert load_record(project.folder) == first


@pytest.mark.parametrize(
    ("target", "expected"), [("here", True), ("other", False), ("missing", True), ("file", True)]
)
def test_only_a_link_to_this_folder_counts_as_gone(
    tmp_path: Path, target: str, expected: bool
) -> None:
    for name in ("here", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "file").write_text("")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / target)
    assert is_gone(str(link), tmp_path / "here") is expected
    assert not is_gone(str(tmp_path / "here"), tmp_path / "here")
