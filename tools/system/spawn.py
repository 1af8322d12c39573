"""Start a child process from a thread of its own, which then waits for its end.

What a thread has given up for good (landlock_restrict_self(2), seccomp(2), capabilities(7)) its
children have given up, too, and the rest of the program has not: so a command can be confined
without a program in between. The thread lives as long as the child, which may have asked to be
ended with it (PR_SET_PDEATHSIG).
"""

import asyncio
import subprocess
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

from ...agent.lazy import dataclass


class Beside(Protocol):
    """What serves a command in a sandbox as long as it runs."""

    refused: list[str]  # what it was kept from

    async def serve(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Enclosed:
    """A command line in a sandbox, and what its start takes."""

    command: Sequence[str]
    passed: tuple[int, ...] = ()  # descriptors that it reads; whoever starts it closes them
    give_up: Callable[[], None] | None = None  # called in the thread that starts it
    reports: bool = False  # its stdin is a pipe, where it tells of processes that were left
    beside: Beside | None = None  # started with it


class Spawned:
    """A child process that was started."""

    def __init__(self, child: "subprocess.Popen[bytes]", ended: "asyncio.Future[None]") -> None:
        self.pid = child.pid
        self._child = child
        self._ended = ended

    @property
    def returncode(self) -> int | None:
        """Its exit code: None while it runs, -N when signal N ended it."""
        return self._child.returncode

    async def wait(self) -> None:
        """Wait for its end."""
        await asyncio.shield(self._ended)


async def spawn(
    command: Sequence[str | bytes], give_up: Callable[[], None] | None = None, **options: Any
) -> Spawned:
    """Start a command from a thread that has called `give_up`, with the options of Popen. Raises
    what either of them raises; is not to be cancelled."""
    loop = asyncio.get_running_loop()
    started: asyncio.Future[subprocess.Popen[bytes]] = loop.create_future()
    ended: asyncio.Future[None] = loop.create_future()

    def tell(result: Callable[[Any], None], value: Any) -> None:
        with suppress(RuntimeError):  # the loop may end first
            loop.call_soon_threadsafe(result, value)

    def work() -> None:
        try:
            if give_up:
                give_up()
            child = subprocess.Popen(command, **options)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            tell(started.set_exception, error)
            return
        tell(started.set_result, child)
        child.wait()
        tell(ended.set_result, None)

    threading.Thread(target=work, name="child", daemon=True).start()
    return Spawned(await started, ended)
