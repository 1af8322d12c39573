"""Run all benchmarks, one after another, and check the targets.

    .venv/bin/python benchmarks/all.py [--size full|quick|tiny] [--json FILE] [NAME...]

Each benchmark runs in its own process, so that none is measured with the memory of another. FILE
gets all tables, the targets and a description of the machine. The exit code is 1 if a benchmark
fails or a count is wrong; a missed time target is only printed.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import targets
from measure import LEVELS, Rows

NAMES = (
    "startup", "calls", "commands", "wire", "memory", "pause", "subagents", "agents", "long_run",
    "windows", "nothing_lost", "need_chances", "replays", "questions", "loops", "echo",
    "interrupts", "completion", "context_screen", "long_reply", "recall", "sessions", "resume",
    "limits", "sandbox", "planted", "mcp_tools", "fleets", "evaluations", "whole_output", "undo",
    "proxy",
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of {', '.join(NAMES)}")
    parser.add_argument("--size", choices=LEVELS, default=LEVELS[0])
    parser.add_argument("--json", type=Path, metavar="FILE")
    given = parser.parse_args()
    if unknown := set(given.names) - set(NAMES):
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    tables: dict[str, Rows] = {}
    failed, started = [], time.perf_counter()
    for name in given.names or NAMES:
        print(f"\n== {name}", flush=True)
        if not run_one(name, given.size, tables):
            failed.append(name)
    verdicts = targets.check_targets(tables)
    machine = describe_machine()
    took = time.perf_counter() - started
    print(
        f"\n{machine['cpu']}, {machine['cores']} cores, Python {machine['python']}: {took:,.0f} s"
    )
    print(targets.table(verdicts))
    if failed:
        print(f"failed: {', '.join(failed)}")
    if given.json:
        told = [{**asdict(v.target), "measured": v.measured, "met": v.met} for v in verdicts]
        whole = {"machine": machine, "size": given.size, "tables": tables, "targets": told}
        given.json.write_text(json.dumps(whole, indent=1) + "\n", "utf-8")
    return int(bool(failed))


def run_one(name: str, size: str, tables: dict[str, Rows]) -> bool:
    """Run one benchmark, print its output and collect its tables; return True if it succeeded."""
    script = Path(__file__).with_name(f"{name}.py")
    with subprocess.Popen(
        [sys.executable, str(script), "--size", size], stdout=subprocess.PIPE, text=True
    ) as child:
        for line in child.stdout or ():
            print(line, end="", flush=True)
            if line.startswith("{"):
                told = json.loads(line)
                tables[told["benchmark"]] = told["rows"]
    return child.returncode == 0


def describe_machine() -> Mapping[str, object]:
    cpus = Path("/proc/cpuinfo")
    named: Sequence[str] = cpus.read_text().splitlines() if cpus.exists() else ()
    models = [line.partition(":")[2].strip() for line in named if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "load": os.getloadavg(),
    }


if __name__ == "__main__":
    sys.exit(main())
