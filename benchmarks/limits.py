"""Measure time and memory for extreme sizes.

Each case of `tests/support/limits.py` runs in its own process with real tools, and a scripted model
where one is needed. Arguments select cases by name.
"""

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import measure

from ctxagent.tests.support.limits import measured

CASES = {
    "calls of a session": 10_000,
    "calls in one message": 2_000,
    "output of lines": 100,
    "output in one line": 100,
    "output redrawn": 100,
    "output of escapes": 100,
    "files for Glob": 50_000,
    "files for Glob in a work tree": 50_000,
    "files in one folder for Glob": 100_000,
    "files for Grep": 50_000,
    "folders within folders": 1_500,
    "MB of one line": 5,
    "MB of an argument": 5,
    "MB of a streamed line": 5,
    "MB pasted": 5,
    "MB of instructions": 50,
    "MB of a log with a line torn in the middle": 100,
    "pins": 1_000,
    "words that wait": 10_000,
}
SIZES: dict[str, dict[str, Any]] = {
    "full": {"part": 1},
    "quick": {"part": 20},
    "tiny": {"part": 1_000, "cases": ("pins", "words that wait")},
}


def main(part: int, cases: Sequence[str] = tuple(CASES)) -> Iterator[measure.Table]:
    """Run the cases at 1/`part` of their size."""
    wanted = [f"{name}={max(1, CASES[name] // part)}" for name in cases]
    rows = {
        f"{found['size']:,} {name}": {
            key: value for key, value in found.items() if isinstance(value, int | float)
        }
        for name, found in measured(wanted).items()
    }
    yield measure.Table("limits", rows)


if __name__ == "__main__":
    sys.exit(measure.run(main, SIZES, "cases"))
