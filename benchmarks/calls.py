"""Measure our CPU time per model call, by size of the context and by length of the log.

The loop is the real one, with the real SDK over HTTP to a server on loopback. The context consists
of recorded exchanges; each figure is the median over several calls in one process.
"""

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import measure
from serving import answering, environ

from ctxagent.agent.app import open_agent
from ctxagent.agent.config.settings import ModelSettings, Settings
from ctxagent.agent.launch import LaunchOptions, Places, SessionChoice
from ctxagent.agent.loop.agent import AgentState
from ctxagent.agent.loop.turn import run_turn
from ctxagent.agent.session.entries import Assistant, Note, User

SIZES: dict[str, dict[str, Any]] = {
    "full": {"contexts": (10_000, 60_000, 180_000, 900_000), "logs": (100, 100_000), "calls": 25},
    "quick": {"contexts": (10_000, 60_000, 180_000), "logs": (100, 20_000), "calls": 9},
    "tiny": {"contexts": (2_000,), "logs": (10, 100), "calls": 1},
}
WORDS = "the quick brown fox jumps over the lazy dog and runs away again\n"


def open_session(folder: str, url: str) -> AgentState:
    launch = LaunchOptions(
        settings=Settings(model=ModelSettings(base_url=url)),
        places=Places(
            cwd=Path(folder),
            state=Path(folder) / "state",
            config_home=Path(folder) / "config",
            environ=environ(folder, url),
        ),
    )
    return open_agent(launch, SessionChoice(), emit=lambda event: None, ask=None)


def fill(loop: AgentState, tokens: int) -> None:
    """Record distinct exchanges of about 700 tokens each until the context has `tokens`."""
    while loop.view.size < tokens:
        text = f"{loop.log.last_seq}: {WORDS * 25}"
        loop.record(User(content=text))
        loop.record(
            Assistant(
                content=[{"type": "text", "text": text}], usage={}, stop_reason="end_turn",
                model="m",
            )
        )  # fmt: skip


async def per_call(loop: AgentState, calls: int) -> dict[str, float]:
    """Return the CPU and wall milliseconds of a turn with one call."""
    await run_turn(loop, "hello")
    used, wall = [], []
    for _ in range(calls):
        cpu, clock = time.thread_time(), time.perf_counter()
        await run_turn(loop, "hello")
        used.append(time.thread_time() - cpu)
        wall.append(time.perf_counter() - clock)
    await loop.model.client.close()
    return {"cpu_ms": statistics.median(used) * 1e3, "wall_ms": statistics.median(wall) * 1e3}


def main(contexts: Sequence[int], logs: Sequence[int], calls: int) -> Iterator[measure.Table]:
    with answering() as url:
        rows = {}
        for tokens in contexts:
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
                loop = open_session(folder, url)
                fill(loop, tokens)
                rows[f"{tokens:,} tokens"] = asyncio.run(per_call(loop, calls))
        yield measure.Table("one call, by size of the context", rows)
        rows = {}
        for length in logs:
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
                loop = open_session(folder, url)
                for n in range(length):
                    loop.record(Note(topic="decision", text=f"note {n}"))
                rows[f"log of {length:,} entries"] = asyncio.run(per_call(loop, calls))
    shortest = next(iter(rows.values()))["cpu_ms"]
    for row in rows.values():
        row["x_short"] = row["cpu_ms"] / shortest
    yield measure.Table("one call, by length of the log", rows)


if __name__ == "__main__":
    sys.exit(measure.run(main, SIZES))
