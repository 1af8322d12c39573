"""The running turn or command, which can be interrupted, and background tasks."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

REDRAW_INTERVAL_S = 0.5  # interval while a task runs
T = TypeVar("T")


class RunningTask:
    """The running turn or command, if any. `redraw` is called regularly until it ends."""

    def __init__(self, redraw: Callable[[], None]) -> None:
        self._redraw = redraw
        self._task: asyncio.Task[Any] | None = None

    @property
    def running(self) -> bool:
        return self._task is not None

    async def run(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Run a turn or command to its end; return None if it was cancelled."""
        self._task = task = asyncio.create_task(work)
        try:
            async with self.redrawing():
                await asyncio.wait({task})
            return None if task.cancelled() else task.result()
        finally:
            self._task = None

    @asynccontextmanager
    async def redrawing(self) -> AsyncIterator[None]:
        """Call `redraw` regularly inside the block."""
        ticker = asyncio.create_task(self._keep_redrawing())
        try:
            yield
        finally:
            ticker.cancel()

    def cancel(self) -> bool:
        """Interrupt the task; return False if there is none or it is already being interrupted."""
        return self._task is not None and not self._task.cancelling() and self._task.cancel()

    async def end(self, seconds: float) -> None:
        """Interrupt the task, and wait at most `seconds` for its end."""
        if self._task is not None:
            self.cancel()
            await asyncio.wait({self._task}, timeout=seconds)

    async def _keep_redrawing(self) -> None:
        while True:
            self._redraw()
            await asyncio.sleep(REDRAW_INTERVAL_S)


class BackgroundTasks:
    """Tasks that run until `end`. `failed` is called with each exception."""

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
