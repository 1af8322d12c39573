"""Measure the seconds from Esc until the screen shows the interruption, in every phase in which the
agent can be busy.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import measure

from ctxagent.tests.support.command import Place, gone
from ctxagent.tests.support.server.loopback import Server
from ctxagent.tests.support.server.phases import PHASES, Phase, Played, reach

SIZES: dict[str, dict[str, Any]] = {
    "full": {"phases": tuple(PHASES), "runs": 3},
    "quick": {"phases": tuple(PHASES), "runs": 1},
    "tiny": {"phases": tuple(PHASES)[:1], "runs": 1},
}


def main(phases: Sequence[str], runs: int) -> Iterator[measure.Table]:
    rows = {}
    for name in phases:
        taken = [interrupted(PHASES[name]) for _ in range(runs)]
        rows[name] = {"median_s": statistics.median(taken), "max_s": max(taken)}
    yield measure.Table("interrupts", rows)


def interrupted(phase: Phase) -> float:
    """Return the seconds from the key to the message."""
    with tempfile.TemporaryDirectory() as folder, Server(Played(phase)) as server:
        there = reach(phase, Place(Path(folder)), server)
        began = time.monotonic()
        there.terminal.press("esc")
        there.terminal.see(phase.said)
        taken = time.monotonic() - began
        assert gone(*there.pids)
        there.terminal.hang_up()
    return taken


if __name__ == "__main__":
    sys.exit(measure.run(main, SIZES))
