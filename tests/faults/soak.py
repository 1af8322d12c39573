"""The soak: many kills of the real command, with faults of the server between them.

    python -m ctxagent.tests.faults.soak --kills 1000

Prints one table; ends with 1 when a figure that must be 0 is not. Two chains run side by side, each
through one session after another, so that some are young and some have seen many kills.
"""

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ..support.server.faults import Faults
from ..support.server.loopback import Body, Step
from ..support.sessions.inquest import MUST_BE_0, Figures
from ..support.sessions.kills import Chain, aims

SESSION = 60  # kills of one session
SIDE_BY_SIDE = 2
RATE = 0.1  # of the requests that get a fault


def soak(kills: int, seed: int, folder: Path) -> Figures:
    """So many kills, each session with a seed of its own."""
    sizes = [min(SESSION, kills - done) for done in range(0, kills, SESSION)]
    figures = Figures()
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        jobs = [
            pool.submit(_one, folder / str(number), seed + number, size)
            for number, size in enumerate(sizes)
        ]
        for number, job in enumerate(jobs, 1):
            figures.add(job.result())
            wrong = sum(figures.wrong.values())
            print(f"session {number} of {len(jobs)}: {wrong} wrong", file=sys.stderr, flush=True)
    return figures


def _one(folder: Path, seed: int, kills: int) -> Figures:
    plans: list[Faults] = []

    def disturbed(steps: Callable[[Body], Step]) -> Callable[[Body], Step]:
        plans.append(Faults(steps, rate=RATE, seed=seed))
        return plans[-1]

    with Chain(folder, seed, disturbed) as chain:
        for aim in aims(random.Random(seed), kills):
            chain.kill(aim)
        chain.end()
    chain.figures.counts["faults"] += plans[0].count.total()
    return chain.figures


def table(figures: Figures, seconds: float) -> Iterator[str]:
    """The figures, a line each."""
    yield f"{'kills':<22} {figures.kills.total():>7,}"
    for phase, count in sorted(figures.kills.items()):
        yield f"  {phase:<20} {count:>7,}"
    yield f"{'runs that ended before':<22} {figures.counts['ended']:>7,}"
    yield f"{'resumes':<22} {figures.counts['resumes']:>7,}"
    yield f"{'faults of the server':<22} {figures.counts['faults']:>7,}"
    yield f"{'entries':<22} {figures.counts['entries']:>7,}"
    for kind in ("mask", "summary", "checkpoint", "agent"):
        yield f"  {kind:<20} {figures.recorded[kind]:>7,}"
    yield f"{'results in files':<22} {figures.counts['offloaded']:>7,}"
    for kind, label in MUST_BE_0.items():
        yield f"{label:<22} {figures.wrong[kind]:>7,}"
    yield f"{'seconds':<22} {seconds:>7,.0f}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="soak", description="Kill the command again and again.")
    parser.add_argument("--kills", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        figures = soak(given.kills, given.seed, Path(folder))
    print("\n".join(table(figures, time.monotonic() - began)))
    for told in figures.told:
        print(told, file=sys.stderr)
    return 1 if figures.wrong.total() else 0


if __name__ == "__main__":
    sys.exit(main())
