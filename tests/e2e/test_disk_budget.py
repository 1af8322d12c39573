"""The limits of the state directory, and the commands that show and free its space."""

import json
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.session.lock import acquire_lock

from ..support.command import Place
from .test_delete_session import CHANGE, asked, disk_bytes, started, work

pytestmark = pytest.mark.slow
MB = 1_000_000
WRITE = CHANGE.format(name="data.bin")  # 3 MB


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    (place.project / ".gitignore").write_text("*.bin\n")
    (place.project / "data.bin").write_bytes(os.urandom(3 * MB))
    return place


def limit(gigabytes: float) -> tuple[str, str]:
    return "-c", f"state.max_gb={gigabytes}"


def make_old(place: Place, id: str, days: int) -> None:
    """Make a session look unused for some days, and the newest measurement too."""
    (log,) = (log for log in place.logs() if log.parent.name == id)
    then = time.time() - days * 86_400
    os.utime(log, (then, then))
    forget_measurement(place)


def forget_measurement(place: Place) -> None:
    (place.state / "usage.json").unlink(missing_ok=True)


def usage(place: Place, *options: str) -> dict[str, Any]:
    done = place.run(*options, "sessions", "usage", "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def sessions(place: Place) -> set[str]:
    return {log.parent.name for log in place.logs()}


def test_a_large_ignored_file_that_changes_in_each_turn_stays_below_the_limit(place: Place) -> None:
    for turn in range(7):
        work(place, WRITE, more=(*limit(0.01), *(["--continue"] if turn else [])))
    stored = json.loads((place.state / "usage.json").read_text())["bytes"]
    assert 6 * MB < stored < 10 * MB  # counted by each process, and measured only once
    (row,) = usage(place)["projects"][0]["sessions"]
    assert 3 * MB <= row["files"] < 7 * MB
    assert disk_bytes(place) < 10 * MB
    place.run("sessions", "delete", "--yes", row["id"])
    assert disk_bytes(place) < MB / 2


def test_a_file_without_room_is_not_saved(place: Place) -> None:
    started(place, "begin")  # the total is measured now
    work(place, WRITE, more=limit(0.002))
    texts = [log.read_text() for log in place.logs()]
    assert any("the state directory has reached its limit, state.max_gb" in text for text in texts)
    assert disk_bytes(place) < 2 * MB


def test_the_oldest_unused_sessions_are_removed_with_a_notice(place: Place) -> None:
    ids = [work(place, WRITE) for _ in range(3)]
    for id, days in zip(ids, (50, 40, 20), strict=True):
        make_old(place, id, days)
    script = place.root / "steps.json"
    script.write_text(json.dumps({"steps": [{"text": "Done."}]}))
    done = place.run("-p", "go", "--model", f"scripted:{script}", *limit(0.008))
    assert "removed 1 session that no one used for 30 days (3." in done.stderr
    assert {*ids} & sessions(place) == {*ids[1:]}
    done = place.run("-p", "go", "--model", f"scripted:{script}", *limit(0.001))
    assert "removed" not in done.stderr  # it was measured less than an hour ago
    forget_measurement(place)
    done = place.run("-p", "go", "--model", f"scripted:{script}", *limit(0.001))
    assert "removed 1 session" in done.stderr
    assert "the state directory has 3." in done.stderr
    assert "`ctxagent sessions prune` shows what can be removed" in done.stderr
    assert {*ids} & sessions(place) == {ids[2]}


def test_prune_asks_before_it_removes_a_recent_session(place: Place) -> None:
    old, recent = started(place, "say old"), work(place, WRITE)
    newest = started(place, "say newest")
    make_old(place, old, 40)
    make_old(place, recent, 3)
    options = limit(0.001)
    done = place.run(*options, "sessions", "prune", "--dry-run")
    assert done.returncode == 0
    assert f"{old}  changed 40 d ago" in done.stderr
    assert f"{recent}  changed 3 d ago" in done.stderr
    assert newest not in done.stderr
    assert "2 sessions with 3." in done.stdout
    assert sessions(place) == {old, recent, newest}
    done = place.run(*options, "sessions", "prune")
    assert done.stdout.startswith(f"deleted: {old}\n")
    assert "1 session used in the last 30 days kept; --yes deletes them too" in done.stderr
    assert sessions(place) == {recent, newest}
    code, shown = asked(place, "n", *options, "sessions", "prune")
    assert code == 0
    assert "Also delete 1 session used in the last 30 days for good? [y/N]" in shown
    assert sessions(place) == {recent, newest}
    assert asked(place, "y", *options, "sessions", "prune")[0] == 0
    assert sessions(place) == {newest}


def test_prune_removes_sessions_by_age_and_no_open_one(place: Place) -> None:
    ids = [started(place, f"say {number}") for number in range(3)]
    for id in ids[:2]:
        make_old(place, id, 100)
    (log,) = (log for log in place.logs() if log.parent.name == ids[0])
    lock = acquire_lock(log, [])
    try:
        done = place.run("-c", "state.max_age_days=90", "sessions", "prune")
    finally:
        os.close(lock)
    assert done.returncode == 0, done.stderr
    assert sessions(place) == {ids[0], ids[2]}
    assert place.run("-c", "state.max_age_days=off", "sessions", "prune").returncode == 0
    assert sessions(place) == {ids[0], ids[2]}


def test_usage_shows_the_parts_of_each_session(place: Place) -> None:
    change = CHANGE.format(name="data.csv")
    id = work(place, f"{WRITE} && {change}", "seq 200000")
    work(place, f"{WRITE} && {change}", more=("--continue",))
    found = usage(place, *limit(1))
    (project,) = found["projects"]
    (row,) = project["sessions"]
    assert (row["id"], found["limit_bytes"]) == (id, 1_000_000_000)
    assert row["files"] > 5 * MB
    assert row["snapshots"] > 2.5 * MB
    assert row["results"] > MB
    assert 0 < row["logs"] < MB
    assert row["bytes"] == sum(row[name] for name in ("logs", "results", "files", "snapshots"))
    assert row["bytes"] <= project["bytes"] <= found["bytes"]
    assert abs(found["bytes"] - disk_bytes(place)) < MB
    shown = place.run("sessions", "usage").stdout
    assert f"  {id}  work" in shown
    assert re.search(r"^ +(\d+\.\d MB +)(\d+ kB +)(\d+\.\d MB +){3}2\d{7}-", shown, re.MULTILINE)
    assert f"{place.project}: " in shown
    assert "of 5.0 GB (state.max_gb)" in shown


def test_the_doctor_warns_near_the_limit(place: Place) -> None:
    work(place, WRITE)
    rows = json.loads(place.run(*limit(0.0035), "doctor", "--json").stdout)["findings"]
    (found,) = (row for row in rows if row["what"] == "disk")
    assert found["note"]
    assert "`ctxagent sessions prune` removes old sessions" in found["found"]
    rows = json.loads(place.run(*limit(0.03), "doctor", "--json").stdout)["findings"]
    (found,) = (row for row in rows if row["what"] == "disk")
    assert not found["note"]
