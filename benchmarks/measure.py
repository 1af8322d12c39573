"""Measuring whole commands: CPU seconds from the kernel's own account, medians and ratios."""

import json
import os
import pty
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

COMMAND = str(Path(sys.executable).parent / "ctxagent")


def cpu(command: Sequence[str], *, env: Mapping[str, str], cwd: Path) -> tuple[float, float]:
    """CPU seconds (user and system, children included) and wall seconds of one run."""
    before, started = _children(), time.perf_counter()
    subprocess.run(
        command, env=dict(env), cwd=cwd, check=True, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    return _children() - before, time.perf_counter() - started


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def first_paint(*, env: Mapping[str, str], cwd: Path) -> tuple[float, float]:
    """CPU and wall seconds of the REPL until its prompt is painted in a pseudo-terminal."""
    started = time.perf_counter()
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(cwd)
        os.execve(COMMAND, [COMMAND], {**env, "TERM": "xterm-256color"})
    shown = b""
    while "❯".encode() not in shown:
        shown += os.read(terminal, 65_536)
    wall = time.perf_counter() - started
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    os.write(terminal, b"\x04")
    while True:
        try:
            os.read(terminal, 65_536)
        except OSError:  # the other side has ended
            break
    os.waitpid(pid, 0)
    os.close(terminal)
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), wall


def median(run: Callable[[], tuple[float, float]], *, runs: int = 7) -> tuple[float, float]:
    """The medians of `runs` runs, after one that does not count."""
    run()
    pairs = [run() for _ in range(runs)]
    return statistics.median(p[0] for p in pairs), statistics.median(p[1] for p in pairs)


def report(title: str, rows: Mapping[str, Mapping[str, float]]) -> None:
    """A table for people, and the same as one line of JSON."""
    print(title)
    for name, figures in rows.items():
        print(f"  {name:<34}", *(f"{key} {value:>9.4g}" for key, value in figures.items()))
    print(json.dumps({"benchmark": title, "rows": rows}))
