"""A server process of a session, with pipes to its stdin and stdout, and the reason of its end.

The server and its child processes end with the session, even if the agent is killed. Its output on
stderr is kept: one of its lines says why the server failed.
"""

import asyncio
import os
import secrets
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress

from ...tools.system import end_with_parent, orphans
from ...tools.system.process import WITH_STDIN, named
from ...tools.system.spawn import Enclosed, Spawned, spawn
from ...tools.system.take_turn import finish_despite_cancel
from ...tools.system.unicode import clean
from ..config.start_gate import ClearedStart
from ..lazy import dataclass, regex

MAX_LINE_CHARS = 300
MIN_WORDS = 5  # of a sentence; shorter lines such as "error code E404" are fields of a report

_LEVEL = regex(r"(?i)\b(warn(ing)?|info|debug|notice|trace)\b")
_FAILURE = regex(
    r"(?i)\b(\w*error|\w*exception|err!|fatal|panic(ked)?|fail(ed|ure)?|cannot|can't|could not"
    r"|unable|not found|no such|denied|refused|invalid|missing|unsatisfiable|unknown)\b"
)
_DETAIL = regex(r"\w: +\S")  # "NAME: what is wrong"


def failure_reason(output: str) -> str:
    """Return the first line that names a failure in a sentence, else the last line; "" for empty
    output. Lines of a stack are indented: they count only if no other line is found.
    """
    lines = [line.rstrip() for line in clean(output).splitlines() if line.strip()]
    outer = [line for line in lines if not line[0].isspace()]
    for candidates in (outer, lines):
        found = next((line for line in candidates if _is_reason(line)), "")
        if found:
            return found.strip()[:MAX_LINE_CHARS]
    return lines[-1].strip()[:MAX_LINE_CHARS] if lines else ""


def _is_reason(line: str) -> bool:
    failure, level = _FAILURE.search(line), _LEVEL.search(line)
    if failure is None or (level is not None and level.start() < failure.start()):
        return False
    return len(line.split()) >= MIN_WORDS or _DETAIL.search(line) is not None


MAX_UNREQUESTED_MESSAGES = 10_000  # per minute: notifications, requests, invalid lines
MAX_STDERR_CHARS = 500_000  # of the beginning, and of the newest output
CHUNK_BYTES = 1 << 16
END_TIMEOUT_S = 1.0  # after stdin is closed


class ExitInfo:
    """Why a server was stopped, and its output on stderr. `ended` is set when no more messages
    can come from the server.
    """

    def __init__(self) -> None:
        self.reason = ""
        self.ended = asyncio.Event()
        self._stderr = self._newest_stderr = ""
        self._unrequested = 0
        self._since = time.monotonic()

    def add_stderr(self, data: bytes) -> None:
        """Keep output of the server, within limits."""
        text = data.decode("utf-8", "replace")
        room = MAX_STDERR_CHARS - len(self._stderr)
        self._stderr += text[:room]
        self._newest_stderr = (self._newest_stderr + text[room:])[-MAX_STDERR_CHARS:]

    @property
    def stderr(self) -> str:
        """The output of the server, without the middle if it is long."""
        return self._stderr + self._newest_stderr

    @property
    def stderr_reason(self) -> str:
        """The line of the output that says why the server failed, "" if there is none."""
        return failure_reason(self.stderr)

    def count_unrequested(self) -> bool:
        """Count an unrequested message. Return True if there are too many per minute."""
        now = time.monotonic()
        if now - self._since > 60:
            self._unrequested, self._since = 0, now
        self._unrequested += 1
        if self._unrequested > MAX_UNREQUESTED_MESSAGES:
            self.reason = f"it sent more than {MAX_UNREQUESTED_MESSAGES:,} messages in a minute"
            return True
        return False


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """A running server and its pipes."""

    process: Spawned
    stdin: asyncio.StreamWriter
    stdout: asyncio.StreamReader
    stderr: asyncio.StreamReader
    leash_pipes: tuple[int, ...]  # pipe ends; closing them kills the server


@asynccontextmanager
async def run_server(cleared: ClearedStart, exit_info: ExitInfo) -> AsyncIterator[ServerProcess]:
    """Run a server for the length of a block. At the end, close its stdin, wait END_TIMEOUT_S for
    it to exit, then kill it and its child processes. Raises OSError.
    """
    mark = f"server-{secrets.token_hex(8)}"
    async with AsyncExitStack() as stack:
        server = await _start(stack, cleared, named(cleared.env, mark))
        stderr_reader = asyncio.create_task(_read_stderr(server.stderr, exit_info))
        try:
            yield server
        finally:
            server.stdin.close()
            await finish_despite_cancel(_end(server, mark, stderr_reader))


async def _end(server: ServerProcess, mark: str, stderr_reader: "asyncio.Task[None]") -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(server.process.wait(), END_TIMEOUT_S)
    for end in server.leash_pipes:
        os.close(end)
    await asyncio.to_thread(orphans.end, mark)
    await server.process.wait()
    await asyncio.wait([stderr_reader], timeout=END_TIMEOUT_S)  # its last output is the reason
    stderr_reader.cancel()
    await asyncio.wait([stderr_reader])


async def _start(
    stack: AsyncExitStack, cleared: ClearedStart, env: Mapping[str, str]
) -> ServerProcess:
    """Start a server that ends with this process. The stack closes the transports of its output.
    Raises OSError.
    """
    loop = asyncio.get_running_loop()
    # For stdin, stdout, stderr, the end of this process, and reports of the sandbox.
    ends = [os.pipe() for _ in range(5)]
    (stdin, into), (out, stdout), (err, stderr), (life, held), (report, told) = ends
    enclose, command = cleared.enclose, [*cleared.command]
    whole = Enclosed(command)
    try:
        if enclose:
            whole = enclose(["/bin/sh", "-c", WITH_STDIN, f"/dev/fd/{stdin}", *command])
        process = await spawn(
            (sys.executable, "-I", "-S", end_with_parent.__file__, str(life), *whole.command),
            whole.restrict,
            stdin=told if enclose else stdin, stdout=stdout, stderr=stderr,
            cwd=cleared.cwd, env=env, start_new_session=True,
            pass_fds=(life, *([stdin] if enclose else []), *whole.passed),
        )  # fmt: skip
    except (OSError, ValueError) as error:
        for end in (into, out, err, held, report):
            os.close(end)
        raise OSError(f"it cannot be started: {error}") from None
    finally:
        for end in (stdin, stdout, stderr, life, told, *whole.passed):
            os.close(end)
    from_out, from_err = asyncio.StreamReader(), asyncio.StreamReader()
    for reader, end in ((from_out, out), (from_err, err)):
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await loop.connect_read_pipe(lambda p=protocol: p, os.fdopen(end, "rb", 0))  # type: ignore[misc]
        stack.callback(transport.close)
    writing, flow = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(into, "wb", 0)
    )
    writer = asyncio.StreamWriter(writing, flow, None, loop)
    return ServerProcess(process, writer, from_out, from_err, (held, report))


async def _read_stderr(err: asyncio.StreamReader, exit_info: ExitInfo) -> None:
    while chunk := await err.read(CHUNK_BYTES):
        exit_info.add_stderr(chunk)
