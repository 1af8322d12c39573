"""Measure how long the work pauses for a summary, prepared in advance and written when due.

The real loop runs over HTTP against the strict server of the tests. A reply has 2,500 tokens and a
call; the summary takes `seconds` to write, and the next reply waits while it is prepared in
advance. `pause_ms` is the time from the end of the last call to the turn's next request on the
wire, if a summary was applied between them; `usual_ms` is the same without a summary.
`apply_cpu_ms` is the CPU time of the process from the end of that call to the receipt of the
summary; `first_cpu_ms` is that of the first summary, which imports its modules.
"""

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import measure
from calls import fill
from serving import SUMMARY, environ

from ctxagent.agent.app import open_agent
from ctxagent.agent.compaction.summary.request import is_summary_question
from ctxagent.agent.config.settings import (
    CompactSettings,
    ModelSettings,
    PermissionSettings,
    Settings,
)
from ctxagent.agent.events import Compacted, Event, ToolFinished
from ctxagent.agent.launch import LaunchOptions, Places, SessionChoice
from ctxagent.agent.loop.agent import AgentState
from ctxagent.agent.loop.turn import run_turn
from ctxagent.tests.support.server.loopback import Body, Say, Server, Step

SIZES: dict[str, dict[str, Any]] = {
    "full": {"window": 200_000, "summaries": 5, "seconds": 3.0},
    "quick": {"window": 200_000, "summaries": 3, "seconds": 1.0},
    "tiny": {"window": 60_000, "summaries": 1, "seconds": 0.02},
}
VARIANTS = {
    "prepared ahead": CompactSettings(),
    "written when due": CompactSettings(prepare_at=None),
}
FILLED = 0.65  # share of the window used before the first call
LINE = "{}: the quick brown fox jumps over the lazy dog and runs away again.\n"
TEXT = "".join(map(LINE.format, range(125)))  # without repetition, which would stop the reply


class Clock(Server):
    """Server and front end in one: records when a call ended, when a summary was applied and when
    the next request arrived.
    """

    def __init__(self, summaries: int, seconds: float, window: int) -> None:
        super().__init__(self._play, window=window)
        self.pauses: list[float] = []
        self.usual: list[float] = []
        self.applied: list[float] = []  # CPU seconds
        self.agent: AgentState | None = None
        self._summaries, self._seconds = summaries, seconds
        self._ended: tuple[float, float] | None = None
        self._due = False

    def emit(self, event: Event) -> None:
        if isinstance(event, ToolFinished):
            self._ended, self._due = (time.perf_counter(), time.process_time()), False
        elif isinstance(event, Compacted) and event.layer == "summary" and self._ended:
            self.applied.append(time.process_time() - self._ended[1])
            self._due = True

    def answer(self, body: Body, *told: Any) -> tuple[Step, str, Body]:
        if self._ended and not _is_summary(body):
            gap = time.perf_counter() - self._ended[0]
            (self.pauses if self._due else self.usual).append(gap)
            self._wait_for_summary()
        return super().answer(body, *told)

    def _wait_for_summary(self) -> None:
        """Wait for a summary that is being prepared, with a timeout."""
        until = time.perf_counter() + 20 * self._seconds + 20
        while self.agent and self.agent.engine.is_preparing and time.perf_counter() < until:
            time.sleep(0.02)

    def _play(self, body: Body) -> Say:
        if _is_summary(body):
            return Say(SUMMARY, deltas=10, pace=self._seconds / 10)
        if len(self.pauses) == self._summaries:
            return Say("All done.")
        text = f"Part {len(self.requests)}. {TEXT}"  # distinct, as in real sessions
        glob = {"pattern": f"*.none{len(self.requests)}"}
        return Say(text, tools=[("Glob", glob)], deltas=1)


def _is_summary(body: Body) -> bool:
    return is_summary_question(str(body["messages"][-1]["content"][-1].get("text", "")))


def open_session(folder: Path, clock: Clock, settings: CompactSettings, window: int) -> AgentState:
    settings = Settings(
        model=ModelSettings(base_url=clock.url, context_window=window),
        permissions=PermissionSettings(mode="bypass"),
        compact=settings,
    )
    launch = LaunchOptions(
        settings=settings,
        places=Places(
            cwd=folder,
            state=folder / "state",
            config_home=folder / "config",
            environ=environ(str(folder), clock.url),
        ),
    )
    return open_agent(launch, SessionChoice(), emit=clock.emit, ask=None)


async def run_one_turn(loop: AgentState) -> None:
    finished = await run_turn(loop, "Look at all of it.")
    await loop.close()
    assert finished.status == "ok", finished


def main(window: int, summaries: int, seconds: float) -> Iterator[measure.Table]:
    rows = {}
    for name, settings in VARIANTS.items():
        clock = Clock(summaries, seconds, window)
        with tempfile.TemporaryDirectory() as folder, clock:
            clock.agent = loop = open_session(Path(folder), clock, settings, window)
            fill(loop, round(FILLED * window))
            asyncio.run(run_one_turn(loop))
            rows[name] = {
                "seconds": seconds,
                "summaries": len(clock.pauses),
                "pause_ms": statistics.median(clock.pauses) * 1e3,
                "usual_ms": statistics.median(clock.usual) * 1e3,
                "apply_cpu_ms": statistics.median(clock.applied) * 1e3,
                "first_cpu_ms": clock.applied[0] * 1e3,
                "rejected": len(clock.rejected),
            }
    yield measure.Table("a summary is due", rows)


if __name__ == "__main__":
    sys.exit(measure.run(main, SIZES))
