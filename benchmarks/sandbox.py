"""What a command's start costs: without a sandbox, under bubblewrap as it is, under bubblewrap with
the filter of system calls and the scopes of Landlock, and under Landlock alone.

The command does nothing. Each way takes its turn, so that what else the machine does falls on all
of them; `more_ms` is what it takes more than without a sandbox, `wall_ms` is its median.
"""

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import measure

from ctxagent.agent.security import landlock
from ctxagent.agent.security.bubblewrap import Bubblewrap
from ctxagent.agent.security.sandbox import Sandbox
from ctxagent.tools.system.process import Process
from ctxagent.tools.system.spawn import Enclosed

SIZES: dict[str, dict[str, Any]] = {
    "full": {"turns": 200},
    "quick": {"turns": 50},
    "tiny": {"turns": 1},
}
Enclose = Callable[[list[str]], Enclosed]


class Nothing:
    """A sink that keeps nothing."""

    def feed(self, data: bytes) -> None: ...

    def close(self) -> None: ...


def ways(cwd: Path) -> Mapping[str, Enclose | None]:
    """Each way that there is here to start a command."""
    found: dict[str, Enclose | None] = {"without a sandbox": None}
    sandbox, alone = (Sandbox(cwd=cwd, environ=dict(os.environ)) for _ in range(2))

    def bare(command: list[str]) -> Enclosed:
        whole = sandbox.enclose(command)
        for number in whole.passed:
            os.close(number)
        words = list(whole.command)
        if "--seccomp" in words:
            at = words.index("--seccomp")
            del words[at : at + 2]
        return replace(whole, command=words, passed=(), give_up=None)

    if not sandbox.absent and not sandbox.partial:
        found |= {"bubblewrap as it is": bare, "bubblewrap": sandbox.enclose}
    if landlock.works():
        alone._bubblewrap = Bubblewrap(absent="It is not to be used.")
        found["Landlock alone"] = alone.enclose
    return found


async def start(cwd: Path, enclose: Enclose | None) -> float:
    """Start a command; seconds until it has ended."""
    began = time.perf_counter()
    process = await Process.start(
        ":", cwd=cwd, env=dict(os.environ), sink=Nothing(), enclose=enclose
    )
    await process.finished()
    return time.perf_counter() - began


async def in_turns(cwd: Path, turns: int) -> measure.Rows:
    all_ways = ways(cwd)
    took: dict[str, list[float]] = {name: [] for name in all_ways}
    for turn in range(turns + 1):
        for name, enclose in all_ways.items():
            seconds = await start(cwd, enclose)
            if turn:  # the first does not count
                took[name].append(seconds * 1e3)
    least = statistics.median(took["without a sandbox"])
    medians = {name: statistics.median(each) for name, each in took.items()}
    return {name: {"wall_ms": each, "more_ms": each - least} for name, each in medians.items()}


def main(turns: int) -> Iterator[measure.Table]:
    with tempfile.TemporaryDirectory() as folder:
        yield measure.Table("a command's start", asyncio.run(in_turns(Path(folder), turns)))


if __name__ == "__main__":
    sys.exit(measure.run(main, SIZES))
