"""Deleted sessions leave nothing in the store, and all that other sessions need stays."""

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from ctxagent.agent.session.disk_budget import existing_sessions, reclaim_space
from ctxagent.agent.session.lock import acquire_lock
from ctxagent.agent.worktree import SAVED_FOLDER, SavedFiles, WorkTree

pytestmark = pytest.mark.slow


class Field:
    """A project with the store that its sessions share."""

    def __init__(self, root: Path) -> None:
        self.work, self.project = root / "work", root / "state" / "projects" / "p"
        self.store = self.project / "worktree.git"
        self.work.mkdir()
        (self.work / "a.txt").write_text("a\n")

    def log(self, id: str) -> Path:
        return self.project / "sessions" / id / "log.jsonl"

    def session(self, id: str, **names: str) -> WorkTree:
        """Create a session whose log names these objects."""
        self.log(id).parent.mkdir(parents=True)
        row = {"v": 1, "seq": 1, "at": "", "kind": "checkpoint", **names}
        self.log(id).write_text(json.dumps(row) + "\n")
        return self.tree(id)

    def tree(self, id: str) -> WorkTree:
        index, env = self.log(id).parent / "worktree.index", dict(os.environ)
        return WorkTree(self.work, store=self.store, index=index, env=env)

    def snapshot(self, tree: WorkTree, id: str, text: str) -> str:
        (self.work / "a.txt").write_text(text)
        taken = tree.snapshot(f"{id}/1").tree
        assert taken
        return taken

    def delete(self, *ids: str) -> None:
        for id in ids:
            shutil.rmtree(self.log(id).parent)
        self.reclaim()

    def reclaim(self) -> None:
        """Free space a second after the newest write."""
        for path in self.store.rglob("*"):
            if path.is_file():
                newest = path.stat().st_mtime - 1
                os.utime(path, (newest, newest))
        reclaim_space(self.project)

    def objects(self) -> list[Path]:
        return [*self.store.glob("objects/??/*")]


@pytest.fixture
def field(tmp_path: Path) -> Field:
    return Field(tmp_path)


def test_the_last_session_leaves_no_object(field: Field) -> None:
    field.snapshot(field.session("one"), "one", "x\n")
    SavedFiles(field.store / SAVED_FOLDER / "one").save([str(field.work / "a.txt")])
    (field.store / SAVED_FOLDER / ("0" * 40)).write_text("saved by an earlier version")
    (field.project / "touched").mkdir()
    assert field.objects()
    field.delete("one")
    assert field.objects() == []
    assert [*(field.store / SAVED_FOLDER).iterdir()] == []
    assert not (field.project / "touched").exists()
    field.snapshot(field.session("two"), "two", "y\n")


def test_snapshots_that_a_copy_needs_stay(field: Field) -> None:
    one = field.session("one")
    kept = field.snapshot(one, "one", "kept\n")
    gone = field.snapshot(one, "one", "gone\n")
    pool = field.store / SAVED_FOLDER
    pool.mkdir()
    (pool / ("1" * 40)).write_text("needed")
    copy = field.session("copy", snapshot=kept, blob="1" * 40)
    field.delete("one")
    assert copy.is_whole(kept)
    assert not copy.is_whole(gone)
    assert (pool / ("1" * 40)).exists()
    field.delete("copy")
    assert field.objects() == []
    assert [*pool.iterdir()] == []


def test_a_running_session_keeps_all_that_it_may_be_adding(field: Field) -> None:
    field.snapshot(field.session("one"), "one", "one\n")
    two = field.session("two")
    lock = acquire_lock(field.log("two"), [])
    try:
        (field.work / "a.txt").write_text("staged, and not in a snapshot yet\n")
        staged = two.observe().tree
        assert staged
        before = {*field.objects()}
        field.delete("one")
        assert before - {*field.objects()} == set()  # all are young
        assert two.is_whole(staged)
        assert field.snapshot(two, "two", "two\n")
        old = time.time() - 3_600
        for path in before:
            os.utime(path, (old, old))
        reclaim_space(field.project)
        assert before - {*field.objects()}
        assert two.is_whole(staged)
    finally:
        os.close(lock)


def test_a_session_of_another_project_may_use_the_store(field: Field) -> None:
    elsewhere = field.project.parent / "q" / "sessions" / "one" / "agents" / "a1"
    elsewhere.mkdir(parents=True)
    two = field.session("two")
    trees = [field.snapshot(two, id, f"{id}\n") for id in ("one", "a1", "lost")]
    reclaim_space(field.project)
    assert [two.is_whole(tree) for tree in trees[:2]] == [True, True]
    assert existing_sessions(field.project.parent) == {"one", "a1", "two"}
    kept = (field.store / "refs" / "kept").iterdir()
    assert {path.name for path in kept} == {"one", "a1"}


def test_an_incomplete_copy_of_a_killed_process_goes_after_a_while(field: Field) -> None:
    field.session("one")
    saved = field.store / SAVED_FOLDER / "one"
    saved.mkdir(parents=True)
    for name in ("old.part", "new.part"):
        (saved / name).write_text("half")
    os.utime(saved / "old.part", (0, 0))
    reclaim_space(field.project)
    assert [path.name for path in saved.iterdir()] == ["new.part"]


def test_records_of_the_repository_go_with_the_last_session(field: Field) -> None:
    records = field.store / "repository" / "new" / "records"
    records.mkdir(parents=True)
    for name in ("2" * 40, "3" * 40):
        (records / name).write_text("record")
    field.session("one", repository="2" * 40)
    field.reclaim()
    assert [path.name for path in records.iterdir()] == ["2" * 40]
    field.delete("one")
    assert not (field.store / "repository").exists()
