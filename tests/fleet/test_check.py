"""The checks before a run: names of files in prompts, the cost, and the work for long manifests."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ctxagent.addons.fleet.check import StartCheck
from ctxagent.addons.fleet.findings import ManifestFinding, ManifestFindings
from ctxagent.addons.fleet.ledger import AttemptOutcome, FleetFolder, FleetLedger, read_records
from ctxagent.addons.fleet.manifest import Manifest
from ctxagent.addons.fleet.runner import FleetRun, LocalEngine, RunLimits

from ..support.fleet import git, repository

EDITS = ("permissions.mode=accept-edits",)


def checked(
    tmp_path: Path, tasks: list[dict[str, Any]], *flags: str
) -> tuple[Manifest, StartCheck, ManifestFindings]:
    """Check a manifest of tasks in one repository."""
    if not (tmp_path / "r").exists():
        repository(tmp_path / "r")
    path = tmp_path / "tasks.jsonl"
    given = [{"id": f"t{n}", "dir": "r", "prompt": "go", **task} for n, task in enumerate(tasks)]
    lines = [{k: v for k, v in task.items() if v is not None} for task in given]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    findings, folder = ManifestFindings(path), FleetFolder.of(path)
    environ = {"HOME": str(tmp_path), "ANTHROPIC_API_KEY": "k", "PATH": os.environ["PATH"]}
    records = read_records(folder) if folder.ledger.exists() else {}
    check = StartCheck(findings, tmp_path, environ, flags or EDITS, None, records)
    return Manifest(path, None, findings, check), check, findings


def found(tmp_path: Path, task: dict[str, Any], *flags: str) -> list[ManifestFinding]:
    manifest, check, findings = checked(tmp_path, [task], *flags)
    check.finish(manifest, ())
    return list(findings)


@pytest.mark.parametrize(
    ("prompt", "missing"),
    [
        ("See @read.me.", ""),
        ("See @read.me:3-4, and (@./read.me).", ""),
        ("Ask a@b.co and @gmail.com, use @app.route, @dataclass(frozen=True) and @types/node", ""),
        ("Mail @example.com, @example.io and @team.dev", ""),
        ("See @made.txt!", "made.txt"),
        ("See @made.org, a file like another in the repository", "made.org"),
        ("See @src/deep/none", "src/deep/none"),
        ("Add @angular/common/http", ""),
        ('See @"a b.txt".', "a b.txt"),
        ("See @new.txt", "new.txt"),
    ],
)
@pytest.mark.slow
def test_only_names_that_look_like_missing_files_are_doubts(
    tmp_path: Path, prompt: str, missing: str
) -> None:
    repository(tmp_path / "r")
    (tmp_path / "r" / "src").mkdir()
    (tmp_path / "r" / "src" / "notes.org").touch()
    git(tmp_path / "r", "add", ".")
    git(tmp_path / "r", "commit", "-q", "-m", "notes")
    (tmp_path / "r" / "new.txt").touch()  # in no commit, so no task sees it
    doubts = [each for each in found(tmp_path, {"prompt": prompt}) if each.level == "doubt"]
    assert [f"@{missing} " in f"{each.what} " for each in doubts] == [True] * bool(missing)


@pytest.mark.slow
def test_a_bare_repository_is_checked_like_another(tmp_path: Path) -> None:
    """git uses a bare repository only if it is named."""
    repository(tmp_path / "r")
    git(tmp_path, "clone", "-q", "--bare", "r", "b.git")
    task = {"dir": None, "git": "b.git", "prompt": "See @read.me and @red.me.", "score": "true"}
    told = [each.what for each in found(tmp_path, task)]
    assert told == [f"there is no file red.me for @red.me in {tmp_path / 'b.git'}"]
    (wrong,) = found(tmp_path, {**task, "prompt": "go", "commit": "mian"})
    assert (wrong.what, wrong.right) == (f"{tmp_path / 'b.git'} has no commit mian", "It has main.")


@pytest.mark.parametrize(
    ("flags", "is_denied"),
    [
        (("permissions.mode=ask",), True),
        (("permissions.mode=ask", "permissions.allow=Bash(make *)"), True),
        (("permissions.mode=ask", "permissions.allow=Edit(src/**)"), False),
        (("permissions.mode=ask", "permissions.deny=Edit", "permissions.deny=Write"), False),
        (("permissions.mode=plan",), False),
        (("permissions.mode=sandboxed",), False),
    ],
)
@pytest.mark.slow
def test_a_mode_that_denies_every_edit_is_a_doubt(
    tmp_path: Path, flags: tuple[str, ...], is_denied: bool
) -> None:
    doubts = [each.what for each in found(tmp_path, {}, *flags) if each.level == "doubt"]
    assert [what.startswith('in mode "ask" every edit') for what in doubts] == [True] * is_denied


@pytest.mark.slow
def test_the_cost_is_estimated_from_the_tasks_that_have_ended(tmp_path: Path) -> None:
    manifest, check, _ = checked(tmp_path, [{}] * 10)
    least = check.finish(manifest, ())
    assert least.dollars is not None
    assert 0 < least.dollars < 0.5
    ledger = FleetLedger(FleetFolder.of(manifest.path))
    for line in [*manifest.lines.values()][:4]:
        ledger.begin(line.id, line.digest, f"s-{line.id}", 1)
        ledger.end(line.id, f"s-{line.id}", 1, AttemptOutcome(cost_usd=0.5, exit_code=0))
    ledger.close()
    manifest, check, _ = checked(tmp_path, [{}] * 10)
    estimate = check.finish(manifest, ())
    assert (estimate.tasks, estimate.dollars) == (6, pytest.approx(3.0))
    assert "the average of 4 earlier tasks" in estimate.text


@pytest.mark.slow
def test_a_resume_costs_a_few_stat_calls_for_each_unfinished_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unfinished, counts, stat = 40, list[int](), os.stat
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    for size in (400, 2_000):
        place = tmp_path / str(size)
        place.mkdir()
        manifest, _, _ = checked(place, [{}] * size)
        ledger = FleetLedger(FleetFolder.of(manifest.path))
        for number, line in enumerate(manifest.lines.values()):
            log = str(ledger.folder.state / line.id / "log.jsonl")
            ledger.begin(line.id, line.digest, f"s-{line.id}", 1, log)
            if number >= unfinished:
                ended = AttemptOutcome(cost_usd=0.5, exit_code=0, log=log)
                ledger.end(line.id, f"s-{line.id}", 1, ended)
        ledger.close()
        calls = list[Any]()
        monkeypatch.setattr(
            os,
            "stat",
            lambda *given, calls=calls, **more: (calls.append(1), stat(*given, **more))[1],
        )
        manifest, check, findings = checked(place, [{}] * size)
        check.finish(manifest, ())
        ledger = FleetLedger(FleetFolder.of(manifest.path))
        run = FleetRun(manifest, ledger, LocalEngine(1), RunLimits(1))
        monkeypatch.setattr(os, "stat", stat)
        ledger.close()
        assert (run.waiting, findings.of("error", "doubt")) == (unfinished, [])
        counts.append(len(calls))
    assert abs(counts[1] - counts[0]) < unfinished, "finished tasks cost none"
    assert counts[1] <= 4 * unfinished + 200
