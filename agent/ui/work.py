"""What runs: a turn or a command that takes its time, one at a time, which can be interrupted; and
what runs beside it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

BEAT = 0.5  # seconds between two calls of `beat` while something runs
T = TypeVar("T")


class Work:
    def __init__(self, beat: Callable[[], None]) -> None:
        self._beat = beat
        self._task: asyncio.Task[Any] | None = None

    @property
    def running(self) -> bool:
        return self._task is not None

    async def run(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Run it to its end; None when it was cancelled before it gave anything."""
        self._task = task = asyncio.create_task(work)
        try:
            async with self.beating():
                await asyncio.wait({task})
            return None if task.cancelled() else task.result()
        finally:
            self._task = None

    @asynccontextmanager
    async def beating(self) -> AsyncIterator[None]:
        """Call `beat` as long as this lasts."""
        beats = asyncio.create_task(self._beats())
        try:
            yield
        finally:
            beats.cancel()

    def cancel(self) -> bool:
        """Interrupt what runs, once; whether that was done now."""
        return self._task is not None and not self._task.cancelling() and self._task.cancel()

    async def end(self, seconds: float) -> None:
        """Interrupt what runs, and wait for its end, `seconds` at most."""
        if self._task is not None:
            self.cancel()
            await asyncio.wait({self._task}, timeout=seconds)

    async def _beats(self) -> None:
        while True:
            self._beat()
            await asyncio.sleep(BEAT)


class Background:
    """Tasks that run until `end`. `failed` is told of a fault in one."""

    def __init__(self, failed: Callable[[BaseException], None]) -> None:
        self._failed = failed
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        def done(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if not task.cancelled() and (error := task.exception()):
                self._failed(error)

        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(done)

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
