"""How messages go to an MCP server that is a program, and come back: one JSON object a line
(https://modelcontextprotocol.io/specification/2025-11-25/basic/transports).

The server is a child of this process, which ends with it also where it is killed. It is given the
few variables that the protocol names and those of its own settings: no keys. A message may have
MAX_MESSAGE_BYTES; what it says beside its messages is kept in part, to be told when it fails.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....tools.system.programs import program
from ....tools.system.spawn import Spawned, spawn

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

    from .server_config import McpServerConfig

MAX_MESSAGE_BYTES = 32 * 1024 * 1024
MAX_COMPLAINT_BYTES = 2_000  # of what it writes to stderr, its end
GRACE_S = 2.0  # seconds that it has to end by itself once its input is closed

_VARIABLES = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG", "TMPDIR")


@contextlib.asynccontextmanager
async def program_transport(
    config: "McpServerConfig",
    environ: Mapping[str, str],
    cwd: Path,
    ended: Callable[[str], None],
) -> "AsyncIterator[TransportStreams]":
    """Run a server for the length of a block, and yield what reads its messages and what takes
    those for it. `ended` is told why no more will come. Raises OSError."""
    import anyio

    env = {name: environ[name] for name in _VARIABLES if name in environ} | {**config.env}
    async with contextlib.AsyncExitStack() as stack:
        child, stdin, stdout, stderr = await _start(config, env, config.cwd or cwd, stack)
        complaints = bytearray()
        to_session, incoming = anyio.create_memory_object_stream[Any](16)
        outgoing, from_session = anyio.create_memory_object_stream[Any](16)
        tasks = [
            asyncio.create_task(_keep_end(stderr, complaints)),
            asyncio.create_task(_write(from_session, stdin)),
            asyncio.create_task(_read(stdout, to_session, child, complaints, ended)),
        ]
        try:
            yield incoming, outgoing
        finally:
            stdin.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GRACE_S):
                    await child.wait()
            _kill(child)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            for stream in (to_session, incoming, outgoing, from_session):
                stream.close()


async def _start(
    config: "McpServerConfig", env: Mapping[str, str], cwd: Path, stack: contextlib.AsyncExitStack
) -> tuple[Spawned, asyncio.StreamWriter, asyncio.StreamReader, asyncio.StreamReader]:
    """Start the server; return it with what writes to it and reads from it."""
    loop = asyncio.get_running_loop()
    given, taken = os.pipe()
    protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader())
    transport, _ = await loop.connect_write_pipe(lambda: protocol, os.fdopen(taken, "wb", 0))
    stack.callback(transport.close)
    readers, ends = [], []
    for _ in range(2):
        ours, theirs = os.pipe()
        reader = asyncio.StreamReader(limit=MAX_MESSAGE_BYTES)
        incoming = partial(asyncio.StreamReaderProtocol, reader)
        pipe, _ = await loop.connect_read_pipe(incoming, os.fdopen(ours, "rb", 0))
        stack.callback(pipe.close)
        readers.append(reader)
        ends.append(theirs)
    # The kernel ends the server with this process (prctl(2), PR_SET_PDEATHSIG).
    tied = program("setpriv", env.get("PATH"))
    command = [tied, "--pdeathsig", "KILL", "--", *config.command] if tied else config.command
    try:
        child = await asyncio.shield(
            spawn(
                [*command], env=dict(env), cwd=cwd, stdin=given, stdout=ends[0], stderr=ends[1],
                start_new_session=True,
            )
        )  # fmt: skip
    finally:
        for descriptor in (given, *ends):
            os.close(descriptor)
    return child, asyncio.StreamWriter(transport, protocol, None, loop), readers[0], readers[1]


async def _read(
    stdout: asyncio.StreamReader,
    to_session: Any,
    child: Spawned,
    complaints: bytearray,
    ended: Callable[[str], None],
) -> None:
    """Hand on what the server says, until it has ended or says too much at once."""
    import anyio
    from mcp.shared.message import SessionMessage
    from mcp.types import jsonrpc_message_adapter

    why = ""
    try:
        while line := await stdout.readline():
            try:
                message = SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
            except ValueError:
                why = f"what it says is no message: {line[:80]!r}"
                continue
            await to_session.send(message)
    except ValueError:
        why = f"a message of more than {MAX_MESSAGE_BYTES >> 20} MB"
        _kill(child)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        return
    await child.wait()
    said = " ".join(complaints.decode("utf-8", "replace").split())
    code = child.returncode or 0
    how = f"killed by signal {-code}" if code < 0 else f"exit {code}"
    ended(why or f"it has ended ({how}){f': {said[-300:]}' if said else ''}")
    to_session.close()


async def _write(from_session: Any, stdin: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        async for each in from_session:
            text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
            stdin.write(text.encode() + b"\n")
            await stdin.drain()


async def _keep_end(stderr: asyncio.StreamReader, kept: bytearray) -> None:
    while data := await stderr.read(1 << 16):
        kept += data
        del kept[:-MAX_COMPLAINT_BYTES]


def _kill(child: Spawned) -> None:
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
