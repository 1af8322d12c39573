"""Records of a git repository: their content, lifetime, privacy and size."""

import errno
import os
import shutil
import stat
from pathlib import Path

import pytest

from ctxagent.agent.errors import RecordError
from ctxagent.agent.worktree import RepositoryRecorder, repository_record

from .test_repository_restore import Project


def test_no_repository(tmp_path: Path) -> None:
    keeper = RepositoryRecorder(tmp_path, tmp_path / "state", {"PATH": os.environ["PATH"]})
    assert (keeper.take(), keeper.limits) == ("", "")
    assert not (tmp_path / "state").exists()


def test_a_repository_that_is_made_later_is_recorded(tmp_path: Path) -> None:
    project = Project(tmp_path)
    shutil.rmtree(project.folder / ".git")
    assert project.keeper.take() == ""
    project.run("git init -q -b main")
    project.fill()
    assert project.take()


def test_records_are_private_and_the_same_while_nothing_changes(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.fill()
    name = project.take()
    again = RepositoryRecorder(project.folder, project.keeper.folder, project.env)
    assert project.keeper.take() == again.take() == name
    for folder, folders, names in os.walk(project.keeper.folder):
        for each in [*folders, *names]:
            found = Path(folder, each).lstat()
            shared = found.st_nlink > 1 and stat.S_ISREG(found.st_mode)
            assert shared or not found.st_mode & 0o077, each
    project.git("branch", "more")
    assert project.take() != name


def test_a_record_is_kept_for_a_time(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.fill()
    name, folder = project.take(), project.keeper.folder
    for number in range(2):
        os.utime(folder / "new" / "common", (0, 0))
        project.commit(f"later{number}")
        project.take()
        if number == 0:
            assert project.restorer.lost(name) == []
    with pytest.raises(RecordError, match="expired"):
        project.restorer.lost(name)


def test_packs_that_have_left_the_repository_take_little_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repository_record, "MAX_LEFT_BYTES", 0)
    project = Project(tmp_path)
    packs, counts = project.keeper.folder / "new/objects/pack", []
    for number in range(6):
        (project.folder / "random").write_bytes(os.urandom(100_000))
        project.commit(f"file{number}")
        project.git("add", "random")
        project.git("gc", "-q", "--prune=now")
        project.take()
        counts.append(len(list(packs.glob("*.pack"))))
    assert max(counts) <= 3
    assert counts[-1] < 6


def no_links(*_: object, **__: object) -> None:
    raise OSError(errno.EXDEV, "Invalid cross-device link")


def test_objects_on_another_file_system_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repository_record.os, "link", no_links)
    project = Project(tmp_path)
    project.fill()
    was, name = project.state(), project.take()
    assert project.keeper.limits == ""
    project.run("rm -rf .git")
    project.restore(name)
    assert project.state() == was


def test_more_objects_than_may_be_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repository_record.os, "link", no_links)
    monkeypatch.setattr(repository_record, "MAX_COPIED_BYTES", 20_000)
    project = Project(tmp_path)
    (project.folder / "random").write_bytes(os.urandom(100_000))
    project.git("add", "random")
    project.fill()
    name = project.take()
    assert "on another file system and do not fit" in project.keeper.limits
    project.run("git branch -qD feature")
    project.restore(name)
    assert project.git("rev-parse", "feature")
