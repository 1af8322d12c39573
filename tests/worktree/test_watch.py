"""The watch that saves scans of the work tree: it may skip a scan only if nothing has changed."""

import mmap
import os
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any

import pytest

from ctxagent.agent.worktree import WorkTree, watch
from ctxagent.agent.worktree.staging import StagingArea

from .test_snapshots import git, repository, tree_of

Act = Callable[[Path], object]
OVERFLOW = struct.pack("iIII", -1, 0x4000, 0, 0)


def watched(project: Path) -> WorkTree:
    """The files of a project, and an active watch on them."""
    tree = tree_of(project)
    for _ in range(2):
        tree.observe()
    if not is_saved(tree, project):
        pytest.skip("there is no inotify here, or not on this file system")
    return tree


def is_saved(tree: WorkTree, project: Path) -> bool:
    """Run the next scan and return True if it was skipped."""
    return not looks_made(tree)


def looks_made(tree: WorkTree) -> list[str]:
    """Run the next scan and return its steps: "few" files, "all" files, or [] if it was skipped."""
    made = []
    update, update_few = StagingArea.update, StagingArea.update_few

    def whole(self: StagingArea) -> object:
        made.append("all")
        return update(self)

    def few(self: StagingArea, *given: Any) -> bool:
        made.append("few")
        return update_few(self, *given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StagingArea, "update", whole)
        patch.setattr(StagingArea, "update_few", few)
        tree.observe(full=False)
    return made


def write_mapped(path: Path) -> None:
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        mapped[:3] = b"ONE"


def move(old: Path, new: Path) -> None:
    new.parent.mkdir(exist_ok=True)
    old.rename(new)


def include_build(project: Path) -> None:
    (project / ".gitignore").write_text("*.log\n")


# Each in a project with `a.txt`, `src/b.py`, an ignored `build/made.txt`, and `linked`, which has
# another name outside.
ACTS: dict[str, Act] = {
    "a file is written": lambda p: (p / "a.txt").write_text("other\n"),
    "a file is written, with size and time kept": lambda p: (
        (p / "a.txt").write_text("eno\nowt\n"),
        os.utime(p / "a.txt", ns=(1, 1)),
    ),
    "a file is made": lambda p: (p / "src" / "new.py").write_text("x"),
    "a file goes": lambda p: (p / "src" / "b.py").unlink(),
    "a file becomes a link": lambda p: (
        (p / "a.txt").unlink(),
        (p / "a.txt").symlink_to("src/b.py"),
    ),
    "a mode changes": lambda p: (p / "a.txt").chmod(0o755),
    "a file moves": lambda p: move(p / "a.txt", p / "src" / "a.txt"),
    "a folder moves": lambda p: move(p / "src", p / "lib"),
    "a folder is made of another": lambda p: shutil.copytree(p / "src", p / "deep" / "er"),
    "a folder goes": lambda p: shutil.rmtree(p / "src"),
    "a file is written through a mapping": lambda p: write_mapped(p / "a.txt"),
    "a file is written by its name outside": lambda p: (p.parent / "outside").write_text("more"),
    "a file gets a name from outside": lambda p: os.link(p.parent / "outside", p / "name"),
    "what was ignored counts": include_build,
    "the person ignores more": lambda p: (p / ".git/info/exclude").write_text("a.txt\n"),
    "what is ignored is added": lambda p: git(p, "add", "-f", "build/made.txt"),
    "another branch is taken": lambda p: git(p, "checkout", "-qf", "other"),
}
# What comes after: in places that were made, moved or left out before.
LATER: dict[str, Act] = {
    "a file in a new folder": lambda p: (p / "deep/er/more.py").write_text("x"),
    "a file in a moved folder": lambda p: (p / "lib/b.py").write_text("y"),
    "a file in what was ignored": lambda p: (p / "build/made.txt").write_text("z"),
    "a file by its new name outside": lambda p: (p.parent / "outside").write_text("even more"),
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    made = repository(tmp_path / "p")
    (tmp_path / "outside").write_text("some")
    os.link(tmp_path / "outside", made / "linked")
    git(made, "branch", "other")
    (made / "a.txt").write_text("one\ntwo\nthree\n")
    git(made, "commit", "-qam", "Second")
    (made / "build").mkdir()
    (made / "build" / "made.txt").write_text("made")
    return made


@pytest.mark.variants
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_a_skipped_scan_gives_the_same_result(project: Path, seed: int) -> None:
    tree, every = watched(project), {**ACTS, **LATER}
    for name in random.Random(seed).sample(sorted(every) * 2, len(every) * 2):
        try:
            every[name](project)
        except (OSError, ValueError, CalledProcessError):  # an act before it took away its ground
            continue
        found, real = tree.observe(full=False), tree.observe()
        assert (found.tree, found.stats, found.head) == (real.tree, real.stats, real.head), name


@pytest.mark.parametrize("name", ACTS)
def test_each_kind_of_change_causes_a_scan(project: Path, name: str) -> None:
    tree = watched(project)
    ACTS[name](project)
    assert not is_saved(tree, project)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "then"),
    [
        ("a folder is made of another", "a file in a new folder"),
        ("a folder moves", "a file in a moved folder"),
        ("what was ignored counts", "a file in what was ignored"),
        ("what is ignored is added", "a file in what was ignored"),
        ("a file gets a name from outside", "a file by its new name outside"),
    ],
)
def test_new_paths_are_watched_too(project: Path, first: str, then: str) -> None:
    tree = watched(project)
    ACTS[first](project)
    for _ in range(3):
        tree.observe(full=False)
    assert is_saved(tree, project)
    LATER[then](project)
    assert not is_saved(tree, project)


def test_ignored_changes_cause_no_scan(project: Path) -> None:
    tree = watched(project)
    (project / "build" / "made.txt").write_text("again")
    (project / "a.txt").read_text()
    (project / ".git" / "note").write_text("x")
    assert is_saved(tree, project)
    tree.snapshot()
    assert is_saved(tree, project), "a snapshot looks in any case, and what it finds counts"


def test_an_unknown_change_causes_a_scan(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = watched(project)
    assert tree._watch is not None
    tree._watch._take(OVERFLOW)  # the system forgot some of what happened
    assert not is_saved(tree, project)
    assert is_saved(tree, project)
    project.rename(project.with_name("old"))
    shutil.copytree(project.with_name("old"), project, symlinks=True)
    assert not is_saved(tree, project)
    assert is_saved(tree, project)
    monkeypatch.setattr(watch, "MAX_WATCHED", 3)
    (project / "one" / "two" / "three").mkdir(parents=True)
    for _ in range(3):
        assert not is_saved(tree, project), "there are more folders than it watches"


def test_a_snapshot_holds_what_the_watch_could_not_see(project: Path) -> None:
    tree = watched(project)
    assert tree._watch is not None
    before = tree.observe(full=False)
    (project / "a.txt").write_text("unseen\n")
    tree._watch._read_events()
    tree._watch._changed = set()
    assert tree.observe(full=False).tree == before.tree
    taken = tree.snapshot()
    assert [change.path for change in tree.changes(before, taken)] == [str(project / "a.txt")]
