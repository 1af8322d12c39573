"""One command with all processes below it: their CPU time, their memory, and their end.

Only one may run at a time: whatever descends from this process belongs to it, also what has lost
its parent.
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
    """A command that runs, with what it prints going to a file."""

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
        """CPU and wall seconds from the start until now."""
        return sum(map(_ticks, below(os.getpid()))) / TICKS, time.perf_counter() - self._started

    def end(self, limit: float) -> tuple[int | None, float, float]:
        """Wait for it. Its exit status, None when the time was up, and CPU and wall seconds. What
        is left of it afterwards is killed."""
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
            for pid in there:  # what has lost its parent and ended is ours to wait for
                if pid != self._process.pid and _fields(pid)[:2] == ["Z", str(os.getpid())]:
                    _bury(pid)


def below(pid: int) -> Iterator[int]:
    """All descendants of a process that are there now."""
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
    """What /proc says of a process, from its state on; nothing when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _ticks(pid: int) -> int:
    """CPU time of a process and of its children that have ended."""
    return sum(map(int, _fields(pid)[11:15]))


def _memory(pid: int) -> int:
    """Bytes of memory; what is shared by n processes counts as the n-th part."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def _bury(pid: int) -> None:
    """Wait for a child that ends; one that is not ours is its parent's to wait for."""
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)


def _reaped() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
