"""The results of an evaluation with known true rates, and attempts without a verdict."""

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from ctxagent.addons.fleet.ledger import AttemptOutcome, FleetFolder, FleetLedger
from ctxagent.addons.fleet.manifest import Manifest
from ctxagent.addons.fleet.results import (
    CellResults,
    Estimate,
    RunComparison,
    compare,
    comparison_lines,
    results_of,
)
from ctxagent.addons.fleet.summary import FleetSummary

RATES = {"lean": 0.55, "ledger": 0.85}  # of all attempts; tasks differ
TASKS, ATTEMPTS = 20, 5
DOLLARS = {"lean": 0.10, "ledger": 0.14}


def evaluated(tmp_path: Path, *, seed: int) -> list[CellResults]:
    """Run an evaluation whose attempts pass at random, with tasks of different difficulty."""
    chance = random.Random(seed)
    path = tmp_path / "tasks.jsonl"
    matrix = {"preset": list(RATES)}
    line = {"prompt": "x", "dir": "r", "score": "s", "repeat": ATTEMPTS, "matrix": matrix}
    path.write_text("".join(json.dumps({"id": f"t{n}", **line}) + "\n" for n in range(TASKS)))
    manifest, folder = Manifest(path), FleetFolder.of(path)
    ledger = FleetLedger(folder)
    for id, each in manifest.lines.items():
        harder = 0.1 if int(each.name[1:]) % 2 else -0.1
        passed = chance.random() < RATES[each.cell] + harder
        ledger.begin(id, each.digest, f"s-{id}", 1)
        dollars = DOLLARS[each.cell] * chance.uniform(0.5, 1.5)
        outcome = AttemptOutcome(dollars, 4, exit_code=0, score=float(passed), passed=passed)
        ledger.end(id, f"s-{id}", 1, outcome)
    ledger.close()
    return results_of(FleetSummary.of(manifest, ledger.records, folder, is_running=False).tasks)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_two_presets_are_distinguished_with_true_rates_in_the_intervals(
    tmp_path: Path, seed: int
) -> None:
    cells = evaluated(tmp_path, seed=seed)
    for cell in cells:
        (at_1, tasks), many = cell.pass_at(1) or ((), 0), cell.pass_at(ATTEMPTS)
        assert many is not None
        assert (tasks, cell.attempts) == (TASKS, TASKS * ATTEMPTS)
        assert at_1.low < RATES[cell.name] < at_1.high
        truth = sum(1 - (1 - RATES[cell.name] - by) ** ATTEMPTS for by in (0.1, -0.1)) / 2
        assert many[0].low is not None
        assert many[0].high is not None
        assert many[0].low < truth < many[0].high
        told = cell.to_json([1])
        assert told["cost_per_pass"] == pytest.approx(cell.dollars / cell.passed)
        assert told["turns_per_pass"] == pytest.approx(4 * 100 / cell.passed)
    found = compare(*cells)
    assert found is not None
    assert found.wins + found.losses + found.ties == TASKS
    assert found.p_value < 0.01
    assert found.rate.low is not None
    assert found.rate.high is not None
    assert found.rate.low < RATES["ledger"] - RATES["lean"] < found.rate.high
    assert found.dollars is not None
    assert found.dollars.low is not None
    assert found.dollars.high is not None
    assert found.dollars.low < DOLLARS["ledger"] - DOLLARS["lean"] < found.dollars.high


def test_a_comparison_has_units_and_intervals() -> None:
    same, dollars = Estimate(0.0, None, None), Estimate(-0.25, -0.5, 0.125)
    found = RunComparison(20, 5, 3, 0.7265625, Estimate(0.02, -0.03, 0.07), dollars, same, {})
    assert list(comparison_lines("default", "lean", found)) == [
        "tasks with a verdict in both runs: 20. lean passes more often than default in 5, "
        "less often in 3, equally often in 12",
        "exact sign test: p = 0.727",
        "pass@1, lean minus default: +2.0 percentage points (95 % interval: -3.0 to +7.0)",
        "dollars per attempt, lean minus default: -$0.2500 (95 % interval: -$0.5000 to +$0.1250)",
        "turns per attempt, lean minus default: +0.00 "
        "(no interval, because it is the same for all tasks)",
    ]
    unpriced = list(comparison_lines("default", "lean", replace(found, dollars=None)))
    assert unpriced[3] == "dollars per attempt: unknown, because no price is known for some calls"


def test_attempts_without_a_verdict_are_listed_but_not_counted(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    line = {"prompt": "x", "dir": "r", "score": "s", "repeat": 6}
    path.write_text(json.dumps({"id": "a", **line}) + "\n" + json.dumps({"id": "b", **line}))
    manifest, folder = Manifest(path), FleetFolder.of(path)
    ledger = FleetLedger(folder)
    ends = [
        AttemptOutcome(1.0, exit_code=0, passed=True, score=1.0),
        AttemptOutcome(None, exit_code=4, kind="limit", passed=False, score=0.5),
        AttemptOutcome(1.0, exit_code=1, kind="error"),
        AttemptOutcome(1.0, exit_code=0, kind="score"),
        AttemptOutcome(1.0, exit_code=0),
        AttemptOutcome(1.0, exit_code=0, kind="after", passed=True, score=1.0),
    ]
    for number, outcome in enumerate(ends, 1):
        ledger.begin(f"a@{number}", manifest.lines["a@1"].digest, f"s{number}", 1)
        ledger.end(f"a@{number}", f"s{number}", 1, outcome)
    ledger.close()
    standings = FleetSummary.of(manifest, ledger.records, folder, is_running=False).tasks
    (cell,) = results_of(standings)
    assert (cell.passed, cell.attempts, list(cell.tasks)) == (2, 3, ["a"])
    assert cell.missing == {"error": 1, "score": 1, "no score": 1, "waiting": 6}
    assert (cell.is_priced, cell.to_json([1])["cost_usd"]) == (False, None)
    assert cell.mean_score == pytest.approx(2.5 / 3)
    assert cell.pass_at(4) is None
