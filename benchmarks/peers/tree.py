"""Run one command with all its descendant processes: measure their CPU time and memory, and end
them.

Only one command can run at a time: every descendant of this process belongs to it, including
orphans.
"""

import ctypes
import os
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
TICKS = os.sysconf("SC_CLK_TCK")


class Tree:
    """A running command with its output in a file."""

    def __init__(self) -> None:
        self.peak = 0  # bytes
        self._over = threading.Event()
        self._watch = threading.Thread(target=self._sample, daemon=True)

    def start(
        self, command: Sequence[str], *, env: Mapping[str, str], cwd: Path, printed: Path
    ) -> None:
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._used, self._started = _reaped(), time.perf_counter()
        with printed.open("wb") as out:
            self._process = subprocess.Popen(
                command, env=dict(env), cwd=cwd, stdin=subprocess.DEVNULL, stdout=out,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        self._watch.start()

    def since(self) -> tuple[float, float]:
        """Return the CPU and wall seconds since the start."""
        return sum(map(_ticks, below(os.getpid()))) / TICKS, time.perf_counter() - self._started

    def end(self, limit: float) -> tuple[int | None, float, float]:
        """Wait for the command; return its exit status (None on timeout), CPU and wall seconds.
        Remaining descendants are killed.
        """
        try:
            status: int | None = self._process.wait(limit)
        except subprocess.TimeoutExpired:
            status = None
        wall = time.perf_counter() - self._started
        self._over.set()
        self._watch.join()
        while left := list(below(os.getpid())):
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for pid in left:
                _bury(pid)
        self._process.poll()
        return status, _reaped() - self._used, wall

    def _sample(self) -> None:
        while not self._over.wait(0.1):
            there = list(below(os.getpid()))
            self.peak = max(self.peak, sum(map(_memory, there)))
            for pid in there:  # this process must reap terminated orphans
                if pid != self._process.pid and _fields(pid)[:2] == ["Z", str(os.getpid())]:
                    _bury(pid)


def below(pid: int) -> Iterator[int]:
    """Yield all current descendants of a process."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        fields = _fields(int(entry.name))
        if fields:
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    todo = children.get(pid, [])
    while todo:
        yield (child := todo.pop())
        todo += children.get(child, [])


def _fields(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the state on; empty if the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _ticks(pid: int) -> int:
    """Return the CPU time of a process and its reaped children, in clock ticks."""
    return sum(map(int, _fields(pid)[11:15]))


def _memory(pid: int) -> int:
    """Return the proportional set size (PSS) in bytes."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def _bury(pid: int) -> None:
    """Wait for a terminated child; ignore processes that are not children of this one."""
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)


def _reaped() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
