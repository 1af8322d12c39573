"""`ctxagent --version` names the commit that it was made of, wherever it was installed from."""

import re
import runpy
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from ctxagent import __version__
from ctxagent.agent.cli.commit import RECORD, find_commit
from ctxagent.tests.support.command import Place

ROOT = Path(__file__).parents[2]


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    command = ["git", "-C", folder, *identity, "-c", "protocol.file.allow=always", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with the record as this one has it, and a commit."""
    folder = tmp_path / "checkout"
    (folder / RECORD).parent.mkdir(parents=True)
    for name in (".gitattributes", str(RECORD)):
        (folder / name).write_bytes((ROOT / name).read_bytes())
    git(tmp_path, "init", "-q", "-b", "main", str(folder))
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "one")
    return folder


def test_a_branch_a_packed_one_and_no_branch(checkout: Path) -> None:
    commit = git(checkout, "rev-parse", "HEAD")
    assert find_commit(checkout) == commit
    git(checkout, "pack-refs", "--all")
    assert not (checkout / ".git/refs/heads/main").exists()
    assert find_commit(checkout) == commit
    git(checkout, "commit", "-qm", "two", "--allow-empty")
    assert find_commit(checkout) == git(checkout, "rev-parse", "HEAD") != commit
    git(checkout, "checkout", "-q", "--detach", commit)
    assert find_commit(checkout) == commit


def test_a_linked_work_tree_and_a_submodule(checkout: Path, tmp_path: Path) -> None:
    git(checkout, "worktree", "add", "-q", "-b", "other/branch", str(tmp_path / "linked"))
    git(tmp_path / "linked", "commit", "-qm", "two", "--allow-empty")
    assert find_commit(tmp_path / "linked") == git(tmp_path / "linked", "rev-parse", "HEAD")
    git(checkout, "pack-refs", "--all")
    assert find_commit(tmp_path / "linked") == git(tmp_path / "linked", "rev-parse", "HEAD")
    git(tmp_path, "init", "-q", "outer")
    git(tmp_path / "outer", "submodule", "add", "-q", str(checkout), "inner")
    assert find_commit(tmp_path / "outer/inner") == git(checkout, "rev-parse", "HEAD")


def test_an_archive_that_git_has_made(checkout: Path, tmp_path: Path) -> None:
    git(checkout, "archive", "-o", str(tmp_path / "a.zip"), "HEAD")
    zipfile.ZipFile(tmp_path / "a.zip").extractall(tmp_path / "archive")
    assert find_commit(tmp_path / "archive") == git(checkout, "rev-parse", "HEAD")
    # Somebody keeps it in a repository of their own, whose commits are others.
    git(tmp_path / "archive", "init", "-q")
    git(tmp_path / "archive", "commit", "-qm", "theirs", "--allow-empty")
    assert find_commit(tmp_path / "archive") == git(checkout, "rev-parse", "HEAD")


@pytest.mark.parametrize(
    "head",
    ["", "ref: refs/heads/gone\n", "ref: ../../../etc\n", "not a hash\n", "\xff", "abc1234\n"],
)
def test_nothing_is_named_that_is_not_known(checkout: Path, head: str) -> None:
    (checkout / ".git/HEAD").write_bytes(head.encode("latin-1"))
    assert find_commit(checkout) is None


def test_without_a_repository_nothing_is_named(tmp_path: Path) -> None:
    assert find_commit(tmp_path) is None
    (tmp_path / ".git").write_text("gitdir: nowhere\n")
    assert find_commit(tmp_path) is None


@pytest.mark.slow
def test_the_command_says_version_commit_and_python(tmp_path: Path) -> None:
    said = Place(tmp_path).run("--version")
    commit = find_commit(ROOT)
    named = f"commit {commit[:7]}, " if commit else ""
    python = ".".join(map(str, sys.version_info[:2]))
    expected = rf"ctxagent {re.escape(__version__)} \({named}Python {python}\.\d+\S*\)\n"
    assert re.fullmatch(expected, said.stdout), said
    assert said.returncode == 0
    assert said.stderr == ""


def test_the_build_names_the_python_that_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    for name in ("setuptools", "setuptools.command.build_py", "setuptools.command.sdist"):
        monkeypatch.setitem(sys.modules, name, MagicMock())
    monkeypatch.setattr(sys, "version_info", (3, 10, 13))
    with pytest.raises(SystemExit, match=f"needs Python {needed.lstrip('>=')} or newer. This is"):
        runpy.run_path(str(ROOT / "setup.py"))
