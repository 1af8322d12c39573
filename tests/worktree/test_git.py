"""What the model is told about the project's repository."""

import os
from pathlib import Path

import pytest

from ctxagent.agent.worktree.git import NO_REPOSITORY, describe_repository

from ..support.fleet import git as run_git
from ..support.fleet import repository


def test_changes_are_named_from_the_top_of_the_repository(tmp_path: Path) -> None:
    repository(tmp_path / "r")
    (tmp_path / "r" / "inner").mkdir()
    (tmp_path / "r" / "read.me").write_text("changed\n")
    told = describe_repository(tmp_path / "r" / "inner", os.environ).splitlines()
    assert told[:4] == ["Git branch: main", "Changed files:", " M read.me", "Newest commits:"]
    assert told[4].endswith(" first")


def test_before_the_first_commit(tmp_path: Path) -> None:
    run_git(tmp_path, "init", "-q", "-b", "main")
    told = "Git branch: No commits yet on main\nWork tree: clean"
    assert describe_repository(tmp_path, os.environ) == told


@pytest.mark.parametrize("made", ["", ".git", "HEAD"])
def test_outside_of_a_repository(tmp_path: Path, made: str) -> None:
    (tmp_path / made).mkdir(exist_ok=True)
    assert describe_repository(tmp_path, os.environ) == NO_REPOSITORY


def test_a_bare_repository_and_a_git_folder_have_no_work_tree(tmp_path: Path) -> None:
    repository(tmp_path / "r")
    run_git(tmp_path, "clone", "-q", "--bare", "r", "bare")
    for folder in (tmp_path / "bare", tmp_path / "r" / ".git"):
        assert describe_repository(folder, os.environ) == NO_REPOSITORY


def test_a_repository_that_git_cannot_read(tmp_path: Path) -> None:
    repository(tmp_path / "r")
    (tmp_path / "r" / ".git" / "config").write_text("[core\n")
    assert describe_repository(tmp_path / "r", os.environ) == f"Git: {tmp_path / 'r'}, unreadable"


def test_variables_of_another_environment_do_not_reach_git(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = dict(os.environ)
    repository(tmp_path / "r")
    monkeypatch.setenv("GIT_DIR", "/nonexistent")
    assert describe_repository(tmp_path / "r", env).startswith("Git branch: main")
