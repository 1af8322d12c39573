"""Many scripts that bash takes, each held against what was seen of it before it ran.

    python -m ctxagent.tests.faults.shell --scripts 20000

Prints how many scripts there were and how many of them bash ran; ends with 1, naming the script,
when bash ran anything that was not seen, or that no rule allows.
"""

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, given, seed, settings

from .test_fuzz_rules import SCRIPTS, hold_against_bash

OF_ONE_SEED = 2_000  # scripts


def hold(scripts: int, first_seed: int, project: Path) -> Counter[str]:
    """Hold so many scripts against bash, and count them."""
    counts, number = Counter[str](), first_seed

    @given(SCRIPTS)
    @settings(
        max_examples=OF_ONE_SEED, database=None, deadline=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    def each(script: str) -> None:
        counts["scripts"] += 1
        counts["run by bash"] += hold_against_bash(project, script)

    while counts["scripts"] < scripts:
        seed(number)(each)()
        number += 1
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(prog="shell", description="Hold scripts against bash.")
    parser.add_argument("--scripts", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder) / "project"
        (project / "src").mkdir(parents=True)
        try:
            counts = hold(given.scripts, given.seed, project)
        except AssertionError as error:
            print(f"not held: {error}")
            return 1
    for name, count in counts.items():
        print(f"{name:<22} {count:>7,}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
