"""Start a child process from its own thread, which then waits for its end.

Restrictions of a thread (landlock_restrict_self(2), seccomp(2), capabilities(7)) apply to its
children but not to other threads. So a command can be confined without a helper program. The thread
lives as long as the child, which may depend on it (PR_SET_PDEATHSIG).
"""

import subprocess
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from ...agent.lazy import dataclass

if TYPE_CHECKING:
    import asyncio


class SideService(Protocol):
    """A service for a sandboxed command that runs as long as the command."""

    refused: list[str]  # refused hosts
    reached: list[str]  # hosts that it may have reached

    async def serve(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Enclosed:
    """A command line in a sandbox, with the options of its start."""

    command: Sequence[str]
    passed: tuple[int, ...] = ()  # descriptors it inherits; closed by the code that starts it
    restrict: Callable[[], None] | None = None  # called in the thread that starts the command
    reports: bool = False  # its stdin is a pipe for reports about left processes
    service: SideService | None = None  # started with it


class Spawned:
    """A started child process."""

    def __init__(self, child: "subprocess.Popen[bytes]", ended: "asyncio.Future[None]") -> None:
        self.pid = child.pid
        self._child = child
        self._ended = ended

    @property
    def returncode(self) -> int | None:
        """The exit code: None while it runs, -N if signal N ended it."""
        return self._child.returncode

    async def wait(self) -> None:
        """Wait for the process to end."""
        import asyncio

        await asyncio.shield(self._ended)


async def spawn(
    command: Sequence[str | bytes], restrict: Callable[[], None] | None = None, **options: Any
) -> Spawned:
    """Start a command from a thread that has called `restrict`, with the options of Popen. Raises
    the exceptions of both. Must not be cancelled.
    """
    import asyncio

    loop = asyncio.get_running_loop()
    started: asyncio.Future[subprocess.Popen[bytes]] = loop.create_future()
    ended: asyncio.Future[None] = loop.create_future()

    def tell(result: Callable[[Any], None], value: Any) -> None:
        with suppress(RuntimeError):  # the loop may end first
            loop.call_soon_threadsafe(result, value)

    def work() -> None:
        try:
            if restrict:
                restrict()
            child = subprocess.Popen(command, **options)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            tell(started.set_exception, error)
            return
        tell(started.set_result, child)
        child.wait()
        tell(ended.set_result, None)

    threading.Thread(target=work, name="child", daemon=True).start()
    return Spawned(await started, ended)
