"""Let agents that share an event loop take turns, so that no agent blocks the others."""

import asyncio
from weakref import WeakKeyDictionary

_Locks = WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock]
_gates, _thread_gates = _Locks(), _Locks()


async def take_turn() -> None:
    """Wait until no other task starts work in this iteration of the event loop. Call it before work
    that takes milliseconds between two awaits.
    """
    async with _gates.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
        await asyncio.sleep(0)


def one_at_a_time() -> asyncio.Lock:
    """Return the lock of this event loop for long Python work in threads. Because of the GIL,
    several such threads take as long as one after the other, and each delays the event loop.
    """
    return _thread_gates.setdefault(asyncio.get_running_loop(), asyncio.Lock())
