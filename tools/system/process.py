"""A shell command as a tree of processes: start it, hear it out, end all of it.

Output goes to a `Sink` in order of arrival, stdout and stderr through one pipe. Every command
carries a mark in its environment; with the sessions and the parentage of all processes, that finds
descendants which left the process group or lost their parent.
"""

import asyncio
import os
import secrets
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from ...agent.errors import ToolError
from . import process_table
from .capture import Sink
from .process_table import all_processes, birth
from .programs import program
from .spawn import Beside, Enclosed, Spawned, spawn
from .take_turn import take_turn

MISSING_CWD = (
    "The working directory does not exist any more: {cwd}. Nothing can be done in it. Tell \
the user, who can put it back or start where it is now."
)

TREE_VARIABLE = "RUN_BY_CTXAGENT"  # not CTXAGENT_…: those are settings, also for one of us inside
GRACE_CENTISECONDS = 20  # hundredths of a second between asking a tree to end and killing it

SANDBOX_STANDS = b"up\n"  # what a sandbox says on its stdin before the command begins
START_TRIES = 3  # of a sandbox that ends before it stands
_CHUNK = 65_536


class Process:
    """A running command. `sink` may be exchanged while it runs."""

    def __init__(
        self,
        child: Spawned,
        mark: str,
        pipe: int,
        sink: Sink,
        report: int | None = None,
        beside: Beside | None = None,
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
        self._beside = beside
        self._serving = asyncio.ensure_future(beside.serve()) if beside else None
        self._report = report
        if report is not None:
            self._loop.add_reader(report, self._heed)

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
        """Run `command` in bash (sh where there is none) with `given` on stdin, in a session of
        its own. `enclose` puts the command line into a sandbox, where stdin is empty; a thread
        calls it. `stderr` is a descriptor for what would else go to the sink. Raises ToolError when
        that cannot be done. Cancelled, it leaves nothing behind."""
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

        def enclosed() -> Enclosed:
            argv = [program("bash", env.get("PATH")) or "/bin/sh", "-c", "--", command]
            return enclose(argv) if enclose else Enclosed(argv)

        tries_left = START_TRIES
        while True:
            try:
                whole = await asyncio.to_thread(enclosed)  # hundreds of file system calls
            except OSError as error:
                raise ToolError(_refusal(error, command, cwd)) from error
            child, pipe, report = await cls._started(whole, command, cwd, marked, given, stderr)
            tries_left -= 1
            if report is None or await _is_up(report) or not tries_left:
                return cls(child, mark, pipe, sink, report, whole.beside)
            await child.wait()
            _close(pipe, report)

    @classmethod
    async def _started(
        cls,
        whole: Enclosed,
        command: str,
        cwd: Path,
        env: Mapping[str, str],
        given: bytes,
        stderr: int,
    ) -> tuple[Spawned, int, int | None]:
        """Start a command line; return it with the pipe of its output and the one where a sandbox
        reports. Raises ToolError."""
        pipe, writer = os.pipe()
        report, told = os.pipe() if whole.reports else (None, None)
        for end in filter(None, (pipe, report)):
            os.set_blocking(end, False)
        try:
            with input_of(given) as stdin:
                child = await spawn(
                    whole.command,
                    whole.give_up,
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
        """The shell's: None while it runs, -N when signal N ended it."""
        return self._child.returncode

    @property
    def running(self) -> bool:
        """Whether the shell runs, or something it started still holds its output open. What a
        sandbox holds ends with it."""
        return self.exit_code is None or not self._closed.is_set()

    async def exited(self, seconds: float | None = None) -> bool:
        """Wait for the shell to end; False when it has not after `seconds`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._child.wait()
        return self.exit_code is not None

    async def finished(self, seconds: float | None = None) -> bool:
        """Wait until it is no longer `running`; False when it still is after `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                await self._child.wait()
                await self._closed.wait()
        except TimeoutError:
            self._drain()  # a busy loop may not have come round to what is there
        return not self.running

    @property
    def refused(self) -> Sequence[str]:
        """What its sandbox has kept it from, by name."""
        return self._beside.refused if self._beside else ()

    def left(self) -> bool:
        """Return True if a command that has ended had left processes running, which its sandbox
        ended."""
        self._heed()
        return self._left

    def survivors(self) -> list[int]:
        """Return the living processes of the tree, the shell first."""
        return sorted(self._tree.members(), key=lambda pid: (pid != self.pid, pid))

    async def end(self) -> None:
        """End the whole tree: ask it, wait a moment, kill what is left. What it had written goes
        to the sink. When this is cancelled the moment is cut short, the tree is killed all the
        same."""
        try:
            # With its first process a sandbox is gone at once, and the moment with it.
            self._signal(signal.SIGTERM, spared=self.pid if self._boxed else None)
            for _ in range(GRACE_CENTISECONDS):
                if not (self._tree.stands() or self.survivors()):
                    break
                await asyncio.sleep(0.01)
        finally:
            self._kill()
            self._drain()
            self._close()
            self._ignore()
        await self.exited(5)  # an exit that takes longer hangs in the kernel: nothing helps

    def _kill(self) -> None:
        """Several rounds, as what forks may have forked in between; a limit, as a process of
        another user does not obey."""
        for _ in range(25):
            if not self._signal(signal.SIGKILL):
                return
            time.sleep(0.002)

    def _signal(self, number: signal.Signals, spared: int | None = None) -> bool:
        """Send a signal to all of the tree but one; whether there was any of it."""
        pids = self.survivors()
        send_signal((pid for pid in pids if pid != spared), number)
        if self.running and not pids:  # no process is seen here
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)
        return bool(pids)

    def _read(self) -> bool:
        """Take what is in the pipe; whether there may be more."""
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
        for _ in range(32):  # more than a pipe holds; a writer we may not kill could go on forever
            if self._closed.is_set() or not self._read():
                return

    def _heed(self) -> None:
        """Take what the shell of the sandbox tells: that something was left, or nothing more."""
        if self._report is None:
            return
        with suppress(BlockingIOError):
            told = os.read(self._report, 64)
            self._left = self._left or bool(told)
            if not told:
                self._ignore()

    def _ignore(self) -> None:
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
    """Wait until a sandbox says that it stands, False when it ends before: what it was to hide may
    have gone in that very moment."""
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
    """Return a file to read `data` from: a child may never read it, or only slowly."""
    if not data:
        yield subprocess.DEVNULL
        return
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        yield file


def ending(code: int) -> str:
    """Return an exit code in words: `exit 1`, `killed by SIGKILL`, `exit 139 (128 + SIGSEGV)`."""
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
    """The live processes of one command: all that carry `mark` or have a parent or a session in
    common with the tree. What was once found stays found, whatever becomes of its parents.

    `leader` is the first process; one with another `born` is a stranger that got its number.
    """

    def __init__(self, mark: str, leader: int, born: bytes | None) -> None:
        self._mark = mark
        self._sessions = {leader}
        self._born = {leader: born}

    def stands(self) -> bool:
        """Return True if one of the processes found last is alive; cheap, as many trees may end at
        once."""
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
            # A session outlives its leader; with a strange leader it is another session. 0 stands
            # for all that come from outside a container.
            sessions = {s for s in self._sessions - {0} if s in found or s not in table}
            more = {p for p, row in table.items() if row.parent in found or row.session in sessions}
            grew = not more <= found
            found |= more
        self._born = {pid: table[pid].born for pid in found}
        return found


def named(env: Mapping[str, str], name: str) -> dict[str, str]:
    """Return an environment whose processes are found by a name, next to those that it has."""
    return {
        **env,
        TREE_VARIABLE: f"{env[TREE_VARIABLE]}:{name}" if env.get(TREE_VARIABLE) else name,
    }


def send_signal(pids: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to those of these processes that are there and take it."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
