"""Run short-lived child processes that only read: start one, take its output in pieces, end it.

A child gets a process group of its own and either the bytes it is given or a closed stdin. Leaving
the block, by an error, by cancellation or early on purpose, kills the group and reaps the child.
Its stderr is read all along, so that it cannot block, and only its beginning is kept.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .programs import own_environment

MAX_STDERR_BYTES = 16_000  # bytes of stderr that are kept
CHUNK_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Child:
    """A running child."""

    out: asyncio.StreamReader  # its stdout
    _process: asyncio.subprocess.Process
    _complaints: asyncio.Task[str]

    async def end(self) -> tuple[int, str]:
        """Wait for its end; return its exit code and the beginning of its stderr.

        To be called when `out` has been read to its end.
        """
        complaints = await self._complaints
        return await self._process.wait(), complaints


@contextlib.asynccontextmanager
async def child(
    argv: Sequence[str | bytes],
    *,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    given: bytes = b"",
) -> AsyncIterator[Child]:
    """Run a child for the length of a block. `given` is all it can read from stdin.

    Raises OSError when it cannot be started: FileNotFoundError for a missing program or `cwd`.
    """
    process = await asyncio.create_subprocess_exec(
        *argv,
        cwd=cwd,
        env=own_environment(os.environ if env is None else env),
        stdin=asyncio.subprocess.PIPE if given else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    complaints = asyncio.create_task(_beginning(process.stderr))
    try:
        if process.stdin is not None:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                process.stdin.write(given)
                await process.stdin.drain()
            process.stdin.close()
        yield Child(process.stdout, process, complaints)
    finally:
        complaints.cancel()
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        await asyncio.wait([complaints])
        await process.communicate()  # takes what is left in the pipes, then reaps


async def pieces(
    stream: asyncio.StreamReader, separator: bytes, longest: int
) -> AsyncGenerator[bytes, None]:
    """Yield the pieces of a stream between separators of one byte, cut after `longest` bytes."""
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
