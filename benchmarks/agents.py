"""Measure how long the event loop stalls with many agents in one process, started through the
library.

Each agent has its own project and plays a script: commands with long outputs, reads, a search, a
write and an edit. The model takes a random time of at most `thinking` seconds for each reply.
`worst_ms` is the longest turn of the loop in wall time, which increases with the load of the
machine. `cpu_ms` is the longest turn in CPU time of the loop's thread, which is independent of the
load. `over` counts turns of more than 100 ms.
"""

import asyncio
import contextlib
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import measure

from ctxagent import Agent
from ctxagent.agent.models.scripted import ScriptedModel, Step

SIZES: dict[str, dict[str, Any]] = {
    "full": {"agents": 50, "thinking": 1.5},
    "quick": {"agents": 50, "thinking": 0.5},
    "tiny": {"agents": 3, "thinking": 0.01},
}
LOOK_EVERY_S, STALL_S = 0.005, 0.1
OLD = "x = 1\n" * 200
STEPS = (
    Step(tools=[("Bash", {"command": "seq 20000"})]),
    Step(tools=[("Read", {"path": "a.py"}), ("Grep", {"pattern": "x", "path": "."})]),
    Step(tools=[("Write", {"path": "b.py", "content": OLD})]),
    Step(tools=[("Edit", {"path": "b.py", "old_string": OLD, "new_string": "y = 2\n"})]),
    Step(tools=[("Bash", {"command": "head -c 200000 long.txt"})]),
    Step(text="word " * 400),
)


class Pulse:
    """Meter of the turns of the event loop in which it runs."""

    def __init__(self) -> None:
        self.turns: list[tuple[float, float]] = []  # wall and CPU seconds of each

    async def beat(self) -> None:
        while True:
            wall, cpu = time.perf_counter(), time.thread_time()
            await asyncio.sleep(LOOK_EVERY_S)
            took = time.perf_counter() - wall - LOOK_EVERY_S, time.thread_time() - cpu
            self.turns.append(took)


async def work(project: Path, thinking: float) -> bool:
    """Let one agent play the script; return True if it finished."""
    steps = [replace(step, delay=random.uniform(0, thinking)) for step in STEPS]
    environ = {"HOME": str(project.parent), "PATH": os.environ["PATH"]}
    settings = {"permissions.mode": "bypass"}
    model = ScriptedModel(steps)
    async with Agent(project, model=model, environ=environ, settings=settings) as agent:
        return (await agent.run("Do it.")).status == "ok"


async def play(projects: list[Path], thinking: float) -> tuple[Pulse, int]:
    pulse = Pulse()
    beating = asyncio.ensure_future(pulse.beat())
    ended = await asyncio.gather(*(work(project, thinking) for project in projects))
    beating.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await beating
    return pulse, sum(ended)


def main(agents: int, thinking: float) -> Iterator[measure.Table]:
    random.seed(1)
    with tempfile.TemporaryDirectory() as folder:
        projects = [Path(folder, f"project-{number}") for number in range(agents)]
        for project in projects:
            project.mkdir()
            (project / "a.py").write_text("x = 1\n" * 2_000)
            (project / "long.txt").write_text("a line of words\n" * 40_000)
        began, cpu = time.perf_counter(), time.process_time()
        pulse, ended = asyncio.run(play(projects, thinking))
        took, cpu = time.perf_counter() - began, time.process_time() - cpu
    row = {
        "worst_ms": 1_000 * max(wall for wall, _ in pulse.turns),
        "cpu_ms": 1_000 * max(cpu for _, cpu in pulse.turns),
        "over": sum(wall > STALL_S for wall, _ in pulse.turns),
        "wall_s": took,
        "cpu_s": cpu,
        "failed": agents - ended,
    }
    yield measure.Table("agents in one process", {f"{agents} agents": row})


if __name__ == "__main__":
    sys.exit(measure.run(main, SIZES))
