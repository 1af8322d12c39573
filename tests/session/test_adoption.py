"""Moving the sessions of one project to another: nothing is overwritten or lost."""

import json
import os
import zlib
from pathlib import Path

import pytest

from ctxagent.agent.errors import RecordError, SessionBusy
from ctxagent.agent.session.adoption import adopt_sessions
from ctxagent.agent.session.entries import Note, User
from ctxagent.agent.session.log import Log, read_log
from ctxagent.agent.session.store import Project


@pytest.fixture
def old(tmp_path: Path) -> Project:
    return Project(tmp_path / "state", tmp_path / "old")


@pytest.fixture
def new(tmp_path: Path) -> Project:
    (tmp_path / "new").mkdir()
    return Project(tmp_path / "state", tmp_path / "new")


def begin(project: Project) -> Path:
    """Create a session that is a day old."""
    log = Log(project.new_log())
    log.append(User(content="hello"))
    log.close()
    os.utime(log.path, (1_000_000, 1_000_000))
    return log.path


def adopt(old: Project, new: Project) -> tuple[list[str], list[str]]:
    return adopt_sessions(old.folder, str(old.cwd), new.cwd)


def write(project: Project, name: str, data: bytes) -> Path:
    path = project.folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, (2_000_000, 2_000_000))
    return path


def test_the_log_has_both_paths_and_keeps_its_time(old: Project, new: Project) -> None:
    id = begin(old).parent.name
    assert adopt(old, new) == ([id], [])
    (log,) = new.logs()
    assert log.stat().st_mtime == 1_000_000
    note = read_log(log).entries[-1]
    assert isinstance(note, Note)
    assert (note.topic, note.data) == ("renamed", {"from": str(old.cwd), "to": str(new.cwd)})
    assert not old.folder.exists()


def test_a_file_in_both_places_stays(old: Project, new: Project) -> None:
    moved, own = begin(old), begin(new)
    left = write(old, "memory/index.md", b"old")
    write(new, "memory/index.md", b"new")
    for project in (old, new):
        write(project, "memory/same.md", b"same")
        write(project, "index.db", b"cache")
    write(old, "memory/fact.md", b"fact")
    assert adopt(old, new) == ([moved.parent.name], [str(left)])
    assert {log.parent.name for log in new.logs()} == {moved.parent.name, own.parent.name}
    assert left.read_bytes() == b"old"
    assert (new.folder / "memory/index.md").read_bytes() == b"new"
    assert (new.folder / "memory/fact.md").read_bytes() == b"fact"
    assert old.logs() == []


def test_nothing_moves_if_a_session_is_open_or_has_a_namesake(old: Project, new: Project) -> None:
    moved, own = begin(old), begin(new)
    for open_one in (moved, own):
        log = Log.open(open_one)
        try:
            with pytest.raises(SessionBusy, match="Nothing was moved"):
                adopt(old, new)
        finally:
            log.close()
    same = new.folder / "sessions" / moved.parent.name
    same.mkdir()
    with pytest.raises(RecordError, match="both folders have a session"):
        adopt(old, new)
    assert old.logs() == [moved]
    assert [each.kind for each in read_log(moved).entries] == ["user"]


def test_a_damaged_log_moves_as_it_is(old: Project, new: Project) -> None:
    log = Log(old.new_log())
    log.keep_conversation(0)
    log.append(User(content="hello"))
    log.append(User(content="are you there?"))
    log.close()
    log.path.write_bytes(b"")  # the copy has more
    adopt(old, new)
    (moved,) = new.logs()
    assert moved.read_bytes() == b""


def test_absolute_paths_in_the_store_are_corrected(old: Project, new: Project) -> None:
    begin(old)
    before, after = str(old.cwd), str(new.cwd)
    row = {"call": "1", "at": 1, "writes": [f"{before}/a", f"{before}-other/b"]}
    write(old, "touched/s.jsonl", json.dumps(row).encode())
    record = {"root": before, "common": f"{before}/.git"}
    name = "worktree.git/repository/new"
    write(old, f"{name}/records/1", zlib.compress(json.dumps(record).encode()))
    write(old, f"{name}/records/2", b"damaged")
    write(old, f"{name}/common", f"{before}/.git".encode())
    pool = "worktree.git/repository/new/objects"
    lines = f"{before}/.git/objects\n{old.folder}/{pool}\n/elsewhere\n"
    write(old, "worktree.git/objects/info/alternates", lines.encode())
    adopt(old, new)
    touched = new.folder / "touched/s.jsonl"
    assert json.loads(touched.read_text())["writes"] == [f"{after}/a", f"{before}-other/b"]
    assert touched.stat().st_mtime == 2_000_000
    found = json.loads(zlib.decompress((new.folder / name / "records/1").read_bytes()))
    assert found == {"root": after, "common": f"{after}/.git"}
    assert (new.folder / name / "records/2").read_bytes() == b"damaged"
    assert (new.folder / name / "common").read_text() == f"{after}/.git"
    alternates = (new.folder / "worktree.git/objects/info/alternates").read_text()
    assert alternates == f"{after}/.git/objects\n{new.folder}/{pool}\n/elsewhere\n"
