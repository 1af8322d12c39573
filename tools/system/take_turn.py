"""Let agents that share an event loop take turns, so that no agent blocks the others.

Also finish awaited work despite cancellation.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar
from weakref import WeakKeyDictionary


async def finish_despite_cancel(work: Coroutine[Any, Any, None]) -> None:
    """Await work to its end even if cancelled."""
    task = asyncio.ensure_future(work)
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            continue  # the caller sees it in the task's count of cancellations
    task.result()


P = ParamSpec("P")
T = TypeVar("T")
_Locks = WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock]
_gates, _thread_gates, _program_gates = _Locks(), _Locks(), _Locks()

MAX_HELD_S = 0.5  # after this time, slow work no longer delays the next, e.g. on a slow disk


async def take_turn() -> None:
    """Wait until no other task starts work in this iteration of the event loop. Call it before work
    that takes milliseconds between two awaits.
    """
    async with _gate(_gates):
        await asyncio.sleep(0)


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run Python work of milliseconds in a thread, one at a time if possible.

    Because of the GIL, several such threads take as long as one after the other, and each of them
    delays the event loop. Work that takes longer than MAX_HELD_S lets the next work begin.
    """
    return await _alone(_thread_gates, function, *args, **kwargs)


async def starting_programs(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Like `in_thread`, for work that starts programs and waits for them. The GIL is held while a
    program starts. Such work has its own order, so that it does not delay other work.
    """
    return await _alone(_program_gates, function, *args, **kwargs)


async def _alone(gates: _Locks, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    gate, is_held = _gate(gates), True

    def release() -> None:
        nonlocal is_held
        if is_held:
            is_held = False
            gate.release()

    await gate.acquire()
    timer = asyncio.get_running_loop().call_later(MAX_HELD_S, release)
    try:
        return await asyncio.to_thread(function, *args, **kwargs)
    finally:
        timer.cancel()
        release()


def _gate(gates: _Locks) -> asyncio.Lock:
    return gates.setdefault(asyncio.get_running_loop(), asyncio.Lock())
