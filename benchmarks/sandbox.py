"""Measure the cost of the sandbox: starting a command without one, with plain bubblewrap, with
bubblewrap plus the system call filter and Landlock scopes, with the network restricted by name, for
a command without a question, and with Landlock alone; and a Read of a file, with its permission
check.

The command does nothing. The variants alternate, so that other load affects all of them. `wall_ms`
is the median; `more_ms` is the difference to the first variant.
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

from ctxagent.agent.permissions.approval import Approval
from ctxagent.agent.security import landlock
from ctxagent.agent.security.bubblewrap import Bubblewrap
from ctxagent.agent.security.sandbox import Sandbox
from ctxagent.tools.base import Context
from ctxagent.tools.read import ReadTool
from ctxagent.tools.system.confinement import CommandLimits
from ctxagent.tools.system.process import Process
from ctxagent.tools.system.spawn import Enclosed

SIZES: dict[str, dict[str, Any]] = {
    "full": {"turns": 200},
    "quick": {"turns": 50},
    "tiny": {"turns": 1},
}
Enclose = Callable[[list[str]], Enclosed]


class Nothing:
    """A sink that discards its input."""

    def feed(self, data: bytes) -> None: ...

    def close(self) -> None: ...


def variants(cwd: Path) -> Mapping[str, Enclose | None]:
    """Return the sandbox variants available on this machine."""
    found: dict[str, Enclose | None] = {"without a sandbox": None}
    own = {"own_temporary": cwd.with_name("temporary"), "own_caches": cwd.with_name("caches")}
    sandbox, alone = (Sandbox(cwd=cwd, environ=dict(os.environ), **own) for _ in range(2))

    def bare(command: list[str]) -> Enclosed:
        whole = sandbox.enclose(command)
        for number in whole.passed:
            os.close(number)
        words = list(whole.command)
        if "--seccomp" in words:
            at = words.index("--seccomp")
            del words[at : at + 2]
        return replace(whole, command=words, passed=(), restrict=None)

    if not sandbox.absent and not sandbox.partial:
        by_name = Sandbox(cwd=cwd, environ=dict(os.environ), **own, network=False, names=())
        found |= {"bubblewrap as it is": bare, "bubblewrap": sandbox.enclose}
        found["bubblewrap, network by name"] = by_name.enclose
        unasked = sandbox.for_command(CommandLimits(unasked=True))
        found["bubblewrap, without a question"] = unasked.enclose
    if landlock.works():
        alone._bubblewrap = Bubblewrap(absent="It is not to be used.")
        found["Landlock alone"] = alone.enclose
    return found


async def start(cwd: Path, enclose: Enclose | None) -> float:
    """Start a command; return the seconds until it has ended."""
    began = time.perf_counter()
    process = await Process.start(
        ":", cwd=cwd, env=dict(os.environ), sink=Nothing(), enclose=enclose
    )
    await process.finished()
    return time.perf_counter() - began


async def measure_starts(cwd: Path, turns: int) -> measure.Rows:
    all_variants = variants(cwd)
    took: dict[str, list[float]] = {name: [] for name in all_variants}
    for turn in range(turns + 1):
        for name, enclose in all_variants.items():
            seconds = await start(cwd, enclose)
            if turn:  # the first turn is a warm-up
                took[name].append(seconds * 1e3)
    least = statistics.median(took["without a sandbox"])
    medians = {name: statistics.median(each) for name, each in took.items()}
    return {name: {"wall_ms": each, "more_ms": each - least} for name, each in medians.items()}


async def measure_reads(cwd: Path, turns: int) -> measure.Rows:
    """Read a small file with each variant, alternating."""
    file, tool = cwd / "file.txt", ReadTool()
    file.write_text("text\n" * 100)
    own = {"own_temporary": cwd.with_name("temporary"), "own_caches": cwd.with_name("caches")}
    approvals = {"Read": Approval(cwd=cwd), "Read, sandbox required": Approval(cwd=cwd)}
    approvals["Read, sandbox required"].sandbox = Sandbox(
        cwd=cwd, environ=dict(os.environ), **own, required=True
    )
    took: dict[str, list[float]] = {name: [] for name in ("opened alone", *approvals)}
    params = tool.Params(path=str(file))
    for _ in range(turns):
        began = time.perf_counter()
        file.read_bytes()
        took["opened alone"].append((time.perf_counter() - began) * 1e3)
        for name, approval in approvals.items():
            began = time.perf_counter()
            context = Context(cwd, judged_path=approval.judge(tool, params).path)
            await tool.run(params, context)
            took[name].append((time.perf_counter() - began) * 1e3)
    medians = {name: statistics.median(each) for name, each in took.items()}
    least = medians["opened alone"]
    return {name: {"wall_ms": each, "more_ms": each - least} for name, each in medians.items()}


def main(turns: int) -> Iterator[measure.Table]:
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder) / "project"
        project.mkdir()
        yield measure.Table("a command's start", asyncio.run(measure_starts(project, turns)))
        yield measure.Table("Read of a file", asyncio.run(measure_reads(project, turns)))


if __name__ == "__main__":
    sys.exit(measure.run(main, SIZES))
