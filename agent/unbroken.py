"""What must not be left half done."""

import asyncio
from collections.abc import Coroutine
from typing import Any


async def unbroken(work: Coroutine[Any, Any, None]) -> None:
    """Await it to its end, whoever cancels meanwhile."""
    task = asyncio.ensure_future(work)
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            continue  # whoever awaits this is told by the count of cancellations
    task.result()
