"""Scans of a few files, for which a watch names the changed files. They give the same result as a
full scan, and the next full scan updates the index.
"""

import gc
import os
import random
import shutil
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from ctxagent.agent.worktree import WorkTree, garbage, object_store, staging
from ctxagent.agent.worktree import staging as tree_edit
from ctxagent.agent.worktree import watch as watching
from ctxagent.agent.worktree.object_store import RunningGit, _end

from ..support.command import alive, gone
from .test_snapshots import changed, contents, git, repository, tree_of
from .test_watch import looks_made, watched

Act = Callable[[Path], object]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with nested folders, a tracked ignored file, a folder with only ignored files,
    and another repository inside.
    """
    made = repository(tmp_path / "p")
    for name in ("src/deep/er.py", "src.d/x.py", "run.sh", "forced.log", "notes/n.log"):
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text("1\n2\n3\n")
    git(made, "add", "-f", "src", "src.d", "run.sh", "forced.log")
    git(made, "commit", "-qm", "More")
    repository(made / "inner")
    return made


def edit_by_rename(project: Path) -> None:
    (project / "sed1").write_text("one\n2\n")
    (project / "sed1").rename(project / "a.txt")


def exchange_for_link(project: Path) -> None:
    (project / "a.txt").unlink()
    (project / "a.txt").symlink_to("src/b.py")


FEW: dict[str, Act] = {
    "a file is written": lambda p: (p / "src/deep/er.py").write_text("1\n3\n4\n"),
    "a file is written by another name": edit_by_rename,
    "files are written": lambda p: [(p / n).write_text(n) for n in ("a.txt", "src/b.py", "run.sh")],
    "a file is made": lambda p: (p / "src" / "new ü\n.py").write_text("x"),
    "an ignored file is made": lambda p: (p / "src" / "x.log").write_text("x"),
    "an ignored file that is tracked is written": lambda p: (p / "forced.log").write_text("x"),
    "a file beside ignored ones is made": lambda p: (p / "notes" / "new.md").write_text("x"),
    "a file of another repository is written": lambda p: (p / "inner" / "a.txt").write_text("x"),
    "a file goes": lambda p: (p / "a.txt").unlink(),
    "the last file of a folder goes": lambda p: (p / "src.d" / "x.py").unlink(),
    "a file moves": lambda p: (p / "a.txt").rename(p / "src" / "a.txt"),
    "a file can be run": lambda p: (p / "run.sh").chmod(0o755),
    "a file becomes a link": exchange_for_link,
    "a link is made": lambda p: (p / "link").symlink_to("nowhere"),
    "a file is only touched": lambda p: os.utime(p / "a.txt", (1, 1)),
    "a file comes and goes": lambda p: ((p / "n").write_text("x"), (p / "n").unlink()),
    "bytes that are no text": lambda p: (p / "a.txt").write_bytes(bytes(range(256)) * 40),
    "the first file is empty": lambda p: (p / "0").write_text(""),
}
ALL: dict[str, Act] = {
    "a folder is made": lambda p: (p / "src" / "lib").mkdir(),
    "a folder moves": lambda p: (p / "src").rename(p / "lib"),
    "a folder goes": lambda p: shutil.rmtree(p / "src"),
    "a file becomes a folder": lambda p: ((p / "a.txt").unlink(), (p / "a.txt").mkdir()),
    "a file gets another name": lambda p: os.link(p / "a.txt", p / "b.txt"),
    "a pipe is made": lambda p: os.mkfifo(p / "pipe"),
    "other files are ignored": lambda p: (p / ".gitignore").write_text("*.py\n"),
    "the project's index changes": lambda p: ((p / "n").write_text("x"), git(p, "add", "n")),
}


def trees_of_now(tree: WorkTree, project: Path) -> tuple[object, object]:
    """Return the tree found by a scan of the changed files, and the tree found by a full scan with
    a new store.
    """
    found, real = tree.observe(full=False), tree_of(project, state="fresh").observe()
    shutil.rmtree(project.parent / "fresh")
    return (found.tree, found.stats), (real.tree, real.stats)


@pytest.mark.parametrize("name", FEW)
def test_a_scan_of_few_files_finds_the_same_as_a_full_scan(project: Path, name: str) -> None:
    tree = watched(project)
    before = tree.observe(full=False)
    FEW[name](project)
    assert looks_made(tree) == ["few"]
    found, real = trees_of_now(tree, project)
    assert found == real
    after = tree.observe(full=False)
    told = tree.changes(before, after)
    assert told == tree_of(project).changes(before, after)
    assert bool(told) == (found != (before.tree, before.stats))


@pytest.mark.parametrize("name", ALL)
def test_changes_of_folders_need_a_full_scan(project: Path, name: str) -> None:
    tree = watched(project)
    ALL[name](project)
    assert looks_made(tree)[-1] == "all"
    found, real = trees_of_now(tree, project)
    assert found == real


@pytest.mark.parametrize(
    ("module", "limit", "most"),
    [
        (watching, "MAX_NAMED", 2),
        (staging, "MAX_CONTENT_BYTES", 5),
        (tree_edit, "MAX_CONTENT_BYTES", 2),
    ],
)
def test_many_changes_need_a_full_scan(
    project: Path, monkeypatch: pytest.MonkeyPatch, module: object, limit: str, most: int
) -> None:
    tree = watched(project)
    monkeypatch.setattr(module, limit, most)
    for name in ("one", "two", "three"):
        (project / name).write_text("123")
    assert looks_made(tree)[-1] == "all"


@pytest.mark.variants
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_one_scan_after_another(project: Path, seed: int) -> None:
    """A full scan runs in between only if it is needed."""
    tree, random_ = watched(project), random.Random(seed)
    whole = tree_of(project, state="whole")
    whole.observe()
    for name in random_.choices(sorted({**FEW, **ALL}), k=60):
        before = tree.observe(full=False)
        try:
            {**FEW, **ALL}[name](project)
        except OSError:  # what it needs has been taken away
            continue
        after, real = tree.observe(full=False), whole.observe()
        assert (after.tree, after.stats) == (real.tree, real.stats), name
        assert tree.changes(before, after) == tree_of(project).changes(before, after), name
    last = tree.observe(full=False)
    assert (last.tree, last.stats) == (tree.observe().tree, tree.observe().stats)


@pytest.mark.slow
def test_what_was_found_by_a_few_files_comes_back(project: Path) -> None:
    tree = watched(project)
    (project / "a.txt").write_text("first\n")
    (project / "src" / "new.py").write_text("new\n")
    assert looks_made(tree) == ["few"]
    kept, files = tree.snapshot("s/1"), contents(project)
    (project / "a.txt").write_text("second\n")
    (project / "src" / "new.py").unlink()
    (project / "src" / "b.py").chmod(0o755)
    assert looks_made(tree) == ["few"]
    assert kept.tree
    tree.restore(kept.tree)
    assert contents(project) == files


def test_a_file_that_is_again_as_the_index_has_it(project: Path) -> None:
    """Meanwhile a scan of a few files has made a tree with other content."""
    tree = watched(project)
    first = tree.observe()
    (project / "a.txt").write_text("other\n")
    assert looks_made(tree) == ["few"]
    (project / "a.txt").write_text("one\ntwo\n")
    assert tree.observe() == first
    assert changed(tree, first) == {}


def test_a_tree_that_is_found_again_after_its_objects_were_cleared_is_whole(project: Path) -> None:
    tree = watched(project)
    (project / "a.txt").write_text("other\n")
    found = tree.observe(full=False).tree
    (project / "a.txt").write_text("more\n")
    assert looks_made(tree) == ["few"]
    assert found
    assert tree._staging
    tree._staging.store.place(found).unlink()
    (project / "a.txt").write_text("other\n")
    assert looks_made(tree) == ["few"]
    assert tree.is_whole(found)


def gits_that_run(project: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):  # dead, though nobody has collected it
            if process.cwd() == str(project):
                found.append(process)
    return found


@pytest.mark.slow
def test_one_git_compares_and_is_started_again_when_it_is_gone(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree, pids = watched(project), []
    before = tree.observe(full=False)
    for number, text in enumerate(("1\n", "1\n2\n", "1\n2\n3\n", "4\n", "5\n")):
        if number == 2:
            (running,) = gits_that_run(project)
            os.kill(running.pid, signal.SIGKILL)
        if number == 3:
            monkeypatch.setattr(object_store, "MAX_ASKED", 1)
        (project / "src" / "b.py").write_text(text)
        after = tree.observe(full=False)
        told = tree.changes(before, after)
        assert [(c.action, c.added, c.removed) for c in told] == [("modified", text.count("\n"), 1)]
        pids += [running.pid for running in gits_that_run(project)]
    assert pids[0] == pids[1]
    assert len(set(pids)) == 3, "one was killed, and another asked often enough"
    del tree
    gc.collect()
    assert gone(*pids), "it ends with the tree"


def test_a_running_git_is_killed_without_waiting(tmp_path: Path) -> None:
    """Even if another process still has its output open, e.g. a fork of this one."""
    git = RunningGit(["sh", "-c", "sleep 300 & echo $!; wait"], str(tmp_path), os.environ)
    assert git._process.stdout is not None
    sleeper, pid = int(git._process.stdout.readline()), git._process.pid
    _end(git._process, owner=os.getppid())
    assert alive(pid), "a forked child leaves it alone"
    del git
    gc.collect()
    assert gone(pid)
    assert alive(sleeper)
    os.kill(sleeper, signal.SIGKILL)


def test_the_trees_in_use_are_recorded_whatever_becomes_of_the_record(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = watched(project)
    record = project.parent / "state" / "worktree.git" / "live" / "s"
    monkeypatch.setattr(garbage, "MAX_RECORD_BYTES", 41 * 6)
    found = []
    for number in range(20):
        (project / "a.txt").write_text(f"{number}\n")
        if number == 9:
            record.unlink()
        found.append(tree.observe(full=False).tree)
        recorded = record.read_text().split()
        assert recorded[-1] == found[-1]
        assert set(found[-3:]) <= set(recorded)
        assert len(recorded) <= 6
    assert tree._staging
    garbage.sweep(tree._staging.store, young=-60)
    assert all(tree.is_whole(each) for each in found[-4:] if each)
    assert not tree.is_whole(found[0] or "")


def unkept(tree: WorkTree, project: Path) -> list[str]:
    named = [str(project / name) for name in ("a.txt", "forced.log", "new", "new.log", "src/x")]
    return sorted(tree.unkept_files(tree.observe(named, full=False)).paths)


def test_what_is_not_kept_is_known_without_git(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = watched(project)
    (project / "src" / "x").write_text("x")
    before = unkept(tree, project)
    assert before == [str(project / "new.log")]
    (project / "a.txt").write_text("other\n")
    monkeypatch.setattr(object_store, "_run", None)
    assert unkept(tree, project) == before


@pytest.mark.parametrize("path", [".gitignore", "src/.gitignore"])
def test_what_an_ignore_file_names_later_is_not_kept(project: Path, path: str) -> None:
    tree = watched(project)
    before = unkept(tree, project)
    (project / path).write_text("new\nx\n")
    after = unkept(tree, project)
    assert after != before
    assert after == unkept(tree_of(project, state="fresh"), project)
