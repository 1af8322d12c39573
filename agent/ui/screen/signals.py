"""Signals of the system, heard for as long as a front end runs; and a terminal that has gone."""

import asyncio
import errno
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

ENDINGS = (signal.SIGTERM, signal.SIGHUP)  # `kill`, and the terminal or the connection is gone


@contextmanager
def heard(act: Callable[[], object], *numbers: signal.Signals) -> Iterator[None]:
    """Call `act` in the event loop for each signal that comes in the meantime.

    A hang-up that the caller has chosen to outlive (nohup) stays ignored. Outside the main thread
    nothing is heard, as Python has it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    outlived = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    heeded = [n for n in numbers if n != signal.SIGHUP or not outlived]
    loop = asyncio.get_running_loop()
    for number in heeded:
        loop.add_signal_handler(number, act)
    try:
        yield
    finally:
        for number in heeded:
            loop.remove_signal_handler(number)


def ignored() -> None:
    """From here on nothing interrupts: the process has done its work and only ends."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, *ENDINGS):
            signal.signal(number, signal.SIG_IGN)


def stop() -> None:
    """Stop the process group, as Ctrl-Z does in a shell, until the shell lets it go on. Where no
    shell could, nothing happens, as the kernel has it."""
    heeded = {n: signal.signal(n, signal.SIG_DFL) for n in (signal.SIGTSTP, signal.SIGCONT)}
    os.kill(0, signal.SIGTSTP)
    for number, handler in heeded.items():
        signal.signal(number, handler)


@contextmanager
def unseen() -> Iterator[None]:
    """Writing to a terminal that has gone away fails in silence: there is still work to end."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.EIO:
            raise
