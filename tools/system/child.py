"""Run short-lived child processes that only read: start one, read its output in pieces, end it.

A child gets its own process group, and a closed stdin or the given bytes. When the block is left,
even by an error or cancellation, the group is killed and the child is reaped. Its stderr is read
all the time so that it cannot block; only the beginning is kept.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from ...agent.lazy import dataclass
from .process import input_of
from .programs import own_environment
from .spawn import Spawned, spawn

MAX_STDERR_BYTES = 16_000  # limit of kept stderr
CHUNK_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Child:
    """A running child process."""

    out: asyncio.StreamReader  # its stdout
    _process: Spawned
    _complaints: asyncio.Task[str]

    async def end(self) -> tuple[int, str]:
        """Wait for the child to end. Return its exit code and the beginning of its stderr.

        Call it after `out` is read to the end.
        """
        complaints = await self._complaints
        await self._process.wait()
        return self._process.returncode or 0, complaints


@contextlib.asynccontextmanager
async def child(
    argv: Sequence[str | bytes],
    *,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    given: bytes = b"",
    passed: Sequence[int] = (),
    restrict: Callable[[], None] | None = None,
) -> AsyncIterator[Child]:
    """Run a child for the duration of a block. `given` is its stdin, and it inherits the `passed`
    descriptors. It is started from a thread that has called `restrict`.

    Raises OSError if it cannot be started: FileNotFoundError for a missing program or `cwd`.
    """
    async with contextlib.AsyncExitStack() as stack:
        out, out_end = await _pipe(stack)
        err, err_end = await _pipe(stack)
        starting = asyncio.ensure_future(
            spawn(
                argv, restrict, cwd=cwd, env=own_environment(os.environ if env is None else env),
                stdin=stack.enter_context(input_of(given)), stdout=out_end, stderr=err_end,
                start_new_session=True, pass_fds=passed,
            )
        )  # fmt: skip
        try:
            process = await asyncio.shield(starting)
        except asyncio.CancelledError:
            with contextlib.suppress(OSError):
                await _end(await starting)
            raise
        complaints = asyncio.create_task(_beginning(err))
        try:
            out_end.close()
            err_end.close()
            yield Child(out, process, complaints)
        finally:
            complaints.cancel()
            await _end(process)
            await asyncio.wait([complaints])


async def _end(process: Spawned) -> None:
    """Kill a child and its group if it still runs."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


async def _pipe(stack: contextlib.AsyncExitStack) -> tuple[asyncio.StreamReader, BinaryIO]:
    """Create a pipe. Return a reader and the write end; the stack closes both."""
    ours, theirs = os.pipe()
    end = stack.enter_context(os.fdopen(theirs, "wb", 0))
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(ours, "rb", 0)
    )
    stack.callback(transport.close)
    return reader, end


async def pieces(
    stream: asyncio.StreamReader, separator: bytes, longest: int
) -> AsyncGenerator[bytes, None]:
    """Yield the pieces of a stream between one-byte separators, each cut after `longest` bytes."""
    held = bytearray()
    while chunk := await stream.read(CHUNK_BYTES):
        *whole, rest = chunk.split(separator)
        for part in whole:
            held += part[: longest - len(held)]
            yield bytes(held)
            held.clear()
        held += rest[: longest - len(held)]
    if held:
        yield bytes(held)


async def _beginning(stream: asyncio.StreamReader) -> str:
    kept = bytearray()
    while chunk := await stream.read(CHUNK_BYTES):
        kept += chunk[: MAX_STDERR_BYTES - len(kept)]
    return kept.decode("utf-8", "replace")
