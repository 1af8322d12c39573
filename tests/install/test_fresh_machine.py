"""`make fresh`: the places, what it prints, and what it says where no machine can be made."""

import os
import re
from pathlib import Path

import pytest

from ctxagent.tests.install import fresh_machine
from ctxagent.tests.install.debian_root import CheckFailed
from ctxagent.tests.install.fresh_machine import (
    FOLDERS,
    HOMES,
    LONG_PATH_CHARS,
    PACKAGES,
    PLACES,
    Outcome,
    Place,
    line,
    main,
    places,
    try_all,
)

LOG = """\
..F.                                                  [100%]
1 failed, 2 passed in 0.1s of another pytest
1 failed in 0.10s
=== 3 failed, 14101 passed, 12 skipped in 812.40s (0:13:32) ===
make: *** [Makefile:15: test] Error 1
"""


def test_all_users_folders_and_kinds_are_tried() -> None:
    assert {place.user for place in PLACES} == set(HOMES)
    assert {place.folder for place in PLACES} == set(FOLDERS)
    assert {place.kind for place in PLACES} == set(PACKAGES)


def test_paths_of_the_clones() -> None:
    assert Place("root", "home", "minimal").path == "/root/ctxagent"
    assert Place("user", "home", "full").path == "/home/user/ctxagent"
    assert Place("user", "tmp", "minimal").path == "/tmp/ctxagent"
    path = Place("user", "long", "minimal").path
    assert len(path) == LONG_PATH_CHARS
    assert os.path.normpath(path) == path
    assert max(map(len, path.split("/"))) < 40


def test_places_are_chosen_by_name() -> None:
    assert places([], "") == list(PLACES)
    assert {place.kind for place in places([], "full")} == {"full"}
    assert places(["user-home", "root-long"], "") == [
        Place("user", "home", "full"),
        Place("root", "long", "minimal"),
    ]
    for name in ("user", "user-nowhere", "nobody-home", "home-user"):
        with pytest.raises(CheckFailed, match=f"^no place {name}; use root or user, then -home"):
            places([name], "")


def test_a_line_has_the_result_of_a_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fresh_machine, "ROOT", tmp_path)
    demo, tests = tmp_path / "demo.log", tmp_path / "test.log"
    demo.write_text("no tests\n")
    tests.write_text(LOG)
    passed = Outcome("demo", 0, demo, wall_s=30, cpu_s=12)
    result = "3 failed, 14101 passed, 12 skipped  10.5 min  CPU 20.2 min"
    outcomes = [passed, Outcome("test", 0, tests, wall_s=600, cpu_s=1200)]
    assert line(PLACES[0], outcomes) == f"root-home  minimal  passed  {result}"
    outcomes = [passed, Outcome("test", 2, tests, wall_s=600, cpu_s=1200)]
    result += "  make test: exit code 2, test.log"
    assert line(PLACES[0], outcomes) == f"root-home  minimal  FAILED  {result}"


def test_logs_of_failures_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = []

    def run(command: str, place: Place, archive: Path, root: Path, tests: str) -> Outcome:
        assert (place.kind, tests) == (archive.stem, "-x")
        log = tmp_path / f"{place.name}-{command}.log"
        log.write_text("")
        return Outcome(command, int(log.stem == "user-tmp-test"), log, 1, 1)

    monkeypatch.setattr(fresh_machine, "ROOT", tmp_path)
    monkeypatch.setattr(fresh_machine, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(fresh_machine, "make_archive", lambda _, file, __: made.append(file.stem))
    monkeypatch.setattr(fresh_machine, "run", run)
    assert not try_all(PLACES, "-x")
    assert made == ["minimal", "full"]
    assert [path.name for path in tmp_path.glob("*.log")] == ["user-tmp-test.log"]
    lines = [each for each in capsys.readouterr().out.splitlines() if "CPU" in each]
    assert [each.split()[2] for each in lines] == ["passed", "FAILED", "passed", "passed"]
    assert try_all(PLACES[:1], "-x")


@pytest.mark.parametrize(
    ("user", "missing", "wrong"),
    [
        (1000, "", "run the command with sudo"),
        (0, "mmdebstrap", r"\(apt-get install mmdebstrap\)"),
        (0, "unshare", r"\(apt-get install util-linux\)"),
        (0, "namespaces", "allows no mount and process namespaces.*Operation not permitted"),
    ],
)
def test_it_fails_and_says_why_where_no_root_can_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    user: int, missing: str, wrong: str,
) -> None:  # fmt: skip
    for name in {"mmdebstrap", "unshare", "setpriv"} - {missing}:
        (tmp_path / name).write_text("#!/bin/sh\necho Operation not permitted >&2; exit 1\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(fresh_machine, "try_all", lambda *_: pytest.fail("it began"))
    assert main([]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert re.search(rf"^FAILED: .*{wrong}", said.err)
