"""A restore removes a file only if the file certainly did not exist when the snapshot was taken."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from ctxagent.agent.worktree import diff, left_out
from ctxagent.agent.worktree.left_out import LeftOut

from .test_snapshots import contents, git, repository, tree_of

LARGE = diff.MAX_CONTENT_BYTES + 1


def with_unseen_files(folder: Path) -> Path:
    """A repository with a file of each kind that a snapshot leaves out."""
    project = repository(folder)
    (project / ".env").write_text("SECRET=1\n")
    (project / "build" / "deep").mkdir(parents=True)
    (project / "build" / "deep" / "x.o").write_text("built\n")
    (project / "venv").mkdir()
    (project / "venv" / ".gitignore").write_text("*\n")
    (project / "venv" / "lib.py").write_text("lib\n")
    (project / "notes.log").write_text("ignored beside files that are not\n")
    (project / "large.bin").write_bytes(b"\0" * LARGE)
    repository(project / "inner")
    return project


UNCOVERED: dict[str, Callable[[Path], object]] = {
    "the ignore file is emptied": lambda p: (p / ".gitignore").write_text("*.tmp\n"),
    "the ignore file is deleted": lambda p: (p / ".gitignore").unlink(),
    "an ignored ignore file is deleted": lambda p: (p / "venv" / ".gitignore").unlink(),
    "another repository becomes a folder": lambda p: (p / "inner" / ".git").rename(
        p.parent / "git"
    ),
    "a large file becomes small": lambda p: (p / "large.bin").write_bytes(b"small"),
    "an ignored file is tracked": lambda p: git(p, "add", "-f", ".env"),
}


@pytest.mark.variants
@pytest.mark.slow
@pytest.mark.parametrize("act", UNCOVERED.values(), ids=UNCOVERED)
def test_a_file_that_was_left_out_is_never_removed(
    tmp_path: Path, act: Callable[[Path], object]
) -> None:
    project = with_unseen_files(tmp_path / "p")
    tree = tree_of(project)
    then, before = tree.snapshot().tree, set(contents(project))
    act(project)
    (project / "new.py").write_text("new\n")
    (project / "fresh").mkdir()
    (project / "fresh" / "new.py").write_text("new\n")
    was = contents(project)
    assert then
    changes = tree.restore(then)
    gone = {os.path.relpath(c.path, project) for c in changes if c.action == "deleted"}
    assert gone == {"new.py", "fresh/new.py"}
    kept = before - {"venv/.gitignore"}  # it was left out too, and a call deleted it
    assert kept <= set(contents(project)) <= before
    tree.restore(tree.present)
    assert contents(project) == was


@pytest.mark.slow
def test_the_files_that_stay_are_named(tmp_path: Path) -> None:
    project = with_unseen_files(tmp_path / "p")
    tree = tree_of(project)
    then = tree.snapshot().tree
    (project / ".gitignore").write_text("*.log\n")
    (project / "new.py").write_text("new\n")
    now = tree.snapshot().tree
    assert then
    assert now
    left = tree.not_removed(then, now)
    assert left.unknown == {str(project / ".env"), str(project / "build" / "deep" / "x.o")}
    named = [str(project / name) for name in (".env", "new.py", "a.txt", ".git/config", "build/y")]
    assert tree.surely_absent(then, named) == {str(project / "new.py")}


@pytest.mark.slow
def test_without_a_record_nothing_is_removed(tmp_path: Path) -> None:
    """A tree without a record, as stored by earlier versions."""
    project = repository(tmp_path / "p")
    tree = tree_of(project)
    then = tree.observe().tree
    (project / "new.py").write_text("new\n")
    (project / "src" / "b.py").unlink()
    (project / "src").rmdir()
    (project / "src").write_text("a file in the place of a folder\n")
    (project / "a.txt").unlink()
    (project / "a.txt").mkdir()
    (project / "a.txt" / "inner").write_text("a folder in the place of a file\n")
    assert then
    tree.restore(then)
    assert (project / "new.py").read_text() == "new\n"
    assert (project / "src" / "b.py").read_text() == "print(1)\n"
    assert (project / "a.txt").read_text() == "one\ntwo\n"


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every folder")
def test_a_folder_that_could_not_be_read_is_left_out(tmp_path: Path) -> None:
    project = repository(tmp_path / "p")
    (project / "closed").mkdir()
    (project / "closed" / "x").write_text("x\n")
    (project / "closed").chmod(0)
    tree = tree_of(project)
    then = tree.snapshot().tree
    (project / "closed").chmod(0o755)
    assert then
    tree.restore(then)
    assert (project / "closed" / "x").read_text() == "x\n"


@pytest.mark.slow
def test_the_folder_of_a_file_that_stays_keeps_its_permissions(tmp_path: Path) -> None:
    project = with_unseen_files(tmp_path / "p")
    (project / "build").chmod(0o700)
    tree = tree_of(project)
    then = tree.snapshot().tree
    (project / ".gitignore").unlink()
    assert then
    tree.restore(then)
    assert stat.S_IMODE((project / "build").stat().st_mode) == 0o700


@pytest.mark.slow
def test_the_record_outlives_the_clearing_of_the_store(tmp_path: Path) -> None:
    project = with_unseen_files(tmp_path / "p")
    then = tree_of(project).snapshot("s/1").tree
    (project / ".gitignore").unlink()
    (project / "new.py").write_text("new\n")
    later = tree_of(project, "later")
    later.snapshot()
    store = tmp_path / "state" / "worktree.git"
    for path in (store / "objects").glob("[0-9a-f][0-9a-f]/*"):
        os.utime(path, (0, 0))
    git_dir = ["--git-dir", str(store)]
    git(tmp_path, *git_dir, "prune", "--expire=now")
    assert then
    later.restore(then)
    assert not (project / "new.py").exists()
    assert (project / ".env").exists()


def test_of_very_many_names_the_folders_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(left_out, "MAX_ROWS", 2)
    record = LeftOut.of(["top.o", "a/x.o", "a/b/", "a/b/y.o"])
    assert record == LeftOut(frozenset(["top.o"]), frozenset(["a/", "a/b/"]))
    names = ("top.o", "other.o", "a", "a/new", "ab/x.o", "c/.git/config", ".GIT")
    found = [name for name in names if record.may_have_had(name)]
    assert found == ["top.o", "a/new", "c/.git/config", ".GIT"]


@pytest.mark.slow
def test_a_named_path_without_a_file_is_saved_where_no_snapshot_would_keep_it(
    tmp_path: Path,
) -> None:
    project = with_unseen_files(tmp_path / "p")
    tree = tree_of(project)
    names = ("new.py", "new.log", ":[x].log", "build/new", "inner/new", ".git/new", "src")
    look = tree.observe([*(str(project / name) for name in names), str(tmp_path / "out")])
    assert {os.path.relpath(path, project) for path in tree.unkept_files(look).paths} == {
        "new.log", ":[x].log", "build/new", "inner/new", ".git/new",
    }  # fmt: skip
