"""Let agents that share an event loop take turns, so that no agent blocks the others."""

import asyncio
from weakref import WeakKeyDictionary

_gates: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


async def take_turn() -> None:
    """Wait until no other task starts work in this iteration of the event loop. Call it before work
    that takes milliseconds between two awaits.
    """
    async with _gates.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
        await asyncio.sleep(0)
