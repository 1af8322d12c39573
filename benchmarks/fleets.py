"""Measure a fleet: repeated kills, its overhead, and a manifest of 10,000 tasks.

The real command runs against the strict server of the tests, which injects faults into 15 % of the
requests. Tasks have two calls and an answer and run in separate worktrees of small repositories.
Two thirds of the `kills` end the fleet itself, which is restarted; the others end a random agent;
with Parsl, one of two workers is killed. `twice` counts turns that began twice and requests that
were repeated although their reply was recorded; `bill_off` is the difference in dollars between the
bill and the sum of the logs; `cut` counts complete server replies that are in no log.

The overhead is measured against `xargs -P 4 ctxagent -p` over the same repositories, with a
worktree for each task and in the repositories themselves, on a server that answers immediately:
`x_wall` and `x_cpu` are ratios of time. `start_cpu_s` is the CPU time until the first task is in
the ledger, `page_cpu_s` the CPU time of the first live page, `next_page_cpu_ms` of a later page;
`stat_calls` counts the stat system calls of `status`, `resume_stat_calls` those of a run until its
first task is in the ledger. 200 tasks of the long manifest are running.
"""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import measure

from ctxagent.addons.fleet.ledger import AttemptOutcome, FleetLedger
from ctxagent.addons.fleet.manifest import Manifest
from ctxagent.agent.session.entries import Assistant, Entry, ToolResult
from ctxagent.agent.session.log import LOG_NAME, Entries, encode_line
from ctxagent.tests.support import fleet as support
from ctxagent.tests.support.server.faults import PASSING, Faults
from ctxagent.tests.support.server.loopback import Server

SIZES: dict[str, dict[str, Any]] = {
    "full": {"tasks": 60, "repositories": 12, "kills": 20, "runs": 3, "lines": 10_000},
    "quick": {"tasks": 16, "repositories": 4, "kills": 6, "runs": 1, "lines": 10_000},
    "tiny": {"tasks": 1, "repositories": 1, "kills": 0, "runs": 1, "lines": 100, "parsl": False},
}
JOBS = 4
AT = "2026-11-21T22:40:58.123Z"  # timestamp of all entries
STRACE = ("strace", "-f", "-e", "trace=stat,lstat,newfstatat,statx", "-o")
RUNNING = 200  # running or interrupted tasks of a long manifest


def main(
    tasks: int, repositories: int, kills: int, runs: int, lines: int, parsl: bool = True
) -> Iterator[measure.Table]:
    """Yield the tables."""
    aims = ["agent" if kill % 3 == 2 else "fleet" for kill in range(kills)]
    rows = {"this machine": killed(tasks, repositories, aims, "--jobs", str(JOBS))}
    if parsl:
        more = ("--config", "parsl.py")
        rows["Parsl, a worker killed"] = killed(tasks, repositories, ["worker"], *more)
    yield measure.Table("a fleet that is killed", rows)
    yield measure.Table("a fleet and xargs", overhead(tasks, repositories, runs))
    yield measure.Table("a long manifest", long_manifest(lines))


def killed(tasks: int, repositories: int, aims: Sequence[str], *words: str) -> dict[str, float]:
    """Run one fleet to its end, with kills; return its figures."""
    plan = Faults(support.work, rate=0.15, seed=1, kinds=PASSING)
    with tempfile.TemporaryDirectory(prefix="fleet-") as folder, Server(plan) as server:
        fleet = support.Fleet(Path(folder), repositories=repositories)
        (fleet.place.project / "parsl.py").write_text(support.PARSL_CONFIG)
        fleet.tasks(tasks)
        env, began = fleet.place.server(server.url), time.perf_counter()
        code, said = support.run_with_kills(fleet, server, aims, *words, env=env)
        wall, status = time.perf_counter() - began, fleet.status()
        if code:
            print(said, file=sys.stderr)
        logged = sum(
            isinstance(entry, Assistant) and entry.purpose != "attempt"
            for log in fleet.logs()
            for entry in Entries(log)
        )
        found = list(support.paid_twice(fleet, server))
        print(*found, sep="\n", end="\n" if found else "", file=sys.stderr)
        return {
            "tasks": tasks,
            "not_done": tasks - status["done"],
            "kills": len(aims),
            "starts": sum(task["starts"] for task in status["each"]),
            "requests": len(server.requests),
            "faults": sum(plan.count.values()),
            "cut": len(server.requests) - sum(plan.count.values()) - logged,
            "twice": len(found),
            "bill_off": abs(status["cost_usd"] - support.logged_dollars(fleet)),
            "left_running": len(fleet.agents()),
            "wall_s": wall,
        }


def overhead(tasks: int, repositories: int, runs: int) -> dict[str, dict[str, float]]:
    """Run the same tasks with a fleet and with xargs; return a row for each."""

    def timed(make: Callable[[support.Fleet], str]) -> Callable[[], measure.Measured]:
        def act() -> measure.Measured:
            with tempfile.TemporaryDirectory(prefix="fleet-") as folder:
                fleet = support.Fleet(Path(folder), repositories=repositories)
                fleet.tasks(tasks)
                with Server(support.work) as server:
                    env, project = fleet.place.server(server.url), fleet.place.project
                    used = measure.run_command(["sh", "-c", make(fleet)], env=env, cwd=project)
                assert len(server.requests) == tasks * (support.CALLS + 1)
                return used["cpu_s"], used["wall_s"]

        return act

    agent = f"{shlex.quote(measure.COMMAND)} --permission-mode bypass"

    def xargs(more: str) -> Callable[[support.Fleet], str]:
        def command(fleet: support.Fleet) -> str:
            lines = "".join(f"{n} r{n % repositories}\n" for n in range(tasks))
            (fleet.place.project / "lines").write_text(lines)
            each = f"{agent} -p Task. --cwd $1 --output-format json {more} > $0.json 2> /dev/null"
            return f"xargs -P {JOBS} -n 2 sh -c {shlex.quote(each)} < lines"

        return command

    rows = measure.medians(
        {
            "xargs, in the repositories": timed(xargs("")),
            "xargs, with worktrees": timed(xargs("--worktree t$0")),
            "ctxagent fleet": timed(lambda fleet: f"{agent} fleet run tasks.jsonl -j {JOBS}"),
        },
        runs=runs,
    )
    for row in rows.values():
        beside = rows["xargs, with worktrees"]
        row["x_wall"], row["x_cpu"] = (row[key] / beside[key] for key in ("wall_s", "cpu_s"))
    return rows


def long_manifest(lines: int) -> dict[str, dict[str, float]]:
    """Measure a manifest of `lines` tasks: with no task done, and with nearly all done."""
    with tempfile.TemporaryDirectory(prefix="fleet-") as folder:
        fleet = support.Fleet(Path(folder))
        steps = [{"text": "Wait.", "delay": 600}]
        (fleet.place.root / "script.json").write_text(json.dumps({"steps": steps}))
        fleet.tasks(lines)
        rows = {"nothing done": started(fleet)}
        ledger = FleetLedger(fleet.folder)
        tasks = [*Manifest(fleet.place.project / "tasks.jsonl").lines.values()][JOBS:]
        for line in tasks[:-RUNNING]:
            ledger.begin(line.id, line.digest, f"s-{line.id}", 1)
            ledger.end(
                line.id,
                f"s-{line.id}",
                1,
                AttemptOutcome(exit_code=0, cost_usd=0.01, calls=9, tokens=9_999),
            )
        for line in tasks[-RUNNING:]:
            log = running_log(fleet, line.id)
            ledger.begin(line.id, line.digest, f"s-{line.id}", 1, str(log))
        ledger.close()
        rows["nearly all done"] = started(fleet)
        rows["nearly all done"] |= resume_stat_calls(fleet)
        return rows


def running_log(fleet: support.Fleet, id: str) -> Path:
    """Write the log of a running session with 30 calls."""
    log = fleet.folder.state / "projects" / id / "sessions" / f"s-{id}" / LOG_NAME
    log.parent.mkdir(parents=True)
    usage = {"input": 9_000, "cache_read": 0, "cache_creation": 0, "output": 90}
    call = {"type": "tool_use", "id": "c", "name": "Bash", "input": {"command": "true"}}
    entries: list[Entry] = []
    for _ in range(30):
        entries.append(Assistant(content=[call], usage=usage, stop_reason="tool_use",
                                 model="claude-sonnet-5-5", cost_usd=0.01))  # fmt: skip
        entries.append(ToolResult(tool_use_id="c", content="word " * 400))
    log.write_bytes(
        b"".join(encode_line(replace(entry, seq=n, at=AT)) for n, entry in enumerate(entries, 1))
    )
    return log


def stat_calls(command: Sequence[str], env: Mapping[str, str], cwd: Path) -> dict[str, float]:
    """Count the stat system calls of a command; empty if strace is not installed."""
    if shutil.which("strace") is None:
        return {}
    with tempfile.NamedTemporaryFile("r") as out:
        subprocess.run([*STRACE, out.name, *command], env=env, cwd=cwd, check=True,
                       capture_output=True)  # fmt: skip
        return {"stat_calls": sum("stat" in line for line in out)}


def resume_stat_calls(fleet: support.Fleet) -> dict[str, float]:
    """Count the stat system calls of a run with the default model until it has started its first
    task.
    """
    if shutil.which("strace") is None:
        return {}
    env = fleet.place.server("http://127.0.0.1:9")  # nobody answers there
    ledger = fleet.folder.ledger
    size = ledger.stat().st_size
    run = [measure.COMMAND, *support.BYPASS, "fleet", "run", "tasks.jsonl"]
    with tempfile.NamedTemporaryFile("r") as out:
        process = subprocess.Popen(
            [*STRACE, out.name, *run], env=env, cwd=fleet.place.project, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        while ledger.stat().st_size == size:
            time.sleep(0.001)
        calls = sum("stat" in line for line in out)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    support.comes(lambda: len(fleet.agents()) > 0)
    fleet.end()
    return {"resume_stat_calls": calls}


def started(fleet: support.Fleet) -> dict[str, float]:
    """Start a run, measure it, and end it after its first tasks have begun."""
    env, ledger = fleet.place.environ(), fleet.folder.ledger
    size = ledger.stat().st_size if ledger.exists() else 0
    model = f"model.id=scripted:{fleet.place.root / 'script.json'}"
    began = time.perf_counter()
    process = fleet.start("--jobs", str(JOBS), "--canary", "0", "-c", model, env=env)
    while not ledger.exists() or ledger.stat().st_size == size:
        time.sleep(0.001)
    start, used = time.perf_counter() - began, measure.cpu_seconds_of(process.pid)
    assert support.comes(lambda: len(fleet.agents()) == JOBS)
    told = Path(f"/proc/{process.pid}/status").read_text().split()
    peak = int(told[told.index("VmHWM:") + 1]) / 1024
    look = [measure.COMMAND, "fleet", "status", "tasks.jsonl"]
    status = measure.run_command(look, env=env, cwd=fleet.place.project)
    counts = stat_calls(look, env, fleet.place.project)
    pages = page_costs(fleet)
    process.terminate()
    support.tail(process)
    return {
        "start_cpu_s": used,
        "start_s": start,
        "status_cpu_s": status["cpu_s"],
        "status_s": status["wall_s"],
        "peak_MB": peak,
        **pages,
        **counts,
    }


def page_costs(fleet: support.Fleet) -> dict[str, float]:
    """Return the CPU time of the first live page, and of a page after each running log has grown by
    a call.
    """
    from ctxagent.addons.fleet import live, live_page

    manifest, entry = fleet.place.project / "tasks.jsonl", ToolResult(tool_use_id="c", content="w")
    line, seconds = encode_line(replace(entry, seq=99, at=AT)), list[float]()
    began = time.process_time()
    seen = live.LiveFleet(Manifest(manifest), fleet.folder)
    for _ in range(6):
        live_page.page(seen.refresh(), manifest.name)
        seconds.append(time.process_time() - began)
        for record in seen.running:
            if record.log and Path(record.log).exists():
                with Path(record.log).open("ab") as log:
                    log.write(line)
        began = time.process_time()
    return {"page_cpu_s": seconds[0], "next_page_cpu_ms": 1_000 * sorted(seconds[1:])[2]}


if __name__ == "__main__":
    sys.exit(measure.run(main, SIZES))
