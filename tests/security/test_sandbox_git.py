"""The parts of a project's repository that are writable or read-only in the sandbox."""

import os
import subprocess
from pathlib import Path

import pytest

from ctxagent.agent.security.sandbox_paths import find_repository, repository_root


def git(cwd: Path, *words: str) -> None:
    subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words],
        cwd=cwd, check=True, capture_output=True, env={"PATH": os.environ["PATH"]},
    )  # fmt: skip


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    git(tmp_path, "init", "-q", str(root))
    git(root, "commit", "-q", "--allow-empty", "-m", "one")
    return root


def test_no_repository(tmp_path: Path) -> None:
    found = find_repository(str(tmp_path))
    assert (found.folders, found.read_only, found.must_not_exist) == ((), (), ())
    assert repository_root(str(tmp_path)) == ""


def test_read_only_parts_and_parts_that_must_not_appear(project: Path) -> None:
    (project / "src").mkdir()
    found = find_repository(str(project / "src"))
    assert found.folders == (f"{project}/.git",)
    assert {f"{project}/.git/config", f"{project}/.git/hooks"} == set(found.read_only)
    assert f"{project}/.git/commondir" in found.must_not_exist
    assert repository_root(str(project / "src")) == str(project)


def test_a_linked_work_tree(project: Path, tmp_path: Path) -> None:
    git(project, "worktree", "add", "-q", str(tmp_path / "other"))
    found = find_repository(str(tmp_path / "other"))
    assert f"{project}/.git" in found.folders
    assert str(tmp_path / "other/.git") in found.read_only


def test_a_submodule_with_its_repository_in_place(project: Path) -> None:
    git(project, "init", "-q", "inner")
    git(project / "inner", "commit", "-q", "--allow-empty", "-m", "one")
    assert f"{project}/inner/.git" not in find_repository(str(project)).folders
    git(project, "add", "inner")
    found = find_repository(str(project))
    assert found.folders == (f"{project}/.git", f"{project}/inner/.git")
    assert f"{project}/inner/.git/config" in found.read_only
    (project / ".git" / "index").write_bytes(b"DIRC")
    assert find_repository(str(project)).folders == (f"{project}/.git",)
