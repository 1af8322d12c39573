"""Signal handling for front ends, and writes to a terminal that has gone."""

import asyncio
import errno
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

END_SIGNALS = (signal.SIGTERM, signal.SIGHUP)  # from `kill`, or when the terminal closes
_STEPS_OF_A_SIGNAL = 4


@contextmanager
def call_on_signals(act: Callable[[], object], *numbers: signal.Signals) -> Iterator[None]:
    """Call `act` in the event loop for each of these signals while the block runs. SIGHUP stays
    ignored if the user ignores it (nohup). Does nothing outside the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    outlived = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    handled = [n for n in numbers if n != signal.SIGHUP or not outlived]
    loop = asyncio.get_running_loop()
    for number in handled:
        loop.add_signal_handler(number, act)
    try:
        yield
    finally:
        for number in handled:
            loop.remove_signal_handler(number)


async def handle_arrived() -> None:
    """Let the event loop call its handlers for the signals that this process has received. Reading
    a signal, calling its handler, and what the handler schedules are separate steps of the loop.
    """
    for _ in range(_STEPS_OF_A_SIGNAL):
        await asyncio.sleep(0)


def ignore_signals() -> None:
    """Ignore interrupts from now on, because the process is about to end."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, *END_SIGNALS):
            signal.signal(number, signal.SIG_IGN)


def stop_process_group() -> None:
    """Stop the process group, as Ctrl-Z does in a shell, until the shell continues it. Has no
    effect without a job-control shell.
    """
    handled = {n: signal.signal(n, signal.SIG_DFL) for n in (signal.SIGTSTP, signal.SIGCONT)}
    os.kill(0, signal.SIGTSTP)
    for number, handler in handled.items():
        signal.signal(number, handler)


@contextmanager
def ignore_lost_terminal() -> Iterator[None]:
    """Ignore failed writes to a terminal that has gone, so that the rest of the work still ends."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.EIO:
            raise
