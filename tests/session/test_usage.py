"""The bytes of the state directory, by project and session."""

import json
import os
import shutil
from pathlib import Path

import pytest

from ctxagent.agent.session.disk_budget import (
    BLOCK_BYTES,
    USAGE_NAME,
    add_to_total,
    measure_state,
    store_total,
    stored_total,
)
from ctxagent.agent.worktree import WorkTree

KB = 1_024


def write(path: Path, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(os.urandom(size))


def blocks(*sizes: int) -> int:
    return sum(-(-size // BLOCK_BYTES) * BLOCK_BYTES for size in sizes)


def test_each_part_of_a_session_is_counted_once(tmp_path: Path) -> None:
    project = tmp_path / "projects" / "p"
    one, store = project / "sessions" / "one", project / "worktree.git"
    sizes = {
        one / "log.jsonl": 5 * KB,
        one / "conversation.md": 1 * KB,
        one / "agents" / "a" / "log.jsonl": 9 * KB,
        one / "offloaded" / "1.txt": 20 * KB,
        one / "agents" / "a" / "offloaded" / "2.txt": 30 * KB,
        store / "saved" / "one" / "x": 40 * KB,
        store / "saved" / "one" / "versions" / "y": 50 * KB,
        store / "objects" / "ab" / "c": 60 * KB,
        project / "index.db": 70 * KB,
        project / "sessions" / "two" / "log.jsonl": 100,
        tmp_path / "keys.json": 10,
    }
    for path, size in sizes.items():
        write(path, size)
    (project / "sessions" / "no-session").mkdir()
    found = measure_state(tmp_path)
    (measured,) = found.projects
    session = measured.sessions["one"]
    assert list(measured.sessions) == ["one", "two"]
    assert session.id == "one"
    assert session.logs == blocks(5 * KB, KB, 9 * KB)
    assert session.offloaded == blocks(20 * KB, 30 * KB)
    assert session.saved == blocks(40 * KB, 50 * KB)
    assert session.total == session.logs + session.offloaded + session.saved
    assert (measured.store, measured.other) == (blocks(60 * KB), blocks(70 * KB))
    assert found.other == blocks(10)
    assert found.total == blocks(*sizes.values())


def test_files_with_several_names_count_once_and_those_of_the_repository_not(
    tmp_path: Path,
) -> None:
    store = tmp_path / "projects" / "p" / "worktree.git"
    for id in ("one", "two"):
        write(tmp_path / "projects" / "p" / "sessions" / id / "log.jsonl", 1)
    write(store / "saved" / "one" / "x", 40 * KB)
    (store / "saved" / "two").mkdir()
    (store / "saved" / "two" / "x").hardlink_to(store / "saved" / "one" / "x")
    pool = store / "repository" / "new" / "objects"
    write(tmp_path / "object", 90 * KB)
    pool.mkdir(parents=True)
    (pool / "pack").hardlink_to(tmp_path / "object")
    write(pool / "left", 8 * KB)
    (measured,) = measure_state(tmp_path).projects
    assert sum(session.saved for session in measured.sessions.values()) == blocks(40 * KB)
    assert measured.store == blocks(8 * KB)


@pytest.mark.slow
def test_objects_that_two_sessions_need_belong_to_none(tmp_path: Path) -> None:
    project, work = tmp_path / "state" / "projects" / "p", tmp_path / "work"
    write(work / "both.bin", 200 * KB)
    for id in ("one", "two"):
        write(project / "sessions" / id / "log.jsonl", 1)
        write(work / "own.bin", 100 * KB)
        index = project / "sessions" / id / "worktree.index"
        tree = WorkTree(work, store=project / "worktree.git", index=index, env=dict(os.environ))
        assert tree.snapshot(f"{id}/1").tree
    (measured,) = measure_state(tmp_path / "state", snapshots=True).projects
    for session in measured.sessions.values():
        assert 100 * KB <= session.snapshots < 110 * KB
    assert measured.store > 400 * KB
    shutil.rmtree(project / "worktree.git" / "refs")
    (measured,) = measure_state(tmp_path / "state", snapshots=True).projects
    assert [each.snapshots for each in measured.sessions.values()] == [0, 0]


def test_an_empty_state_directory(tmp_path: Path) -> None:
    assert measure_state(tmp_path / "none").total == 0


def test_the_total_is_stored_and_grows(tmp_path: Path) -> None:
    assert stored_total(tmp_path) == (0, 0.0)
    add_to_total(tmp_path, 5)
    assert stored_total(tmp_path) == (0, 0.0)  # nothing was measured yet
    store_total(tmp_path, 100, 7.0)
    add_to_total(tmp_path, 50)
    add_to_total(tmp_path, -30)
    assert stored_total(tmp_path) == (120, 7.0)
    add_to_total(tmp_path, -500)
    assert stored_total(tmp_path) == (0, 7.0)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"bytes": "x", "measured": 1}', "[" * 100_000])
def test_a_damaged_total_is_unknown(tmp_path: Path, text: str) -> None:
    (tmp_path / USAGE_NAME).write_text(text)
    assert stored_total(tmp_path) == (0, 0.0)
    store_total(tmp_path, 3, 4.0)
    assert json.loads((tmp_path / USAGE_NAME).read_text())["bytes"] == 3
