"""Short-lived child processes that only read: start one, take its output piece by piece, end it.

A child gets a process group of its own and either the bytes it is given or a closed stdin. Leaving
the block, by an error, by cancellation or early on purpose, kills the group and reaps the child.
What it says on stderr is read all along, so it cannot block on that, and only its beginning is
kept.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .programs import own_environment

COMPLAINTS = 16_000  # bytes of stderr that are kept
CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Child:
    """A running child: `out` is its stdout."""

    out: asyncio.StreamReader
    _process: asyncio.subprocess.Process
    _complaints: asyncio.Task[str]

    async def end(self) -> tuple[int, str]:
        """Wait until it ends by itself: its exit code and the beginning of its stderr. To be
        called when `out` has been read to its end."""
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
    """A child for the length of a block. `given` is all it can read from stdin.

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
    """The pieces of a stream between single-byte separators. Of each, `longest` bytes are kept."""
    held = bytearray()
    while chunk := await stream.read(CHUNK):
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
    while chunk := await stream.read(CHUNK):
        kept += chunk[: COMPLAINTS - len(kept)]
    return kept.decode("utf-8", "replace")
