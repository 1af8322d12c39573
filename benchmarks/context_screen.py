"""Measure the screen of `/context` with 3,000 items: the CPU time from a key to its paint, and from
opening to the items.

The REPL runs in this process, with keys through a pipe and paints in memory. Python's garbage
collector is set as in the command.
"""

import asyncio
import gc
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import measure

from ctxagent.agent.cli.main import GC_THRESHOLD
from ctxagent.agent.models.catalog import scripted_id
from ctxagent.agent.models.scripted import ScriptedModel, Step
from ctxagent.agent.session.entries import Assistant, Session, ToolResult, User
from ctxagent.agent.session.log import Log
from ctxagent.agent.session.store import Project
from ctxagent.tests.support.terminal.seat import CTRL_C, ENTER, ESC, Desk, Glass, Seat, drive

ID = "20261101-000001-000001"
DOWN, UP, PAGE_UP, HOME, END = "\x1b[B", "\x1b[A", "\x1b[5~", "\x1b[H", "\x1b[F"
TEXT = "".join(f"line {n}: the quick brown fox jumps over the lazy dog\n" for n in range(20))
KEYS = {"arrow": UP, "page": PAGE_UP, "home": HOME, "end": END, "sort": "s"}
SIZES: dict[str, dict[str, Any]] = {
    "full": {"items": 3_000, "runs": 40},
    "quick": {"items": 3_000, "runs": 10},
    "tiny": {"items": 60, "runs": 2},
}


def write(project: Project, items: int) -> None:
    """Write a session with this many items: replies with a call each, and their results."""
    log = Log(project.folder / "sessions" / ID / "log.jsonl")
    log.append(
        Session(
            id=ID, cwd=str(project.cwd), version="0", model=scripted_id("claude-sonnet-5"),
            system="Hi.", tools=[],
        )
    )  # fmt: skip
    log.append(User(content="read it all"))
    for n in range(items // 2 - 1):
        call = {"type": "tool_use", "id": f"t{n}", "name": "Read", "input": {"path": f"f{n}.py"}}
        log.append(Assistant(content=[call], usage={}, stop_reason="tool_use", model="m"))
        log.append(ToolResult(tool_use_id=f"t{n}", content=f"{n}: {TEXT}"))
    said = [{"type": "text", "text": "All is read."}]
    log.append(Assistant(content=said, usage={}, stop_reason="end_turn", model="m"))
    log.close()


class Sink(Glass):
    """Terminal that discards its output once `quiet` is set."""

    quiet = False

    def write(self, text: str) -> int:
        return len(text) if self.quiet else super().write(text)


class Clock:
    """Meter of the CPU seconds from a key to its paint."""

    def __init__(self, seat: Seat) -> None:
        self.seat, self.paints = seat, 0
        seat.repl.screen.app.after_render += self._rendered  # type: ignore[attr-defined]

    def _rendered(self, app: object) -> None:
        self.paints += 1

    async def key(self, pressed: str, there: Callable[[Any], bool] = lambda screen: True) -> float:
        """Press a key; return the CPU time until it is painted and `there` is true."""
        screen: Any = self.seat.repl.screen
        paints, began = self.paints, time.process_time()
        self.seat.press(pressed)
        async with asyncio.timeout(120):
            while self.paints == paints or not there(screen.context):  # noqa: ASYNC110
                await asyncio.sleep(0)
        return time.process_time() - began


def measured(items: int, runs: int) -> dict[str, list[float]]:
    """Return the CPU seconds of each kind of key."""
    figures: dict[str, list[float]] = {}
    glass = Sink()

    async def act(seat: Seat) -> None:
        await seat.until("% full")
        seat.say(f"/resume {ID}")
        await seat.until("All is read.")
        await seat.idle()
        glass.quiet, clock = True, Clock(seat)
        shown = lambda screen: screen is not None and len(screen._shown) == items  # noqa: E731
        figures["open"] = [await clock.key("/context" + ENTER, shown)]
        for _ in range(runs):
            for name, key in KEYS.items():
                figures.setdefault(name, []).append(await clock.key(key))
            await clock.key("/")
            for letter in "f77":
                figures.setdefault("search", []).append(await clock.key(letter))
            await clock.key(ESC, shown)
        for _ in range(runs):
            planned = await clock.key("d", lambda screen: screen._edit is not None)
            figures.setdefault("plan", []).append(planned)
            await clock.key(ESC)
        seat.press(CTRL_C)
        glass.quiet = False

    with tempfile.TemporaryDirectory() as folder:
        desk = Desk(Path(folder))
        id = scripted_id("claude-sonnet-5")
        desk.model = ScriptedModel([Step(text="Yes.")], window=10_000_000, id=id)
        write(desk.project, items)
        drive(desk, act, glass=glass)
    return figures


def main(items: int, runs: int) -> Iterator[measure.Table]:
    gc.set_threshold(GC_THRESHOLD)
    figures = measured(items, runs)
    opened, plans = figures.pop("open"), figures.pop("plan")
    rows = {
        "opening it": {"cpu_ms": 1_000 * opened[0]},
        "planning an edit": {"cpu_ms": 1_000 * statistics.median(plans)},
    }
    for name, times in figures.items():
        p99 = statistics.quantiles(times, n=100, method="inclusive")[98]
        rows[name] = {"p50_ms": 1_000 * statistics.median(times), "p99_ms": 1_000 * p99}
    yield measure.Table("a key in /context", rows)


if __name__ == "__main__":
    sys.exit(measure.run(main, SIZES))
