"""How long it takes from Esc until the screen says that the work is interrupted, in every phase in
which the agent can be busy. Exit code 1 when one takes a second or more."""

import statistics
import sys
import tempfile
import time
from pathlib import Path

import measure

from ctxagent.tests.support.command import Place
from ctxagent.tests.support.phases import PHASES, Phase, Played, gone, reach
from ctxagent.tests.support.server import Server

RUNS = 3
BOUND = 1.0  # seconds


def main() -> int:
    rows = {}
    for name, phase in PHASES.items():
        taken = [interrupted(phase) for _ in range(RUNS)]
        rows[name] = {"median_s": statistics.median(taken), "max_s": max(taken)}
    measure.report("interrupts", rows)
    return int(any(row["max_s"] >= BOUND for row in rows.values()))


def interrupted(phase: Phase) -> float:
    """Seconds from the key to the word."""
    with tempfile.TemporaryDirectory() as folder, Server(Played(phase)) as server:
        there = reach(phase, Place(Path(folder)), server)
        began = time.monotonic()
        there.terminal.press("esc")
        there.terminal.see(phase.said)
        taken = time.monotonic() - began
        assert all(map(gone, there.pids))
        there.terminal.hang_up()
    return taken


if __name__ == "__main__":
    sys.exit(main())
