"""Run an evaluation with known true rates: two presets, 20 tasks, five attempts at each.

The real command runs against the strict server of the tests. Its model fails tasks at a known rate
for each preset; half of the tasks are easier, the others harder. A seed determines which attempts
fail. The fleet is killed during the run and continued. `true` is the rate over all tasks; `found`
is the rate that `fleet results` reports, with the interval `low` to `high`; `outside` is 1 if the
true rate is not in the interval. `repeated` counts turns that began twice and replies that were
paid for twice.
"""

import json
import random
import re
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import measure

from ctxagent.tests.support import fleet as support
from ctxagent.tests.support.server.loopback import Body, Say, Server

SIZES: dict[str, dict[str, Any]] = {
    "full": {"tasks": 20, "attempts": 5, "kills": 2},
    "quick": {"tasks": 20, "attempts": 2, "kills": 1},
    "tiny": {"tasks": 2, "attempts": 1, "kills": 0},
}
RATES = {"lean": 0.55, "ledger": 0.85}
MARKS = {"lean": 8_001, "ledger": 8_002}  # values of model.max_tokens that identify the preset
SPREAD = 0.1  # difference of a task's rate from the rate of its preset
SEED, JOBS = 5, 4
_TASK = re.compile(r"Task (\d+)\.")


class Model:
    """Model that writes a file with the right or the wrong word, then answers."""

    def __init__(self) -> None:
        self._lock, self._attempts = threading.Lock(), Counter[tuple[str, str]]()

    def __call__(self, body: Body) -> Say:
        if any(message["role"] == "assistant" for message in body["messages"]):
            return Say("Done.")
        (preset,) = (name for name, mark in MARKS.items() if mark == body["max_tokens"])
        found = _TASK.search(json.dumps(body["messages"]))
        assert found is not None
        task = found[1]
        with self._lock:
            self._attempts[preset, task] += 1
            number = self._attempts[preset, task]
        chance = random.Random(f"{SEED} {preset} {task} {number}").random()
        word = "right" if chance < true_rate(preset, int(task)) else "wrong"
        return Say("", tools=[("Bash", {"command": f"echo {word} > made.txt"})])


def true_rate(preset: str, task: int) -> float:
    """Return the probability that an attempt at a task passes."""
    return RATES[preset] + (SPREAD if task % 2 else -SPREAD)


def main(tasks: int, attempts: int, kills: int) -> Iterator[measure.Table]:
    """Yield the tables."""
    with tempfile.TemporaryDirectory(prefix="fleet-") as folder, Server(Model()) as server:
        fleet, began = support.Fleet(Path(folder)), time.perf_counter()
        cells = {
            name: {"compact.preset": name, "model.max_tokens": mark} for name, mark in MARKS.items()
        }
        fleet.tasks(tasks, repeat=attempts, matrix={"with": cells}, score="grep -q right made.txt")
        words, env = ("--jobs", str(JOBS)), fleet.place.server(server.url)
        code, said = support.run_with_kills(fleet, server, ["fleet"] * kills, *words, env=env)
        if code:
            print(said, file=sys.stderr)
        wall = time.perf_counter() - began
        results = json.loads(fleet.call("results", "--json").stdout)["cells"]
        compared = json.loads(fleet.call("compare", "--json").stdout)
        repeated = list(support.paid_twice(fleet, server))
        print(fleet.call("results").stdout, fleet.call("compare").stdout, sep="\n", file=sys.stderr)
    rows = {cell["cell"]: _row(cell, tasks) for cell in results}
    yield measure.Table("an evaluation with known rates", rows)
    row = {name: float(compared[name]) for name in ("wins", "losses", "ties", "p_value")}
    low, high = (compared["rate"][name] for name in ("low", "high"))
    truth = RATES["ledger"] - RATES["lean"]
    outside = float(low is not None and not low <= truth <= high)
    sessions = 2 * tasks * attempts
    row |= {"outside": outside, "sessions": sessions, "repeated": len(repeated), "wall_s": wall}
    yield measure.Table("two presets compared", {"ledger against lean": row})


def _row(cell: dict[str, Any], tasks: int) -> dict[str, float]:
    found = cell["pass_at"]["1"]
    truth = sum(true_rate(cell["cell"], task) for task in range(tasks)) / tasks
    return {
        "attempts": cell["attempts"],
        "passed": cell["passed"],
        "true": truth,
        "found": found["value"],
        "low": found["low"],
        "high": found["high"],
        "outside": float(not found["low"] <= truth <= found["high"]),
    }


if __name__ == "__main__":
    sys.exit(measure.run(main, SIZES))
