"""Measure whole commands by the kernel's accounting of CPU time; compute medians; print tables.

A benchmark is a script whose `main` yields tables and whose SIZES give the arguments: `full` for
published figures, `quick` for daily work, `tiny` for the test that it still runs. `run` is its
command line: it prints each table, then the verdicts on the targets.
"""

import argparse
import json
import os
import pty
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import targets

COMMAND = str(Path(sys.executable).parent / "ctxagent")
LEVELS = ("full", "quick", "tiny")
Rows = Mapping[str, Mapping[str, float]]
Measured = tuple[float, float]  # CPU seconds and wall seconds


class Table(NamedTuple):
    title: str
    rows: Rows


def run(
    main: Callable[..., Iterator[Table]], sizes: Mapping[str, Mapping[str, Any]], *more: str
) -> int:
    """Run the command line of a benchmark; return 1 if a count is wrong, else 0. `more` names
    arguments of `main` that are given as lists on the command line.
    """
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    parser.add_argument("--size", choices=LEVELS, default=LEVELS[0])
    for name in more:
        parser.add_argument(name, nargs="*")
    given = vars(parser.parse_args())
    tables = {}
    for table in main(**{**sizes[given.pop("size")], **{k: v for k, v in given.items() if v}}):
        report(*table)
        tables[table.title] = table.rows
    verdicts = targets.check_targets(tables)
    if verdicts:
        print(targets.table(verdicts))
    return int(any(verdict.broken for verdict in verdicts))


def report(title: str, rows: Rows) -> None:
    """Print a table for people, and the same as one line of JSON."""
    print(title)
    for name, figures in rows.items():
        print(f"  {name:<34}", *(f"{key} {value:>9.4g}" for key, value in figures.items()))
    print(json.dumps({"benchmark": title, "rows": rows}), flush=True)


def run_command(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path,
    began: Callable[[int], None] = lambda pid: None,
) -> dict[str, float]:
    """Run a command; return its wall seconds, CPU seconds (user and system, with children) and peak
    memory. `began` is called with its process ID.
    """
    started = time.perf_counter()
    with subprocess.Popen(
        command, env=dict(env), cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as child:  # fmt: skip
        began(child.pid)
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0, command
    return {
        "wall_s": time.perf_counter() - started,
        "cpu_s": used.ru_utime + used.ru_stime,
        "peak_MB": used.ru_maxrss / 1024,
    }


def cpu_seconds_of(pid: int) -> float:
    """Return the CPU seconds of a running process so far, with all threads and children."""
    seconds = time.clock_gettime((~pid << 3) | 2)  # the CPU clock of that process, in seconds
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    seconds += (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")  # ended children
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # the thread or a child has just ended
            seconds += sum(map(cpu_seconds_of, map(int, (thread / "children").read_text().split())))
    return seconds


def resident_mb_of(pid: int) -> float:
    """Return the resident memory of a running process in MB."""
    told = Path(f"/proc/{pid}/status").read_text().split()
    return int(told[told.index("VmRSS:") + 1]) / 1024


def first_paint(*, env: Mapping[str, str], cwd: Path) -> Measured:
    """Return the CPU and wall seconds until the REPL paints its prompt in a pseudo-terminal."""
    started = time.perf_counter()
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(cwd)
        os.execve(COMMAND, [COMMAND], {**env, "TERM": "xterm-256color"})
    shown = b""
    while "❯".encode() not in shown:
        shown += os.read(terminal, 65_536)
    wall, used = time.perf_counter() - started, cpu_seconds_of(pid)
    os.write(terminal, b"\x04")
    while True:
        try:
            os.read(terminal, 65_536)
        except OSError:  # the other side has ended
            break
    os.waitpid(pid, 0)
    os.close(terminal)
    return used, wall


def medians(
    acts: Mapping[str, Callable[[], Measured]], *, runs: int
) -> dict[str, dict[str, float]]:
    """Return a row with the medians of `runs` runs for each act. If there are several runs, an
    extra first run is discarded. Acts alternate, so that other load on the machine affects all of
    them equally.
    """
    taken: dict[str, list[Measured]] = {name: [] for name in acts}
    first = int(runs > 1)
    for _ in range(first + runs):
        for name, act in acts.items():
            taken[name].append(act())
    return {
        name: {
            "cpu_s": statistics.median(each[0] for each in pairs[first:]),
            "wall_s": statistics.median(each[1] for each in pairs[first:]),
        }
        for name, pairs in taken.items()
    }
