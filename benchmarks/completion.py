"""Measure typing `@paths` in work trees of 1,000 and 100,000 files: the time from a key to its
paint and its menu, and the longest stall of the event loop.

The REPL runs in this process, with keys through a pipe and paints in memory. Files are listed by
git.
"""

import asyncio
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import measure

from ctxagent.tests.support.terminal.seat import CTRL_C, Desk, Glass, Seat, drive

WORDS = (
    *("core", "util", "model", "view", "test", "handler", "parser", "config", "index"),
    *("main", "server", "client", "page", "form"),
)
TYPED = ("config_main", "srvtst", "core/model", "e", "parser_view_", "cltpg", "hdlr")
SIZES: dict[str, dict[str, Any]] = {
    "full": {"trees": (1_000, 100_000), "runs": 5},
    "quick": {"trees": (1_000, 20_000), "runs": 1},
    "tiny": {"trees": (100,), "runs": 1},
}


def make(folder: Path, files: int) -> None:
    chosen = random.Random(1)
    for number in range(files):
        a, b, c, d = (chosen.choice(WORDS) for _ in range(4))
        path = folder / a / f"{b}_{number % 97}" / f"{c}_{d}_{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    for words in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", *words], cwd=folder, check=True)


class Sink(Glass):
    """Terminal that discards its output once `quiet` is set."""

    quiet = False

    def write(self, text: str) -> int:
        return len(text) if self.quiet else super().write(text)


class Clock:
    """Meter of the seconds from keys to paints and menus, and of the longest stall of the event
    loop.
    """

    def __init__(self, seat: Seat) -> None:
        self.seat = seat
        self.draft = seat.repl.screen.draft  # type: ignore[attr-defined]
        self.painted, self.menus, self.longest = list[float](), list[float](), 0.0
        self._paint = ("", 0.0)
        seat.repl.screen.app.after_render += self._rendered  # type: ignore[attr-defined]

    def _rendered(self, app: object) -> None:
        if self._paint[0] != self.draft.text:
            self._paint = (self.draft.text, time.perf_counter())

    async def beat(self) -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            self.longest = max(self.longest, time.perf_counter() - before - 0.001)

    async def key(self, pressed: str, whole: str) -> None:
        """Press a key; wait for its paint and its menu."""
        began = time.perf_counter()
        self.seat.press(pressed)
        await until(lambda: self._paint[0] == whole)
        self.painted.append(self._paint[1] - began)
        await until(lambda: self._offered(whole))
        self.menus.append(time.perf_counter() - began)

    def _offered(self, whole: str) -> bool:
        state = self.draft.complete_state
        return bool(state and state.original_document.text == whole and state.completions)

    async def clear(self) -> None:
        self.seat.press(CTRL_C)
        await until(lambda: not self.draft.text)


async def until(there: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not there():  # noqa: ASYNC110 (a screen tells nobody of its changes)
            await asyncio.sleep(0.0005)


def one(files: int, runs: int) -> dict[str, float]:
    clocks: list[Clock] = []
    glass = Sink()

    async def act(seat: Seat) -> None:
        await seat.until("% full")
        glass.quiet = True
        clock = Clock(seat)
        clocks.append(clock)
        beating = asyncio.create_task(clock.beat())
        for text in ("", *runs * TYPED):
            for end in range(len(text) + 1):
                await clock.key(f"@{text}"[end], f"@{text}"[: end + 1])
            await clock.clear()
        beating.cancel()
        glass.quiet = False

    with tempfile.TemporaryDirectory() as folder:
        desk = Desk(Path(folder))
        make(desk.cwd, files)
        drive(desk, act, glass=glass)
    (clock,) = clocks
    figures = {"first_menu_ms": clock.menus[0], "longest_block_ms": clock.longest}
    for name, times in (("key", clock.painted), ("menu", clock.menus[1:])):
        figures[f"{name}_p50_ms"] = statistics.median(times)
        figures[f"{name}_p99_ms"] = statistics.quantiles(times, n=100)[98]
    return {name: 1_000 * seconds for name, seconds in figures.items()}


def main(trees: Sequence[int], runs: int) -> Iterator[measure.Table]:
    rows = {f"{files:,} files": one(files, runs) for files in trees}
    yield measure.Table("completion of paths", rows)


if __name__ == "__main__":
    sys.exit(measure.run(main, SIZES))
