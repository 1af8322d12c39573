"""Snapshots of the work tree: scans, changes between them, and restoring, with real git."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ctxagent.agent.errors import RecordError
from ctxagent.agent.worktree import TreeState, WorkTree, diff, staging

ENV = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}


def git(folder: Path, *words: str) -> str:
    """Run a git command in `folder`, with an author name for commits."""
    named = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b"]
    env = {**ENV, "GIT_CONFIG_NOSYSTEM": "1"}
    return subprocess.run(
        [*named, *words], env=env, check=True, capture_output=True, text=True
    ).stdout


def repository(folder: Path) -> Path:
    """A repository with one commit: `a.txt`, `src/b.py` and an ignore file."""
    (folder / "src").mkdir(parents=True)
    (folder / "a.txt").write_text("one\ntwo\n")
    (folder / "src" / "b.py").write_text("print(1)\n")
    (folder / ".gitignore").write_text("*.log\n.env\nbuild/\n")
    git(folder, "init", "-qb", "main")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "First")
    return folder


def tree_of(folder: Path, session: str = "s", state: str = "state") -> WorkTree:
    state_folder = folder.parent / state
    return WorkTree(
        folder,
        store=state_folder / "worktree.git",
        index=state_folder / "sessions" / session / "worktree.index",
        env=ENV,
    )


def changed(tree: WorkTree, before: TreeState, *named: Path) -> dict[str, tuple[str, int, int]]:
    """Return the changes since a scan, by path below the root."""
    found = tree.changes(before, tree.observe([str(path) for path in named]))
    return {os.path.relpath(c.path, tree.root): (c.action, c.added, c.removed) for c in found}


def contents(folder: Path) -> dict[str, object]:
    """Return every file below a folder except git's: its bytes or link target, and whether it is
    executable.
    """
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        elif path.is_file() and ".git/" not in f"{name}/":
            found[name] = (path.read_bytes(), bool(path.stat().st_mode & 0o100))
    return found


def own(folder: Path) -> dict[str, bytes]:
    """Return git's own files in a repository."""
    return {str(path): path.read_bytes() for path in (folder / ".git").rglob("*") if path.is_file()}


@pytest.mark.slow
def test_a_scan_changes_nothing_in_the_project(tmp_path: Path) -> None:
    project = repository(tmp_path / "p")
    (project / "staged").write_text("s")
    git(project, "add", "staged")
    (project / "loose").write_text("l")
    git_before, before = own(project), contents(project)
    tree = tree_of(project)
    assert not (tmp_path / "state").exists()
    look = tree.observe()
    (project / "a.txt").write_text("changed")
    again = tree.observe()
    assert look.tree
    assert again.tree
    assert tree.changes(look, again)
    tree.snapshot("s/1")
    tree.restore(look.tree)
    assert (own(project), contents(project)) == (git_before, before)
    assert tree.limits == ""
    assert (tmp_path / "state" / "worktree.git").stat().st_mode & 0o777 == 0o700


@pytest.mark.slow
def test_each_kind_of_change(tmp_path: Path) -> None:
    project = repository(tmp_path / "p")
    (project / "run.sh").write_text("ls\n")
    (project / "image").write_bytes(b"\0\1\2")
    (project / "same").write_text("same\n")
    (project / "to-link").write_text("x\n")
    tree = tree_of(project)
    before = tree.observe()
    (project / "a.txt").write_text("one\nTWO\nthree\n")
    (project / "src" / "b.py").rename(project / "src" / "c.py")
    (project / "run.sh").chmod(0o755)
    (project / "image").write_bytes(b"\0\1\3")
    os.utime(project / "same", (1, 1))
    (project / "to-link").unlink()
    (project / "to-link").symlink_to("a.txt")
    (project / "new").mkdir()
    (project / "new" / "d.txt").write_text("1\n2\n")
    (project / "noise.log").write_text("ignored")
    assert changed(tree, before) == {
        "a.txt": ("modified", 2, 1),
        "src/b.py": ("deleted", 0, 1),
        "src/c.py": ("created", 1, 0),
        "run.sh": ("modified", 0, 0),
        "image": ("modified", 0, 0),
        "to-link": ("modified", 1, 1),
        "new/d.txt": ("created", 2, 0),
    }


def test_the_digest_of_a_change_is_that_of_the_file(tmp_path: Path) -> None:
    project = repository(tmp_path / "p")
    tree = tree_of(project)
    before = tree.observe([str(project / ".env")])
    (project / "a.txt").write_text("new\n")
    (project / ".env").write_text("KEY=1\n")
    (project / "src" / "b.py").unlink()
    found = tree.changes(before, tree.observe([str(project / ".env")]))
    assert {c.path: c.blob for c in found} == {
        str(project / name): diff.blob_digest(str(project / name))
        for name in ("a.txt", ".env", "src/b.py")
    }
    assert [c.blob for c in found if c.action == "deleted"] == [""]


@pytest.mark.slow
def test_two_scans_of_the_same_files_give_the_same_tree(tmp_path: Path) -> None:
    project = repository(tmp_path / "p")
    one = tree_of(project)
    first = one.observe()
    (project / "a.txt").write_text("two\n")
    assert one.observe().tree != first.tree
    (project / "a.txt").write_text("one\ntwo\n")
    assert one.observe() == first
    assert tree_of(project, "other").observe() == first
    assert tree_of(project, "third", "elsewhere").observe() == first


def test_a_change_that_keeps_size_and_time_is_seen(tmp_path: Path) -> None:
    project = repository(tmp_path / "p")
    tree = tree_of(project)
    before = tree.observe()
    time = (project / "a.txt").stat().st_mtime_ns
    (project / "a.txt").write_text("one\ntwi\n")
    os.utime(project / "a.txt", ns=(time, time))
    assert changed(tree, before) == {"a.txt": ("modified", 1, 1)}


@pytest.mark.slow
def test_names_that_are_hard_to_write(tmp_path: Path) -> None:
    project = repository(tmp_path / "p")
    names = [
        "ü and 漢字",
        "two\nlines",
        'quo"te',
        "tab\there",
        ":colon",
        "-n",
        "*",
        "b\\s",
        " ",
        "git~1",
    ]
    for name in names:
        (project / name).write_text("x\n")
    (project / os.fsdecode(b"latin-\xe9")).write_text("x\n")
    tree = tree_of(project)
    before = tree.observe()
    assert tree.limits == ""
    for name in names:
        (project / name).write_text("y\n")
    (project / os.fsdecode(b"latin-\xe9")).unlink()
    wanted: dict[str, tuple[str, int, int]] = dict.fromkeys(names, ("modified", 1, 1))
    wanted[os.fsdecode(b"latin-\xe9")] = ("deleted", 0, 1)
    assert changed(tree, before) == wanted
    assert before.tree
    tree.restore(before.tree)
    assert (project / "two\nlines").read_text() == "x\n"
    assert (project / os.fsdecode(b"latin-\xe9")).read_text() == "x\n"


@pytest.mark.slow
@pytest.mark.parametrize("state", ["none", "empty", "worktree"])
def test_folders_that_are_no_usual_repository(tmp_path: Path, state: str) -> None:
    """No repository, a repository without a commit, and a linked work tree."""
    project = tmp_path / "p"
    if state == "worktree":
        git(repository(tmp_path / "main"), "worktree", "add", "-qb", "side", str(project))
    else:
        project.mkdir()
        (project / "a.txt").write_text("one\ntwo\n")
    if state == "empty":
        git(project, "init", "-qb", "main")
    tree = tree_of(project)
    before = tree.snapshot()
    assert before.head.split(" ")[0] == {"none": "", "empty": "main", "worktree": "side"}[state]
    (project / "a.txt").write_text("one\n")
    (project / "b.txt").write_text("b\n")
    assert changed(tree, before) == {"a.txt": ("modified", 0, 1), "b.txt": ("created", 1, 0)}
    assert before.tree
    tree.restore(before.tree)
    assert (project / "a.txt").read_text() == "one\ntwo\n"
    assert not (project / "b.txt").exists()
    assert tree.limits == ""


@pytest.mark.slow
def test_the_head_is_branch_and_commit(tmp_path: Path) -> None:
    project = repository(tmp_path / "p")
    tree = tree_of(project)
    commit = git(project, "rev-parse", "HEAD").strip()
    assert tree.observe().head == f"main {commit}"
    git(project, "checkout", "-qb", "feature/x")
    git(project, "pack-refs", "--all")
    assert tree.observe().head == f"feature/x {commit}"
    git(project, "checkout", "-q", "--detach")
    assert tree.observe().head == f"HEAD {commit}"


def test_the_whole_repository_is_looked_at_from_a_folder_in_it(tmp_path: Path) -> None:
    project = repository(tmp_path / "p")
    tree = WorkTree(
        project / "src", store=tmp_path / "s" / "git", index=tmp_path / "s" / "index", env=ENV
    )
    before = tree.observe()
    (project / "a.txt").write_text("one\n")
    assert changed(tree, before) == {"a.txt": ("modified", 0, 1)}


@pytest.mark.slow
def test_nothing_that_a_project_configures_is_run_or_believed(tmp_path: Path) -> None:
    project, trap = repository(tmp_path / "p"), tmp_path / "ran"
    run = f"sh -c 'touch {trap}; cat'"
    (project / ".gitattributes").write_text("*.txt filter=evil diff=evil\n")
    for key in ("filter.evil.clean", "filter.evil.smudge", "core.fsmonitor", "diff.evil.textconv"):
        git(project, "config", key, run)
    git(project, "config", "filter.evil.required", "true")
    git(project, "config", "core.worktree", str(tmp_path))
    hook = project / ".git" / "hooks" / "post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {trap}\n")
    hook.chmod(0o755)
    tree = tree_of(project)
    before = tree.observe()
    assert tree.root == str(project)
    (project / "a.txt").write_text("changed\n")
    after = tree.observe()
    assert before.tree
    assert after.tree
    assert "+changed" in tree.diff(before.tree, after.tree)
    tree.restore(before.tree)
    assert (project / "a.txt").read_text() == "one\ntwo\n"
    assert not trap.exists()


@pytest.mark.slow
def test_bytes_come_back_as_they_were_whatever_attributes_say(tmp_path: Path) -> None:
    project = repository(tmp_path / "p")
    git(project, "config", "core.autocrlf", "true")
    (project / ".gitattributes").write_text(
        "* text eol=crlf\n*.id ident\n*.16 working-tree-encoding=UTF-16\n*.lock -diff\n"
    )
    files = {
        "crlf.txt": b"a\r\nb\r\n",
        "lf.txt": b"a\nb\n",
        "mixed.txt": b"a\r\nb\n\xff\xfe",
        "x.id": b"$Id$ $Id: deadbeef $\n",
        "x.16": "häh\n".encode("utf-16"),
        "not.16": b"plain \xe9\n",
        "x.lock": b"1\n2\n",
        "binary": bytes(range(256)),
        "empty": b"",
    }
    for name, data in files.items():
        (project / name).write_bytes(data)
    tree = tree_of(project)
    before = tree.observe()
    for name in files:
        (project / name).write_bytes(b"1\n")
    found = changed(tree, before)
    assert found["x.lock"] == ("modified", 0, 1)
    assert found.keys() == files.keys()
    assert before.tree
    tree.restore(before.tree)
    assert {name: (project / name).read_bytes() for name in files} == files


@pytest.mark.slow
def test_modes_links_and_empty_folders_come_back(tmp_path: Path) -> None:
    project = repository(tmp_path / "p")
    (project / "run.sh").write_text("ls\n")
    (project / "run.sh").chmod(0o755)
    (project / "secret.txt").write_text("s\n")
    (project / "secret.txt").chmod(0o600)
    (project / "link").symlink_to("a.txt")
    (project / "dangling").symlink_to("nowhere")
    tree = tree_of(project)
    before, was = tree.snapshot(), contents(project)
    (project / "run.sh").chmod(0o644)
    (project / "secret.txt").write_text("t\n")
    (project / "link").unlink()
    (project / "link").write_text("a file now")
    (project / "dangling").unlink()
    (project / "deep" / "er").mkdir(parents=True)
    (project / "deep" / "er" / "x").write_text("x")
    (project / "src" / "b.py").unlink()
    (project / "src").rmdir()
    assert before.tree
    found = tree.restore(before.tree)
    assert contents(project) == was
    assert not (project / "deep").exists()
    assert (project / "secret.txt").stat().st_mode & 0o777 == 0o600
    assert {(os.path.relpath(c.path, project), c.action) for c in found} == {
        ("run.sh", "modified"),
        ("secret.txt", "modified"),
        ("link", "modified"),
        ("dangling", "created"),
        ("deep/er/x", "deleted"),
        ("src/b.py", "created"),
    }


@pytest.mark.slow
def test_a_restore_can_be_undone(tmp_path: Path) -> None:
    project = repository(tmp_path / "p")
    tree = tree_of(project)
    before = tree.snapshot()
    (project / "a.txt").write_text("work of an hour\n")
    (project / "new.txt").write_text("new\n")
    was = contents(project)
    assert before.tree
    tree.restore(before.tree)
    assert contents(project) != was
    tree.restore(tree.present)
    assert contents(project) == was


@pytest.mark.slow
def test_ignored_large_and_strange_files_stay(tmp_path: Path) -> None:
    project = repository(tmp_path / "p")
    tree = tree_of(project)
    before = tree.snapshot()
    (project / "noise.log").write_text("ignored")
    (project / "build").mkdir()
    (project / "build" / "out").write_text("ignored")
    (project / "later.ignored").write_text("kept at first")
    tree.observe()
    with (project / ".gitignore").open("a") as file:
        file.write("*.ignored\n")
    (project / "large").write_bytes(b"\0" * (diff.MAX_CONTENT_BYTES + 1))
    os.mkfifo(project / "fifo")
    inner = repository(project / "inner")
    git(project, "init", "-q", "unborn")
    (project / "unborn" / "x").write_text("x")
    (project / "gone.txt").write_text("x")
    assert before.tree
    tree.restore(before.tree)
    left = {path.name for path in project.iterdir()}
    assert left == {
        ".git", ".gitignore", "a.txt", "src", "noise.log", "build", "later.ignored", "large",
        "fifo", "inner", "unborn",
    }  # fmt: skip
    assert (inner / "a.txt").exists()
    assert (project / "unborn" / "x").exists()
    assert (project / ".gitignore").read_text() == "*.log\n.env\nbuild/\n"


@pytest.mark.slow
def test_a_large_file_is_noticed_but_not_kept(tmp_path: Path) -> None:
    project = repository(tmp_path / "p")
    large = project / "large"
    large.write_bytes(b"\0" * (diff.MAX_CONTENT_BYTES + 1))
    tree = tree_of(project)
    before = tree.observe()
    assert sum(f.stat().st_size for f in (tmp_path / "state").rglob("*") if f.is_file()) < 50_000
    with large.open("ab") as file:
        file.write(b"x")
    (project / "a.txt").write_bytes(b"\1" * (diff.MAX_CONTENT_BYTES + 1))
    assert changed(tree, before) == {"large": ("modified", 0, 0), "a.txt": ("modified", 0, 2)}
    second = tree.observe()
    large.write_text("small now\n")
    assert changed(tree, second) == {"large": ("modified", 1, 0)}
    third = tree.observe()
    large.unlink()
    (project / "a.txt").unlink()
    assert changed(tree, third) == {"large": ("deleted", 0, 1), "a.txt": ("deleted", 0, 0)}


@pytest.mark.slow
def test_what_is_kept_nowhere_else_is_kept_before_it_is_overwritten(tmp_path: Path) -> None:
    """A file that was kept, is now large or ignored, and would be lost by a restore."""
    project = repository(tmp_path / "p")
    tree = tree_of(project)
    before = tree.observe()
    data = b"\1" * (diff.MAX_CONTENT_BYTES + 1)
    (project / "a.txt").write_bytes(data)
    assert before.tree
    tree.restore(before.tree)
    assert (project / "a.txt").read_text() == "one\ntwo\n"
    tree.restore(tree.present)
    assert (project / "a.txt").read_bytes() == data


@pytest.mark.slow
def test_a_link_never_leads_a_restore_out_of_the_project(tmp_path: Path) -> None:
    project, outside = repository(tmp_path / "p"), tmp_path / "outside"
    outside.mkdir()
    (outside / "b.py").write_text("not yours\n")
    (outside / "other").write_text("not yours\n")
    tree = tree_of(project)
    before = tree.observe()
    (project / "src" / "b.py").unlink()
    (project / "src").rmdir()
    (project / "src").symlink_to(outside)
    assert changed(tree, before) == {"src": ("created", 1, 0), "src/b.py": ("deleted", 0, 1)}
    linked = tree.observe()
    assert before.tree
    assert linked.tree
    tree.restore(before.tree)
    assert not (project / "src").is_symlink()
    assert (project / "src" / "b.py").read_text() == "print(1)\n"
    tree.restore(linked.tree)
    assert (project / "src").is_symlink()
    assert contents(outside) == {
        "b.py": (b"not yours\n", False),
        "other": (b"not yours\n", False),
    }


@pytest.mark.slow
def test_a_folder_that_is_moved_behind_a_link(tmp_path: Path) -> None:
    project = repository(tmp_path / "p")
    tree = tree_of(project)
    before = tree.snapshot()
    (project / "src").rename(project / "lib")
    (project / "src").symlink_to("lib")
    assert changed(tree, before) == {
        "src": ("created", 1, 0),
        "src/b.py": ("deleted", 0, 1),
        "lib/b.py": ("created", 1, 0),
    }
    assert before.tree
    tree.restore(before.tree)
    assert (project / "src" / "b.py").read_text() == "print(1)\n"
    assert not (project / "lib").exists()


@pytest.mark.slow
@pytest.mark.parametrize("blocker", ["link", "folder"])
def test_an_unkept_file_in_the_way_stops_a_restore_before_it_begins(
    tmp_path: Path, blocker: str
) -> None:
    project, outside = repository(tmp_path / "p"), tmp_path / "outside"
    outside.mkdir()
    (project / "noise").mkdir()
    (project / "noise" / "x").write_text("x\n")
    tree = tree_of(project)
    before = tree.observe()
    with (project / ".gitignore").open("a") as file:
        file.write("noise\na.txt/\n")
    (project / "noise" / "x").unlink()
    (project / "noise").rmdir()
    if blocker == "link":
        (project / "noise").symlink_to(outside)
    else:
        (project / "a.txt").unlink()
        (project / "a.txt").mkdir()
        (project / "a.txt" / "kept nowhere").write_text("x")
    was = contents(project)
    assert before.tree
    with pytest.raises(RecordError, match="is in the way"):
        tree.restore(before.tree)
    assert contents(project) == was
    assert list(outside.iterdir()) == []


@pytest.mark.slow
def test_files_that_the_project_tracks_though_ignored_are_kept(tmp_path: Path) -> None:
    project = repository(tmp_path / "p")
    (project / "kept.log").write_text("1\n")
    git(project, "add", "-f", "kept.log")
    tree = tree_of(project)
    before = tree.observe()
    (project / "kept.log").write_text("2\n")
    (project / "later.log").write_text("1\n")
    assert changed(tree, before) == {"kept.log": ("modified", 1, 1)}
    git(project, "add", "-f", "later.log")
    assert changed(tree, before) == {
        "kept.log": ("modified", 1, 1),
        "later.log": ("created", 1, 0),
    }


def test_every_kind_of_ignore_file_holds(tmp_path: Path) -> None:
    project = repository(tmp_path / "p")
    home = tmp_path / "home"
    (home / ".config" / "git").mkdir(parents=True)
    (home / ".config" / "git" / "ignore").write_text("*.mine\n")
    (project / ".git" / "info" / "exclude").write_text("*.local\n")
    (project / "src" / ".gitignore").write_text("*.deep\n!loud.log\n")
    state = project / "state dir #1"
    tree = WorkTree(
        project,
        store=state / "worktree.git",
        index=state / "sessions" / "s" / "worktree.index",
        env={**ENV, "HOME": str(home)},
    )
    before = tree.observe()
    for name in ("a.mine", "a.local", "src/a.deep", "src/a.log", "src/loud.log", "b.deep"):
        (project / name).write_text("x\n")
    assert changed(tree, before).keys() == {"src/loud.log", "b.deep"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["repository", "plain"])
def test_a_file_that_is_still_being_written_is_no_change(tmp_path: Path, kind: str) -> None:
    """A subagent may write a part file while a scan runs for another command. A part file that
    stays because its process was killed is a change.
    """
    folder = repository(tmp_path / "p") if kind == "repository" else tmp_path / "p"
    (folder / "src").mkdir(parents=True, exist_ok=True)
    tree = tree_of(folder)
    before = tree.observe()
    passing, left = (folder / "src" / f".ctxagent-{n * 8}" for n in ("ab", "cd"))
    passing.write_text("half")
    left.write_text("half")
    after = tree.observe()
    passing.rename(folder / "src" / "whole.py")
    names = [os.path.relpath(change.path, tree.root) for change in tree.changes(before, after)]
    assert names == [f"src/{left.name}"]


def test_paths_that_are_named_are_watched_wherever_they_are(tmp_path: Path) -> None:
    project, outside = repository(tmp_path / "p"), tmp_path / "outside"
    (outside / "deep").mkdir(parents=True)
    (outside / "deep" / "x").write_text("x\n")
    (project / ".env").write_text("A=1\n")
    (project / "touched.log").write_text("1\n")
    tree = tree_of(project)
    named = [project / ".env", outside, project / "a.txt", project / "touched.log", tmp_path / "z"]
    before = tree.observe([str(path) for path in named])
    (project / ".env").write_text("A=2\n")
    os.utime(project / "touched.log", (1, 1))
    (outside / "deep" / "x").unlink()
    (outside / "y").write_text("y\n")
    (project / "a.txt").write_text("one\n")
    (tmp_path / "z").write_text("z\n")
    assert changed(tree, before, *named) == {
        ".env": ("modified", 0, 0),
        "../outside/deep/x": ("deleted", 0, 0),
        "../outside/y": ("created", 0, 0),
        "a.txt": ("modified", 0, 1),
        "../z": ("created", 0, 0),
    }
    assert changed(tree, before).keys() == {"a.txt"}  # what only one look watched is not compared


def many(folder: Path, count: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        (folder / f"{number:05}").write_text("")


@pytest.mark.slow
def test_a_folder_with_too_much_in_it_is_only_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "MAX_FOLDER_FILES", 5_000)
    project = tmp_path / "p"
    many(project / "data", staging.MAX_FOLDER_FILES + 1)
    tree = tree_of(project)
    before = tree.observe()
    assert before.tree is None
    assert "too much" in tree.limits
    (project / "data" / "00007").write_text("x")
    (project / "data" / "00008").unlink()
    (project / "new").write_text("x")
    assert changed(tree, before) == {
        "data/00007": ("modified", 0, 0),
        "data/00008": ("deleted", 0, 0),
        "new": ("created", 0, 0),
    }
    with pytest.raises(RecordError):
        tree.restore("4b825dc642cb6eb9a060e54bf8d69288fbee4904")


@pytest.mark.slow
def test_too_much_that_comes_later_leaves_the_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "MAX_FOLDER_FILES", 5_000)
    project = tmp_path / "p"
    project.mkdir()
    (project / "a.txt").write_text("one\n")
    tree = tree_of(project)
    before = tree.observe()
    many(project / "data", staging.MAX_FOLDER_FILES + 1)
    (project / "a.txt").write_text("two\n")
    found = changed(tree, before)
    assert found["a.txt"] == ("modified", 1, 1)
    assert found["data/00000"] == ("created", 0, 0)
    assert "too much" in tree.limits


@pytest.mark.slow
def test_no_false_changes_beyond_the_watched_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "MAX_FOLDER_FILES", 5_000)
    project = tmp_path / "p"
    many(project / "data", staging.MAX_WATCHED_FILES + 10)
    tree = tree_of(project)
    before = tree.observe()
    assert before.cut
    (project / "data" / "00000").unlink()  # another comes into sight at the end
    assert changed(tree, before) == {"data/00000": ("deleted", 0, 0)}
    before = tree.observe()
    (project / "aaa").write_text("x")  # one at the end goes out of sight
    assert changed(tree, before) == {"aaa": ("created", 0, 0)}


@pytest.mark.parametrize("home", [True, False])
def test_a_home_folder_is_never_kept(tmp_path: Path, home: bool) -> None:
    """Nor a home folder with a repository for settings, which does not belong to a project below
    it.
    """
    folder = repository(tmp_path / "home")
    (folder / "project").mkdir()
    (folder / "project" / "x").write_text("x\n")
    tree = WorkTree(
        folder if home else folder / "project",
        store=tmp_path / "s" / "git",
        index=tmp_path / "s" / "index",
        env={**ENV, "HOME": str(folder)},
    )
    look = tree.observe()
    assert (look.tree is None) is home
    assert ("not a project" in tree.limits) is home
    assert tree.root == str(folder if home else folder / "project")


def test_without_git_files_are_watched(tmp_path: Path) -> None:
    project = tmp_path / "p"
    project.mkdir()
    (project / "a.txt").write_text("one\n")
    tree = WorkTree(
        project,
        store=tmp_path / "s" / "git",
        index=tmp_path / "s" / "index",
        env={"PATH": str(tmp_path / "empty"), "HOME": "/nonexistent"},
    )
    before = tree.observe()
    assert before.tree is None
    assert "git is not installed" in tree.limits
    (project / "a.txt").write_text("two\n")
    assert changed(tree, before) == {"a.txt": ("modified", 0, 0)}
    assert not tree.is_whole("4b825dc642cb6eb9a060e54bf8d69288fbee4904")


def broken_index(project: Path) -> None:
    (project.parent / "state" / "sessions" / "s" / "worktree.index").write_bytes(b"DIRC garbage")


def stale_lock(project: Path) -> None:
    (project.parent / "state" / "sessions" / "s" / "worktree.index.lock").write_bytes(b"")


def lost_objects(project: Path) -> None:
    for path in (project.parent / "state" / "worktree.git" / "objects").glob("??/*"):
        path.unlink()


@pytest.mark.slow
@pytest.mark.parametrize("harm", [broken_index, stale_lock, lost_objects])
def test_a_damaged_store_is_rebuilt(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    project = repository(tmp_path / "p")
    (project / "loose").write_text("kept by nobody else\n")
    first = tree_of(project).observe()
    harm(project)
    (project / "a.txt").write_text("one\n")
    tree = tree_of(project)
    before = tree.observe()
    assert tree.limits == ""
    assert before.tree
    (project / "a.txt").write_text("two\n")
    assert changed(tree, before) == {"a.txt": ("modified", 1, 1)}
    assert tree.is_whole(before.tree)
    assert first.tree != before.tree


def test_a_snapshot_whose_objects_are_gone_says_so_and_changes_nothing(tmp_path: Path) -> None:
    project = repository(tmp_path / "p")
    tree = tree_of(project)
    before = tree.observe()
    assert before.tree
    assert tree.is_whole(before.tree)
    (project / "a.txt").write_text("changed\n")
    blob = git(project, "rev-parse", "HEAD:a.txt").strip()
    (project / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    fresh = tree_of(project, "later")
    assert not fresh.is_whole(before.tree)
    with pytest.raises(RecordError, match="is incomplete"):
        fresh.restore(before.tree)
    assert (project / "a.txt").read_text() == "changed\n"
    assert not fresh.is_whole("0" * 40)
    assert not fresh.is_whole("no such tree")


@pytest.mark.slow
def test_clean_files_of_a_repository_are_not_kept_twice(tmp_path: Path) -> None:
    project = repository(tmp_path / "p")
    (project / "big").write_bytes(os.urandom(1 << 20))
    git(project, "add", ".")
    git(project, "commit", "-qm", "Big")
    tree_of(project).observe()
    assert sum(f.stat().st_size for f in (tmp_path / "state").rglob("*") if f.is_file()) < 50_000


@pytest.mark.slow
def test_part_files_of_killed_conversations_are_removed(tmp_path: Path) -> None:
    """A killed subagent never returns to its part file; the file of a running one stays. The next
    conversation removes the stale file at its start.
    """
    project = repository(tmp_path / "p")
    tree_of(project).observe()
    live = tmp_path / "state" / "worktree.git" / "live"
    with subprocess.Popen(["true"]) as ended:
        pass
    for name in (f"general-1.{ended.pid}.part", "general-2.part", f"general-3.{os.getpid()}.part"):
        (live / name).write_text("")
    tree_of(project, "next").observe()
    assert [path.name for path in live.glob("*.part")] == [f"general-3.{os.getpid()}.part"]


@pytest.mark.slow
def test_a_kept_tree_outlives_the_clearing_of_the_store(tmp_path: Path) -> None:
    project = repository(tmp_path / "p")
    tree = tree_of(project)
    (project / "a.txt").write_text("kept\n")
    kept = tree.snapshot("s/1").tree
    (project / "a.txt").write_text("not kept\n")
    lost = tree.observe().tree
    (project / "a.txt").write_text("last\n")
    tree.observe()
    assert kept
    assert lost
    store = tmp_path / "state" / "worktree.git"
    subprocess.run(
        ["git", "-c", "gc.pruneExpire=now", "gc", "-q", "--prune=now"],
        env={**ENV, "GIT_DIR": str(store)}, check=True,
    )  # fmt: skip
    fresh = tree_of(project, "later")
    assert fresh.is_whole(kept)
    assert not fresh.is_whole(lost)


@pytest.mark.slow
def test_a_long_diff_is_cut_and_says_so(tmp_path: Path) -> None:
    project = repository(tmp_path / "p")
    tree = tree_of(project)
    before = tree.observe()
    (project / "a.txt").write_text("ä\n" * 300_000)
    after = tree.observe()
    assert before.tree
    assert after.tree
    text = tree.diff(before.tree, after.tree)
    assert text.startswith("diff --git a/a.txt b/a.txt\n")
    assert len(text) < 410_000
    assert "was cut here" in text
    assert tree.diff(before.tree, before.tree) == ""
    with pytest.raises(RecordError):
        tree.diff(before.tree, "0" * 40)


@pytest.mark.slow
def test_environment_variables_do_not_redirect_git(tmp_path: Path) -> None:
    """Environment variables that point git to another repository."""
    project, other = repository(tmp_path / "p"), repository(tmp_path / "other")
    (project / "crlf.txt").write_bytes(b"a\r\n")
    git(other, "commit", "-qm", "Another", "--allow-empty")
    was = own(other)
    code = (
        "import os, sys\nfrom pathlib import Path\n"
        "from ctxagent.agent.worktree import WorkTree\n"
        "place = Path(sys.argv[1])\n"
        "tree = WorkTree(place, store=place.parent / 's' / 'git', index=place.parent / 's' / 'i',"
        " env=dict(os.environ))\n"
        "look = tree.observe()\nprint(look.tree, look.head, tree.root, tree.limits)\n"
    )
    strange = {
        "GIT_DIR": str(other / ".git"),
        "GIT_OBJECT_DIRECTORY": str(other / ".git" / "objects"),
        "GIT_INDEX_FILE": str(other / ".git" / "index"),
        "GIT_WORK_TREE": str(other),
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.autocrlf",
        "GIT_CONFIG_VALUE_0": "input",
    }
    said = subprocess.run(
        [sys.executable, "-c", code, str(project)],
        env={**ENV, **strange}, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    look = tree_of(project, state="unled").observe()
    assert said.split() == [look.tree, *look.head.split(), str(project)]
    assert own(other) == was


@pytest.mark.slow
@pytest.mark.parametrize("plain", [False, True], ids=["repository", "folder"])
def test_a_stopped_first_scan_continues_with_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plain: bool
) -> None:
    monkeypatch.setattr(staging, "BATCH_FILES", 3)
    monkeypatch.setattr(staging, "FIRST_STAGING_S", 0.0)
    project = tmp_path / "p" if plain else repository(tmp_path / "p")
    many(project / "data", 7)
    tree = tree_of(project)
    look = tree.observe()
    assert look.tree is None
    assert "files left" in tree.limits
    later = tree_of(project, "later")  # another session goes on where this one has stopped
    looks = [later.observe() for _ in range(4)]
    assert looks[-1].tree
    assert later.limits == ""
    (project / "data" / "00000").write_text("changed\n")
    assert changed(later, looks[-1]) == {"data/00000": ("modified", 1, 0)}
    later.restore(looks[-1].tree)
    assert (project / "data" / "00000").read_text() == ""


@pytest.mark.slow
def test_files_that_stay_keep_their_content_and_permissions(tmp_path: Path) -> None:
    project = repository(tmp_path / "p")
    tree = tree_of(project)
    then = tree.snapshot("s/1").tree
    assert then
    (project / "a.txt").write_text("stays\n")
    (project / "a.txt").chmod(0o600)
    (project / "src" / "b.py").write_text("goes back\n")
    (project / "new.txt").write_text("stays too\n")
    stay = [str(project / name) for name in ("a.txt", "new.txt")]
    assert [Path(c.path).name for c in tree.restore(then, stay)] == ["b.py"]
    assert (project / "a.txt").read_text() == "stays\n"
    assert (project / "a.txt").stat().st_mode & 0o777 == 0o600
    assert (project / "new.txt").exists()


def test_the_files_that_a_tree_holds(tmp_path: Path) -> None:
    project = repository(tmp_path / "p")
    (project / ".env").write_text("KEY=1\n")
    tree = tree_of(project)
    named = [str(project / name) for name in ("a.txt", ".env", "new.txt", "src")]
    look = tree.observe([*named, str(tmp_path / "out")])
    assert tree.unkept_files(look).paths == [str(project / ".env")]
    assert look.tree
    assert tree.files_in_tree(look.tree, named) == {str(project / "a.txt")}
    assert tree.files_in_tree("0" * 40, named) == set()
