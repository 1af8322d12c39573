"""Tell the user when a model has sent nothing of its reply for a long time.

A server can keep the connection open with pings, so nothing else would show that the run waits.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from ..events import Emit, Event, Notice, Retrying

QUIET_S = 60.0  # without a part of a reply, until the first notice


@contextmanager
def quiet_notices(emit: Emit) -> Iterator[Emit]:
    """Yield an `emit` for the parts of a reply. Emit a notice after QUIET_S without a part, and
    each time that this time has doubled.
    """
    loop = asyncio.get_running_loop()
    timers = list[asyncio.TimerHandle]()  # one, the newest

    def wait(delay: float, seconds: float) -> None:
        timers[:] = [loop.call_later(delay, tell, seconds)]

    def tell(seconds: float) -> None:
        emit(Notice("info", f"the model has sent nothing for {seconds:g} s, still waiting"))
        wait(seconds, 2 * seconds)

    def heard(event: Event) -> None:
        timers[0].cancel()
        pause = event.seconds if isinstance(event, Retrying) else 0.0
        wait(pause + QUIET_S, QUIET_S)
        emit(event)

    wait(QUIET_S, QUIET_S)
    try:
        yield heard
    finally:
        timers[0].cancel()
