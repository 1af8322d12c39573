"""Signals of front ends, in their event loop."""

import asyncio
import os
import signal

from ctxagent.agent.ui.signals import handle_arrived


def test_signals_that_have_arrived_are_handled_before_the_work_goes_on() -> None:
    """As prompt_toolkit does, the handler leaves the work to a later step of the loop."""

    async def scene() -> list[str]:
        done: list[str] = []
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGUSR1, loop.call_soon_threadsafe, done.append, "handled")
        try:
            await asyncio.sleep(0)
            os.kill(os.getpid(), signal.SIGUSR1)
            await handle_arrived()
            return done
        finally:
            loop.remove_signal_handler(signal.SIGUSR1)

    assert asyncio.run(scene()) == ["handled"]
