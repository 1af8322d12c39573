"""The touch record: information that sessions share about their calls."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ctxagent.agent.worktree import DELETED, UNKNOWN, Touches, TouchRecord, TreeChange, content_of
from ctxagent.agent.worktree import touch_record as module

KILLED = """\
import os, sys, time
from pathlib import Path
from ctxagent.agent.worktree import TouchRecord
TouchRecord(Path(sys.argv[1]), "killed").begin([sys.argv[2]])
os._exit(9)
"""


def both(folder: Path) -> tuple[TouchRecord, TouchRecord]:
    return TouchRecord(folder / "touched", "a"), TouchRecord(folder / "touched", "b")


def test_a_call_is_seen_from_its_begin_to_its_end(tmp_path: Path) -> None:
    a, b = both(tmp_path)
    before = time.time_ns()
    id = b.begin(["/x"])
    assert b.others(before) == Touches()
    running = a.others(before)
    assert running.writes("/x")
    assert running.paths == {"/x"}
    assert not running.claims("/x", UNKNOWN)
    b.record_changes(id, {"/y": "1" * 40}, ended=False)
    assert a.others(before).paths == {"/x", "/y"}
    b.record_changes(id, {"/z": DELETED}, ended=True)
    after = time.time_ns() + 1
    found = a.others(before)
    assert found.paths == {"/y", "/z"}
    assert found.writes("/x")
    assert found.claims("/y", "1" * 40)
    assert found.claims("/y", UNKNOWN)
    assert not found.claims("/y", "2" * 40)
    assert found.claims("/z", DELETED)
    assert a.others(after) == Touches()
    assert a.others(0, before - 1) == Touches()
    for each in (a, b):
        each.close()


def test_the_time_of_a_change_tells_whether_a_call_may_have_made_it(tmp_path: Path) -> None:
    a, b = both(tmp_path)
    (tmp_path / "early").write_text("x")
    while time.time_ns() - (tmp_path / "early").stat().st_ctime_ns < 3 * module.CLOCK_TICK_NS:
        pass
    before = time.time_ns()
    b.begin()
    (tmp_path / "late").write_text("x")
    found = a.others(before)
    assert not found.may_have_changed(str(tmp_path / "early"))
    assert found.may_have_changed(str(tmp_path / "late"))
    assert found.may_have_changed(str(tmp_path / "deleted"))
    assert not Touches().may_have_changed(str(tmp_path / "deleted"))
    b.close()


def test_a_killed_session_runs_no_more(tmp_path: Path) -> None:
    folder, before = tmp_path / "touched", time.time_ns()
    subprocess.run([sys.executable, "-c", KILLED, str(folder), "/x"], check=False)
    a = TouchRecord(folder, "a")
    assert a.others(before).paths == {"/x"}
    assert a.others(time.time_ns() + 10 * module.CLOCK_TICK_NS) == Touches()


def test_calls_of_a_session_that_was_copied_count_as_own(tmp_path: Path) -> None:
    a, b = both(tmp_path)
    b.record_changes(b.begin(), {"/x": UNKNOWN}, ended=True)
    moment = time.time_ns() + 1
    assert a.others(0).without({"b"}, moment) == Touches()
    assert a.others(0).without({"b"}, 0).paths == {"/x"}
    assert a.others(0).without({"c"}, moment).paths == {"/x"}
    b.close()


def test_damage_stops_nothing(tmp_path: Path) -> None:
    a, b = both(tmp_path)
    b.record_changes(b.begin(), {"/x": UNKNOWN}, ended=True)
    with (a.folder / "b.jsonl").open("ab") as file:
        file.write(
            b'\xff\n[]\n{"at": "x", "call": "y"}\n{"at": 1, "call": "z", "writes": 5}\nnull\n{'
        )
    (a.folder / "other").mkdir()
    (a.folder / "pipe.jsonl").symlink_to("/dev/zero")
    assert a.others(0).paths == {"/x"}
    b.close()


def test_without_a_folder_no_session_is_seen(tmp_path: Path) -> None:
    (tmp_path / "touched").write_text("in the way")
    a, b = both(tmp_path)
    b.record_changes(b.begin(["/x"]), {}, ended=True)
    assert a.others(0) == Touches()


def test_old_records_are_deleted(tmp_path: Path) -> None:
    a, b = both(tmp_path)
    b.begin()
    b.close()
    os.utime(a.folder / "b.jsonl", (1, 1))
    a.begin()
    assert [path.name for path in a.folder.iterdir()] == ["a.jsonl"]
    assert (a.folder / "a.jsonl").stat().st_mode & 0o777 == 0o600
    a.close()


@pytest.mark.parametrize(
    ("change", "content"),
    [
        (TreeChange("/x", "modified", blob="1" * 40), "1" * 40),
        (TreeChange("/x", "created"), UNKNOWN),
        (TreeChange("/x", "deleted"), DELETED),
    ],
)
def test_the_content_of_a_change(change: TreeChange, content: str) -> None:
    assert content_of(change) == content
