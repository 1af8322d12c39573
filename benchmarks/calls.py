"""What one call to the model costs us in CPU, by size of the context and by length of the log.

The loop is the real one, with the real SDK over HTTP to a server on loopback. The context is made
of recorded exchanges; each figure is the median over several calls in one process.
"""

import asyncio
import statistics
import tempfile
import time
from pathlib import Path

import measure
from serving import answering, environ

from ctxagent.agent.compose import open_loop
from ctxagent.agent.launch import Choice, Launch
from ctxagent.agent.loop import Loop
from ctxagent.agent.record.entries import Assistant, Note, User
from ctxagent.agent.settings import ModelSettings, Settings

WORDS = "the quick brown fox jumps over the lazy dog and runs away again\n"


def opened(folder: str, url: str) -> Loop:
    launch = Launch(
        settings=Settings(model=ModelSettings(base_url=url)),
        state=Path(folder) / "state",
        config_home=Path(folder) / "config",
        cwd=Path(folder),
        environ=environ(folder, url),
    )
    return open_loop(launch, Choice(), emit=lambda event: None, ask=None)


def fill(loop: Loop, tokens: int) -> None:
    """Record exchanges of about 700 tokens each until the context holds `tokens`."""
    while loop.view.size < tokens:
        loop.record(User(content=WORDS * 25))
        loop.record(
            Assistant(
                content=[{"type": "text", "text": WORDS * 25}], usage={}, stop_reason="end_turn",
                model="m",
            )
        )  # fmt: skip


async def per_call(loop: Loop, calls: int = 15) -> dict[str, float]:
    """Milliseconds of CPU and wall for a turn of one call."""
    await loop.turn("hello")
    used, wall = [], []
    for _ in range(calls):
        cpu, clock = time.thread_time(), time.perf_counter()
        await loop.turn("hello")
        used.append(time.thread_time() - cpu)
        wall.append(time.perf_counter() - clock)
    await loop.model.close()
    return {"cpu_ms": statistics.median(used) * 1e3, "wall_ms": statistics.median(wall) * 1e3}


def main() -> None:
    with answering() as url:
        rows = {}
        for tokens in (10_000, 60_000, 180_000, 900_000):
            with tempfile.TemporaryDirectory() as folder:
                loop = opened(folder, url)
                fill(loop, tokens)
                rows[f"{tokens:,} tokens"] = asyncio.run(per_call(loop))
        measure.report("one call, by size of the context", rows)
        rows = {}
        for length in (100, 100_000):
            with tempfile.TemporaryDirectory() as folder:
                loop = opened(folder, url)
                for n in range(length):
                    loop.record(Note(topic="decision", text=f"note {n}"))
                rows[f"log of {length:,} entries"] = asyncio.run(per_call(loop))
        measure.report("one call, by length of the log", rows)


if __name__ == "__main__":
    main()
