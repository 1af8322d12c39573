"""The listing of files by git and by a walk, and their limits."""

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from ctxagent.tools.system.project_files import ignored_paths, in_order, list_files, printable


def write(root: Path, *names: str, content: str = "x\n") -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)


def git(root: Path, *words: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *identity, *words], cwd=root, check=True, capture_output=True)


def listed(root: Path, limit: int = 1000) -> list[str]:
    return in_order(asyncio.run(list_files(root, limit)).paths)


@pytest.fixture(params=["git", "walk"])
def root(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """An empty directory, with or without a repository."""
    if request.param == "git":
        git(tmp_path, "init", "-q")
    return tmp_path


def test_files_come_in_the_order_of_a_tree(root: Path) -> None:
    write(root, "b.txt", "a/z.txt", "a.txt", "a-b.txt", ".env")
    assert listed(root) == [".env", "a/z.txt", "a-b.txt", "a.txt", "b.txt"]


def test_ignore_files_of_every_kind_and_place(root: Path) -> None:
    write(root, "a.log", "keep.log", "deep/b.log", "deep/keep.log", "deep/c.tmp", "out/x", "top")
    write(root, "deep/out", "deep/top", "deep/rg.txt", "plain.txt")
    write(root, ".gitignore", content="*.log\n!keep.log\nout/\n/top\n")
    write(root, "deep/.gitignore", content="*.tmp\n")
    write(root, ".ignore", content="plain.*\n!\n")  # the second line means nothing
    write(root, "deep/.rgignore", content="rg.txt\n")
    rules = [".gitignore", ".ignore", "deep/.gitignore", "deep/.rgignore"]
    kept = ["deep/keep.log", "deep/out", "deep/top", "keep.log"]
    assert listed(root) == sorted([*rules, *kept])


def test_left_out_names_whole_directories(root: Path) -> None:
    write(root, "node_modules/a/b.js", "node_modules/c.js", "x.log", "src/y.log", "src/z.py")
    write(root, ".gitignore", content="node_modules/\n*.log\n")
    assert asyncio.run(ignored_paths(root)) == ["node_modules/", "src/y.log", "x.log"]


def test_an_ignored_directory_can_be_listed_itself(root: Path) -> None:
    write(root, "node_modules/a/b.js", "node_modules/a/debug.log")
    write(root, "node_modules/.gitignore", content="*.log\n")
    write(root, ".gitignore", content="node_modules/\n")
    assert listed(root / "node_modules") == [".gitignore", "a/b.js"]


def test_rules_above_the_directory_count(root: Path) -> None:
    write(root, "src/a.py", "src/a.pyc", "src/b.txt")
    write(root, ".gitignore", content="*.pyc\n")
    write(root, ".ignore", content="src/*.txt\n")
    assert listed(root / "src") == ["a.py"]


def test_links_are_listed_and_not_followed(root: Path) -> None:
    write(root, "src/a.py")
    (root / "src/loop").symlink_to("..")
    (root / "dangling").symlink_to("nowhere")
    assert listed(root) == ["dangling", "src/a.py", "src/loop"]


def test_the_limit_is_kept_and_told(root: Path) -> None:
    write(root, *(f"{n}.txt" for n in range(7)))
    assert asyncio.run(list_files(root, 5)).complete is False
    assert len(listed(root, 5)) == 5
    assert asyncio.run(list_files(root, 7)).complete is True


def test_names_that_are_no_utf8(root: Path) -> None:
    Path(os.fsdecode(os.fsencode(root) + b"/caf\xe9.txt")).write_text("x")
    assert [printable(path) for path in listed(root)] == ["caf\ufffd.txt"]


def test_a_directory_that_is_not_there_is_empty(tmp_path: Path) -> None:
    write(tmp_path, "file")
    assert listed(tmp_path / "nowhere") == []
    assert listed(tmp_path / "file") == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every directory")
def test_unreadable_directories_are_counted(root: Path) -> None:
    write(root, "a.txt", "closed/b.txt")
    (root / "closed").chmod(0)
    found = asyncio.run(list_files(root))
    (root / "closed").chmod(0o700)
    assert (found.paths, found.unreadable) == (["a.txt"], 1)


def test_tracked_and_untracked_files_once_each(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "main")
    write(tmp_path, "both.txt", "forced.log")
    write(tmp_path, ".gitignore", content="*.log\n")
    git(tmp_path, "add", "-f", ".")
    git(tmp_path, "commit", "-qm", "base")
    git(tmp_path, "checkout", "-qb", "side")
    write(tmp_path, "both.txt", content="side\n")
    git(tmp_path, "commit", "-qam", "side")
    git(tmp_path, "checkout", "-q", "main")
    write(tmp_path, "both.txt", content="main\n")
    git(tmp_path, "commit", "-qam", "main")
    with pytest.raises(subprocess.CalledProcessError):
        git(tmp_path, "merge", "side")  # a conflict: both.txt is in the index three times
    write(tmp_path, "new.txt")
    assert listed(tmp_path) == [".gitignore", "both.txt", "forced.log", "new.txt"]


def test_nested_repositories_are_entered(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    for name in ("module", "stray"):
        write(tmp_path, f"{name}/kept.txt", f"{name}/junk.log")
        write(tmp_path, f"{name}/.gitignore", content="*.log\n")
        git(tmp_path / name, "init", "-q")
        git(tmp_path / name, "add", ".")
        git(tmp_path / name, "commit", "-qm", "one")
    git(tmp_path, "add", "module")  # in the index as a link to a commit
    write(tmp_path, "broken/.git/HEAD", "broken/a.txt")
    assert listed(tmp_path) == [
        "broken/a.txt",
        "module/.gitignore",
        "module/kept.txt",
        "stray/.gitignore",
        "stray/kept.txt",
    ]


def test_a_repository_cannot_run_its_commands(tmp_path: Path) -> None:
    root, mark = tmp_path / "project", tmp_path / "ran"
    write(root, "a.txt")
    script = tmp_path / "script"
    script.write_text(f"#!/bin/sh\ntouch '{mark}'\n")
    script.chmod(0o755)
    git(root, "init", "-q")
    git(root, "config", "core.fsmonitor", str(script))
    git(root, "status")
    assert mark.exists()  # the trap works
    mark.unlink()
    assert listed(root) == ["a.txt"]
    asyncio.run(ignored_paths(root))
    assert not mark.exists()


def test_variables_of_git_do_not_lead_elsewhere(tmp_path: Path) -> None:
    for name in ("here", "there"):
        write(tmp_path, f"{name}/{name}.txt")
        git(tmp_path / name, "init", "-q")
    there = str(tmp_path / "there")
    env = {**os.environ, "GIT_DIR": f"{there}/.git", "GIT_WORK_TREE": there}
    assert asyncio.run(list_files(tmp_path / "here", env=env)).paths == ["here.txt"]
