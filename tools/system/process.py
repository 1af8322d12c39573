"""Run a shell command as a process tree: start it, read its output, end all of it.

stdout and stderr go to a `Sink` through one pipe, in order of arrival. Each command has a mark in
its environment. Together with the sessions and parents of all processes, the mark finds descendants
that left the process group or lost their parent.
"""

import asyncio
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import IO

from ...agent.errors import ToolError
from . import process_table
from .capture import Sink
from .process_table import all_processes, birth
from .programs import program
from .spawn import Enclosed, SideService, Spawned, spawn
from .take_turn import in_thread, take_turn

MISSING_CWD = (
    "The working directory does not exist any more: {cwd}. Nothing can be done in it. Tell \
the user, who can put it back or start where it is now."
)

TREE_VARIABLE = "RUN_BY_CTXAGENT"  # not CTXAGENT_…: a nested ctxagent reads those
GRACE_CENTISECONDS = 20  # hundredths of a second between SIGTERM and SIGKILL

# The sandbox reports on stdin, so the command gets its stdin from another descriptor.
WITH_STDIN = 'exec "$@" <"$0"'
SANDBOX_STANDS = b"up\n"  # a sandbox writes it to its stdin before the command starts
START_TRIES = 3  # for a sandbox that ends before it has started
_CHUNK = 65_536


class Process:
    """A running command. `sink` may be replaced while it runs."""

    def __init__(
        self,
        child: Spawned,
        mark: str,
        pipe: int,
        sink: Sink,
        report: int | None = None,
        service: SideService | None = None,
    ) -> None:
        self.sink = sink
        self._child = child
        self._boxed = report is not None
        self._left = False
        self._tree = Tree(mark, child.pid, birth(child.pid))
        self._pipe = pipe
        self._closed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(pipe, self._read)
        self._service = service
        self._serving = asyncio.ensure_future(service.serve()) if service else None
        self._report = report
        if report is not None:
            self._loop.add_reader(report, self._read_report)

    @classmethod
    async def start(
        cls,
        command: str,
        *,
        cwd: Path,
        env: Mapping[str, str],
        sink: Sink,
        given: bytes = b"",
        enclose: Callable[[list[str]], Enclosed] | None = None,
        stderr: int = subprocess.STDOUT,
    ) -> "Process":
        """Run `command` in bash (sh if bash is missing) in its own session, with `given` as stdin.

        `enclose` wraps the command line in a sandbox; a thread calls it.
        `stderr` is a descriptor for stderr; by default it goes to the sink. Raises ToolError if the
        command cannot start. On cancellation no process is left.
        """
        spawning = asyncio.ensure_future(
            cls._spawn(command, cwd, env, sink, given, enclose, stderr)
        )
        try:
            return await asyncio.shield(spawning)
        except asyncio.CancelledError:
            with suppress(ToolError):
                await (await spawning).end()
            raise

    @classmethod
    async def _spawn(
        cls,
        command: str,
        cwd: Path,
        env: Mapping[str, str],
        sink: Sink,
        given: bytes,
        enclose: Callable[[list[str]], Enclosed] | None,
        stderr: int,
    ) -> "Process":
        await take_turn()
        mark = secrets.token_hex(8)
        marked = named(env, mark)
        with input_of(given) as stdin:
            return await cls._begun(command, cwd, marked, mark, sink, stdin, enclose, stderr)

    @classmethod
    async def _begun(
        cls,
        command: str,
        cwd: Path,
        env: Mapping[str, str],
        mark: str,
        sink: Sink,
        stdin: IO[bytes] | int,
        enclose: Callable[[list[str]], Enclosed] | None,
        stderr: int,
    ) -> "Process":
        """Start a command, several times if its sandbox does not start. Raises ToolError."""

        def enclosed() -> Enclosed:
            argv = [program("bash", env.get("PATH")) or "/bin/sh", "-c", "--", command]
            if not enclose:
                return Enclosed(argv)
            if isinstance(stdin, int):
                return enclose(argv)
            given = os.dup(stdin.fileno())
            try:
                whole = enclose(["/bin/sh", "-c", WITH_STDIN, f"/dev/fd/{given}", *argv])
            except OSError:
                os.close(given)
                raise
            return replace(whole, passed=(*whole.passed, given))

        tries_left = START_TRIES
        while True:
            try:
                whole = await in_thread(enclosed)  # hundreds of file system calls
            except OSError as error:
                raise ToolError(_refusal(error, command, cwd)) from error
            child, pipe, report = await cls._started(whole, command, cwd, env, stdin, stderr)
            tries_left -= 1
            if report is None or await _is_up(report) or not tries_left:
                return cls(child, mark, pipe, sink, report, whole.service)
            await child.wait()
            _close(pipe, report)

    @classmethod
    async def _started(
        cls,
        whole: Enclosed,
        command: str,
        cwd: Path,
        env: Mapping[str, str],
        stdin: IO[bytes] | int,
        stderr: int,
    ) -> tuple[Spawned, int, int | None]:
        """Start a command line. Return it with its output pipe and the report pipe of a sandbox.
        Raises ToolError.
        """
        pipe, writer = os.pipe()
        report, told = os.pipe() if whole.reports else (None, None)
        for end in filter(None, (pipe, report)):
            os.set_blocking(end, False)
        try:
            child = await spawn(
                whole.command,
                whole.restrict,
                stdin=stdin if told is None else told,
                stdout=writer,
                stderr=stderr,
                cwd=cwd,
                env=env,
                start_new_session=True,
                pass_fds=whole.passed,
            )
        except asyncio.CancelledError:
            _close(pipe, report)
            raise
        except (OSError, ValueError) as error:
            _close(pipe, report)
            raise ToolError(_refusal(error, command, cwd)) from error
        finally:
            _close(writer, told, *whole.passed)
        return child, pipe, report

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def exit_code(self) -> int | None:
        """The shell's exit code: None while it runs, -N if signal N ended it."""
        return self._child.returncode

    @property
    def running(self) -> bool:
        """Whether the shell runs, or one of its processes has the output open. Processes in a
        sandbox end with the shell.
        """
        return self.exit_code is None or not self._closed.is_set()

    async def exited(self, seconds: float | None = None) -> bool:
        """Wait for the shell to end. Return False if it still runs after `seconds`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._child.wait()
        return self.exit_code is not None

    async def finished(self, seconds: float | None = None) -> bool:
        """Wait until it is no longer `running`. Return False if it still is after `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                await self._child.wait()
                await self._closed.wait()
        except TimeoutError:
            self._drain()  # a busy event loop may not have read all output
        return not self.running

    @property
    def refused(self) -> Sequence[str]:
        """Hosts that the sandbox did not let it reach."""
        return self._service.refused if self._service else ()

    @property
    def reached(self) -> Sequence[str]:
        """Hosts that the sandbox let it reach by name."""
        return self._service.reached if self._service else ()

    def left(self) -> bool:
        """Return True if an ended command had left processes running, which the sandbox ended."""
        self._read_report()
        return self._left

    def survivors(self) -> list[int]:
        """Return the living processes of the tree, the shell first."""
        return sorted(self._tree.members(), key=lambda pid: (pid != self.pid, pid))

    async def end(self) -> None:
        """End the whole tree: send SIGTERM, wait a moment, send SIGKILL. Pending output goes to the
        sink. Cancellation skips the wait, but still kills the tree.
        """
        try:
            # Without its first process the sandbox ends at once, without the wait.
            self._signal(signal.SIGTERM, spared=self.pid if self._boxed else None)
            for _ in range(GRACE_CENTISECONDS):
                if not (self._tree.is_alive() or self.survivors()):
                    break
                await asyncio.sleep(0.01)
        finally:
            self._kill()
            self._drain()
            self._close()
            self._close_report()
        await self.exited(5)  # a killed process that takes longer hangs in the kernel

    def _kill(self) -> None:
        """Kill in several rounds, since processes may fork in between. The limit is for processes
        of another user, which cannot be killed.
        """
        for _ in range(25):
            if not self._signal(signal.SIGKILL):
                return
            time.sleep(0.002)

    def _signal(self, number: signal.Signals, spared: int | None = None) -> bool:
        """Send a signal to the tree except `spared`. Return True if the tree had processes."""
        pids = self.survivors()
        send_signal((pid for pid in pids if pid != spared), number)
        if self.running and not pids:  # the process table is empty here
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)
        return bool(pids)

    def _read(self) -> bool:
        """Read from the pipe. Return True if there may be more."""
        try:
            data = os.read(self._pipe, _CHUNK)
        except BlockingIOError:
            return False
        if data:
            self.sink.feed(data)
        else:
            self._close()
        return bool(data)

    def _drain(self) -> None:
        for _ in range(
            32
        ):  # more than a full pipe, but bounded: an unkillable process may write on
            if self._closed.is_set() or not self._read():
                return

    def _read_report(self) -> None:
        """Read the sandbox's report: processes were left running, or no more reports."""
        if self._report is None:
            return
        with suppress(BlockingIOError):
            told = os.read(self._report, 64)
            self._left = self._left or bool(told)
            if not told:
                self._close_report()

    def _close_report(self) -> None:
        if self._report is not None:
            self._loop.remove_reader(self._report)
            os.close(self._report)
            self._report = None

    def _close(self) -> None:
        if not self._closed.is_set():
            self._loop.remove_reader(self._pipe)
            os.close(self._pipe)
            if self._serving:
                self._serving.cancel()
            self._closed.set()
            self.sink.close()


async def _is_up(report: int) -> bool:
    """Wait until a sandbox reports that it started. Return False if it ends before, for example
    because a path that it was to hide has just disappeared.
    """
    loop, told = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(report, told.set)
    try:
        await told.wait()
    finally:
        loop.remove_reader(report)
    return os.read(report, len(SANDBOX_STANDS)) == SANDBOX_STANDS


def _close(*files: int | None) -> None:
    for file in files:
        if file is not None:
            os.close(file)


@contextmanager
def input_of(data: bytes) -> Iterator[IO[bytes] | int]:
    """Yield a file with `data` as stdin. With a file, a child that reads slowly or never cannot
    block us.
    """
    if not data:
        yield subprocess.DEVNULL
        return
    with unnamed_file(data) as file:
        yield file


def unnamed_file(data: bytes) -> IO[bytes]:
    """Return an open file with `data`. It is in memory if possible: a sandbox may not open one in
    the folder of temporary files.
    """
    in_memory = sys.platform == "linux"
    file: IO[bytes] = (
        os.fdopen(os.memfd_create("data"), "w+b") if in_memory else tempfile.TemporaryFile()  # noqa: SIM115
    )
    file.write(data)
    file.seek(0)
    return file


def ending(code: int) -> str:
    """Return an exit code as text: `exit 1`, `killed by SIGKILL`, `exit 139 (128 + SIGSEGV)`."""
    if code < 0:
        return f"killed by {_signal_name(-code)}"
    name = _signal_name(code - 128) if code > 128 else ""
    return f"exit {code} (128 + {name})" if name.startswith("SIG") else f"exit {code}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _refusal(error: OSError | ValueError, command: str, cwd: Path) -> str:
    if not cwd.is_dir():
        return MISSING_CWD.format(cwd=cwd)
    if isinstance(error, ValueError):
        return "The command holds a NUL character, which no command line can."
    if len(command) > 100_000:
        return (
            f"The command is too long ({len(command):,} characters): "
            "write it to a file and run that file."
        )
    return f"The shell could not be started in {cwd}: {error.strerror or error}."


class Tree:
    """The living processes of one command: all with `mark`, or with a parent or session in the
    tree. A process once found stays in the tree, even if its parents end.

    `leader` is the first process. A process with its number but another `born` is unrelated.
    """

    def __init__(self, mark: str, leader: int, born: bytes | None) -> None:
        self._mark = mark
        self._sessions = {leader}
        self._born = {leader: born}

    def is_alive(self) -> bool:
        """Return True if one of the processes found last is alive. This is cheap, as many trees may
        end at once.
        """
        return any(born and birth(pid) == born for pid, born in self._born.items())

    def members(self) -> set[int]:
        table = all_processes()
        found = {
            pid
            for pid, row in table.items()
            if self._born.get(pid) == row.born
            or self._mark.encode() in process_table.TABLE.environment(pid)
        }
        grew = True
        while grew:
            self._sessions |= {table[pid].session for pid in found}
            # A session can outlive its leader. If an unrelated process has the leader's PID, it is
            # another session. Session 0 means processes from outside a container.
            sessions = {s for s in self._sessions - {0} if s in found or s not in table}
            more = {p for p, row in table.items() if row.parent in found or row.session in sessions}
            grew = not more <= found
            found |= more
        self._born = {pid: table[pid].born for pid in found}
        return found


def named(env: Mapping[str, str], name: str) -> dict[str, str]:
    """Return an environment with a further name by which its processes can be found."""
    return {
        **env,
        TREE_VARIABLE: f"{env[TREE_VARIABLE]}:{name}" if env.get(TREE_VARIABLE) else name,
    }


def send_signal(pids: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to these processes, except missing ones and those of other users."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
