"""Snapshots last: after garbage collection in the project's repository, clearing, a full disk or a
kill; and they restore permissions.
"""

import os
import resource
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from ctxagent.agent.errors import RecordError
from ctxagent.agent.worktree import WorkTree, garbage
from ctxagent.agent.worktree.object_store import ObjectStore

from .test_snapshots import ENV, changed, contents, git, repository, tree_of


def throw_away(project: Path) -> None:
    """Delete everything that no branch and no index of a repository needs."""
    git(project, "reflog", "expire", "--expire=now", "--all")
    git(project, "gc", "-q", "--prune=now")


def snapshot(tree: WorkTree, name: str = "s/1") -> str:
    found = tree.snapshot(name).tree
    assert found, tree.limits
    return found


def stored(root: Path) -> int:
    """Return the number of bytes in the store."""
    return sum(f.stat().st_size for f in (root / "state").rglob("*") if f.is_file())


def store_of(tree: WorkTree, root: Path) -> ObjectStore:
    return ObjectStore(root / "state" / "worktree.git", root / "state" / "x" / "i", tree.root, ENV)


def make_old(root: Path) -> None:
    """Date everything in the store back by an hour."""
    then = time.time() - 3_600
    for path in (root / "state" / "worktree.git" / "objects").rglob("*"):
        os.utime(path, (then, then))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@contextmanager
def full_disk(most: int) -> Iterator[None]:
    """Limit every file to `most` bytes, in this process and in processes started here."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.slow
def test_what_is_only_staged_is_not_borrowed(tmp_path: Path) -> None:
    project = repository(tmp_path / "p")
    tree = tree_of(project)
    first = snapshot(tree, "s/1")
    (project / "a.txt").write_text("precious\n")
    (project / "src" / "new").mkdir()
    (project / "src" / "new" / "c.py").write_text("also precious\n")
    git(project, "add", ".")
    git(project, "write-tree")  # folders are borrowed too
    second = snapshot(tree, "s/2")
    git(project, "reset", "-q")
    throw_away(project)
    was = contents(project)
    tree.restore(first)
    assert (project / "a.txt").read_text() == "one\ntwo\n"
    assert tree.is_whole(second)
    tree.restore(second)
    assert contents(project) == was


@pytest.mark.slow
def test_a_commit_that_is_taken_back_takes_nothing_with_it(tmp_path: Path) -> None:
    """The newest snapshot and an older one need it until HEAD changes."""
    project = repository(tmp_path / "p")
    (project / "a.txt").write_text("of the second commit\n")
    (project / "src" / "b.py").write_text("of the second commit too\n")
    git(project, "commit", "-qam", "Second")
    tree = tree_of(project)
    first = snapshot(tree, "s/1")
    (project / "a.txt").write_text("by hand\n")
    git(project, "reset", "-q", "--soft", "HEAD~1")
    second = snapshot(tree, "s/2")
    git(project, "reset", "-q")
    throw_away(project)
    (project / "src" / "b.py").write_text("by hand\n")
    tree.restore(second)
    assert (project / "src" / "b.py").read_text() == "of the second commit too\n"
    tree.restore(first)
    assert (project / "a.txt").read_text() == "of the second commit\n"


@pytest.mark.slow
def test_lost_objects_of_the_newest_tree_are_staged_again(tmp_path: Path) -> None:
    """The files match the index, but its objects are in no repository any more."""
    project = repository(tmp_path / "p")
    tree = tree_of(project)
    first = snapshot(tree, "s/1")
    (project / "a.txt").write_text("precious\n")
    git(project, "commit", "-qam", "Second")
    tree.observe()
    git(project, "reset", "-q", "HEAD~1")
    throw_away(project)
    tree.restore(first)
    assert (project / "a.txt").read_text() == "one\ntwo\n"
    tree.restore(tree.present)
    assert (project / "a.txt").read_text() == "precious\n"


@pytest.mark.slow
def test_nothing_is_touched_where_the_files_cannot_be_kept(tmp_path: Path) -> None:
    """The object of a file is missing, and there is no space to store it again."""
    project = repository(tmp_path / "p")
    tree = tree_of(project)
    first = snapshot(tree, "s/1")
    (project / "big").write_bytes(os.urandom(1 << 20))
    git(project, "add", "big")
    git(project, "commit", "-qm", "Big")
    tree.observe()
    git(project, "reset", "-q", "HEAD~1")
    throw_away(project)
    was = contents(project)
    with full_disk(1 << 19), pytest.raises(RecordError, match="cannot be saved"):
        tree.restore(first)
    assert contents(project) == was
    tree.restore(first)  # with room for it
    tree.restore(tree.present)
    assert contents(project) == was


@pytest.mark.slow
def test_a_restore_that_is_cut_short_says_what_it_did(tmp_path: Path) -> None:
    project = repository(tmp_path / "p")
    (project / "big").write_bytes(os.urandom(1 << 20))
    tree = tree_of(project)
    first = snapshot(tree, "s/1")
    (project / "a.txt").write_text("changed\n")
    (project / "big").write_text("small\n")
    (project / "src" / "b.py").unlink()
    (project / "zzz").write_text("new\n")
    before = snapshot(tree, "s/2")
    was = contents(project)
    changes = tree.compare(before, first)
    with full_disk(1 << 19), pytest.raises(RecordError, match="not all files could be restored"):
        tree.restore(first)
    done = {
        os.path.relpath(c.path, project): c.action
        for c in tree.changes_done(changes, before, first)
    }
    now = contents(project)
    assert done.keys() == {name for name in was | now if was.get(name) != now.get(name)}
    assert done
    assert now["a.txt"] == (b"one\ntwo\n", False)  # git goes by name, and stopped at the large one
    tree.restore(before)
    assert contents(project) == was


@pytest.mark.slow
def test_a_file_that_was_only_touched_goes_back_too(tmp_path: Path) -> None:
    project = repository(tmp_path / "p")
    tree = tree_of(project)
    before = snapshot(tree, "s/1")
    (project / "a.txt").write_text("changed\n")
    tree.observe()
    os.utime(project / "a.txt", (1, 1))
    tree.restore(before)
    assert (project / "a.txt").read_text() == "one\ntwo\n"


KILLED = """\
import os, sys
from pathlib import Path
from tests.test_worktree import tree_of
tree = tree_of(Path(sys.argv[1]))
print("ready", flush=True)
tree.restore(sys.argv[2])
"""


@pytest.mark.variants
@pytest.mark.slow
@pytest.mark.parametrize("written", [1, 200])
def test_a_restore_that_is_killed_can_be_begun_again(tmp_path: Path, written: int) -> None:
    """Killed together with its git command, when a number of files are written."""
    project = repository(tmp_path / "p")
    for number in range(1_000):
        (project / f"f{number:04}").write_text(f"{number}\n" * 50)
    tree = tree_of(project)
    full = snapshot(tree, "s/1")
    was = contents(project)
    for path in project.glob("f*"):
        path.unlink()
    (project / "a.txt").write_text("changed\n")
    empty, gone = snapshot(tree, "s/2"), contents(project)
    code = ["-c", KILLED, str(project), full]
    folder = Path(__file__).parents[2]
    with subprocess.Popen([sys.executable, *code], cwd=folder, env=os.environ) as process:
        while process.poll() is None and len(list(project.glob("f*"))) < written:
            pass
        inside = [int(pid) for pid in children(process.pid)]
        process.kill()
        for pid in inside:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    fresh = tree_of(project)
    fresh.restore(full)
    assert contents(project) == was
    fresh.restore(empty)
    assert contents(project) == gone


def children(pid: int) -> list[str]:
    """Return the processes started by a process."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return []


@pytest.mark.slow
def test_every_permission_comes_back(tmp_path: Path) -> None:
    project = repository(tmp_path / "p")
    modes = {"key.pem": 0o600, "shared": 0o664, "own.sh": 0o700, "read-only": 0o444, "usual": 0o644}
    folders = {"private": 0o700, "private/inner": 0o750, "open": 0o777, "plain": 0o755}
    for name, wanted in folders.items():
        (project / name).mkdir()
        (project / name / "x").write_text("x\n")
        (project / name / "x").chmod(0o640)
        (project / name).chmod(wanted)
    for name, wanted in modes.items():
        (project / name).write_text("s\n")
        (project / name).chmod(wanted)
    modes |= folders | {f"{name}/x": 0o640 for name in folders}
    (project / "links").mkdir()
    (project / "links" / "only").symlink_to("../a.txt")
    modes["links"] = mode(project / "links")
    tree = tree_of(project)
    before = snapshot(tree)
    (project / "links" / "only").unlink()
    (project / "links").rmdir()
    for name in ("key.pem", "shared", "own.sh", "read-only", "usual", "private/inner/x"):
        (project / name).unlink()
    (project / "private" / "inner").rmdir()
    (project / "private" / "x").chmod(0o604)
    (project / "plain" / "x").write_text("another\n")
    (project / "open").chmod(0o700)
    after = snapshot(tree, "s/2")
    found = tree.restore(before)
    assert {name: oct(mode(project / name)) for name in modes} == {
        name: oct(wanted) for name, wanted in modes.items()
    }
    assert (f"{project}/private/x", "modified") in {(c.path, c.action) for c in found}
    assert tree.compare(before, snapshot(tree, "s/3")) == []
    tree.restore(after)
    assert mode(project / "private" / "x") == 0o604
    assert mode(project / "open") == 0o700


@pytest.mark.slow
def test_private_files_are_restored_as_private(tmp_path: Path) -> None:
    project = tmp_path / "p"
    (project / "a").mkdir(parents=True, mode=0o700)
    for name in ("x", "y", "a/z"):
        (project / name).write_text("x\n")
        (project / name).chmod(0o600)
    (project / "a").chmod(0o700)
    tree = tree_of(project)
    before = snapshot(tree)
    for name in ("x", "y", "a/z"):
        (project / name).unlink()
    (project / "a").rmdir()
    tree.restore(before)
    assert {mode(project / name) for name in ("x", "y", "a/z")} == {0o600}
    assert mode(project / "a") == 0o700


@pytest.mark.slow
def test_only_a_permission_that_changed_can_go_back(tmp_path: Path) -> None:
    project = repository(tmp_path / "p")
    (project / "a.txt").chmod(0o600)
    tree = tree_of(project)
    before = snapshot(tree)
    (project / "a.txt").chmod(0o644)
    changes = tree.restore(before)
    assert [(c.path, c.action) for c in changes] == [(f"{project}/a.txt", "modified")]
    assert mode(project / "a.txt") == 0o600


@pytest.mark.slow
def test_an_ignored_file_keeps_the_permissions_it_has(tmp_path: Path) -> None:
    project = repository(tmp_path / "p")
    tree = tree_of(project)
    before = snapshot(tree)
    (project / "later").mkdir(mode=0o700)
    (project / "later" / "key").write_text("k\n")
    (project / "later" / "key").chmod(0o600)
    tree.observe()
    (project / ".gitignore").write_text("later\n")
    tree.restore(before)
    assert mode(project / "later" / "key") == 0o600
    assert mode(project / "later") == 0o700


@pytest.mark.slow
def test_versions_outside_snapshots_are_deleted(tmp_path: Path) -> None:
    """A file changes all the time; only the versions in snapshots stay."""
    project = repository(tmp_path / "p")
    tree = tree_of(project)
    data = project / "data"
    kept = []
    for number in range(12):
        data.write_bytes(os.urandom(1 << 20))
        tree.observe()
        if number in (2, 7):
            kept.append(snapshot(tree, f"s/{number}"))
    assert stored(tmp_path) > 12 << 20
    make_old(tmp_path)
    garbage.sweep(store_of(tree, tmp_path))
    # Snapshots, the newest looks, and where later sessions start from.
    assert stored(tmp_path) < (2 + 4 + 1) * (1 << 20) + 100_000
    assert all(tree.is_whole(each) for each in kept)
    was = data.read_bytes()
    tree.restore(kept[0])
    tree.restore(tree.present)
    assert data.read_bytes() == was


@pytest.mark.slow
def test_a_session_clears_the_store_as_it_begins(tmp_path: Path) -> None:
    project = repository(tmp_path / "p")
    first = tree_of(project, "first")
    first.observe()
    assert first.sweeping is None
    for _ in range(6):
        (project / "data").write_bytes(os.urandom(1 << 20))
        first.observe()
    make_old(tmp_path)
    long_ago = time.time() - 8 * 86_400
    os.utime(tmp_path / "state" / "worktree.git" / "live" / "first", (long_ago, long_ago))
    os.utime(tmp_path / "state" / "worktree.git" / "swept", (long_ago, long_ago))
    second = tree_of(project, "second")
    before = second.observe()
    assert second.sweeping
    second.sweeping.join()
    assert stored(tmp_path) < (1 << 20) + 100_000
    (project / "a.txt").write_text("one\n")
    assert changed(second, before) == {"a.txt": ("modified", 0, 1)}
    assert tree_of(project, "third").sweeping is None
    # Who left comes back: what its list names is gone, and is taken in again.
    (project / "data").write_text("small\n")
    assert first.is_whole(snapshot(first, "first/1"))


@pytest.mark.full
@pytest.mark.slow
def test_much_that_is_taken_in_clears_the_store_meanwhile(tmp_path: Path) -> None:
    project = tmp_path / "p"
    project.mkdir()
    tree = tree_of(project)
    tree.observe()
    for _ in range(garbage.SWEEP_AFTER_BYTES // (9 << 20) + 1):
        with (project / "data").open("wb") as file:  # much of it, and quickly hashed
            file.truncate(9 << 20)
            file.write(os.urandom(8))
        tree.observe()
    assert tree.sweeping


@pytest.mark.slow
def test_what_another_session_needs_is_never_cleared(tmp_path: Path) -> None:
    project = repository(tmp_path / "p")
    one, two = tree_of(project, "one"), tree_of(project, "two")
    (project / "a.txt").write_text("of one alone\n")
    before = one.observe()
    kept = snapshot(two, "two/1")
    (project / "a.txt").write_text("of one and two\n")
    after = one.observe()
    make_old(tmp_path)
    (project / "a.txt").write_text("of two alone\n")
    two.observe()
    garbage.sweep(store_of(two, tmp_path), young=0)
    assert [c.action for c in one.changes(before, after)] == ["modified"]
    assert two.is_whole(kept)
    assert one.observe().tree == two.observe().tree
    one.restore(kept)
    assert (project / "a.txt").read_text() == "of one alone\n"


@pytest.mark.slow
def test_a_snapshot_that_lost_an_object_does_not_stop_the_clearing(tmp_path: Path) -> None:
    project = repository(tmp_path / "p")
    tree = tree_of(project)
    broken = snapshot(tree, "s/1")
    for path in (project / ".git" / "objects").glob("??/*"):
        path.unlink()
    assert not tree.is_whole(broken)
    for _ in range(6):
        (project / "data").write_bytes(os.urandom(1 << 20))
        tree.observe()
    assert tree.is_whole(snapshot(tree, "s/2"))
    make_old(tmp_path)
    size = stored(tmp_path)
    garbage.sweep(store_of(tree, tmp_path))
    assert stored(tmp_path) < size - (1 << 20)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["link", "deep"])
def test_a_folder_in_the_way_is_looked_through(tmp_path: Path, kind: str) -> None:
    """With an ignored link to a folder inside; and so deep that it cannot be read."""
    project = repository(tmp_path / "p")
    (project / "d").write_text("a file\n")
    (project / ".gitignore").write_text("ign\n")
    tree = tree_of(project)
    before = snapshot(tree)
    (project / "d").unlink()
    (project / "d").mkdir()
    (project / "d" / "x").write_text("x\n")
    if kind == "link":
        (project / "d" / "ign").symlink_to(tmp_path)
    else:
        folder = os.open(project / "d", os.O_RDONLY)
        for name in ["ign"] + ["n" * 250] * 20:
            os.mkdir(name, dir_fd=folder)
            inner = os.open(name, os.O_RDONLY, dir_fd=folder)
            os.close(folder)
            folder = inner
        os.close(folder)
    with pytest.raises(RecordError, match="in the way") as error:
        tree.restore(before)
    assert "Move it" in error.value.hint
    assert (project / "d" / "x").exists()
    assert ("cannot be read" in error.value.message) is (kind == "deep")


@pytest.mark.slow
@pytest.mark.parametrize("name", [".GIT/x", "sub/.Git/x", ".gitmodules"])
def test_names_that_git_refuses_are_said_not_to_be_kept(tmp_path: Path, name: str) -> None:
    project = repository(tmp_path / "p")
    tree = tree_of(project)
    before = tree.observe()
    assert tree.limits == ""
    (project / name).parent.mkdir(parents=True, exist_ok=True)
    if name == ".gitmodules":
        (project / name).symlink_to("a.txt")
    else:
        (project / name).write_text("x")
    assert changed(tree, before) == {name: ("created", 0, 0)}
    assert tree.limits == f"git refuses the name of {name}"
    assert before.tree
    tree.restore(before.tree)
    assert (project / name).is_file()
