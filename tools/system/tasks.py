"""Finish awaited work despite cancellation."""

import asyncio
from collections.abc import Coroutine
from typing import Any


async def finish_despite_cancel(work: Coroutine[Any, Any, None]) -> None:
    """Await work to its end even if cancelled."""
    task = asyncio.ensure_future(work)
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            continue  # the caller sees it in the task's count of cancellations
    task.result()
