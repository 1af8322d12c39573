"""Compare ctxagent with other agents: the same task, the same script as the model, and the same
server, which measures.

    .venv/bin/python benchmarks/peers/compare.py --agent ctxagent --agent pi=PATH --agent codex=PATH

README.md describes the installation of the others, the figures, and their limits.
"""

import argparse
import datetime
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import islice
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
sys.path.append(str(Path(__file__).resolve().parents[1] / "clients"))

import measure
import targets
from agents import AGENTS, OURS, TERMS, Start, environ
from clients import CLIENTS
from proxies import COMMANDS, PROXIES, through, wrapped
from proxies import OURS as WRAPS
from replies import Reply, of_commands, of_recording
from script import SERVERS
from scripted import TASK, Script
from tree import Tree

from ctxagent.addons.replay.formats import load_recording
from ctxagent.tests.support.command import COMMAND

PROTOCOLS = dict.fromkeys(AGENTS, "messages") | {
    name: CLIENTS[name].protocol for name in ("codex", "kimi", "qwen")
}
COST = "cost of prompts, tokens"
RELATIVE = "cost relative to other agents"
Figures = dict[str, float | str]
Work = Callable[[Path], Iterable[Reply]]  # returns the script; takes a folder for its files


def run(
    name: str, command: str, work: Work, options: argparse.Namespace, replies: int | None = None
) -> tuple[Figures, list[str]]:
    """Run one session of an agent, limited to `replies` replies if given; return its figures and a
    list of problems.
    """
    with tempfile.TemporaryDirectory() as folder:
        home, project, files = (Path(folder) / name for name in ("home", "project", "recorded"))
        for made in (home / "tmp", project, files):
            made.mkdir(parents=True)
        tree = Tree()
        agent, _, proxy = name.partition("@")
        protocol = PROTOCOLS[agent]
        script = Script(
            list(islice(work(files), replies)), options.window, clock=tree.since,
            has_marks=protocol == "messages",
        )  # fmt: skip
        printed = Path(folder) / "printed"
        with SERVERS[protocol](script) as server, ExitStack() as between:
            url = server.url
            if proxy:
                command_of = options.proxy.get(proxy) or COMMANDS[proxy]
                place = Path(folder)
                url = between.enter_context(through(proxy, command_of, url, options.window, place))
            start = start_of(agent, home, project, url, options.window)
            env = {**environ(home), **start.environ}
            flags = list[str]()
            if proxy in WRAPS:
                flags, more = wrapped(agent, url, env, project)
                env |= more
            version = version_of(command, env, project)
            tree.start([command, *flags, *start.arguments], env=env, cwd=project, printed=printed)
            status, cpu, wall = tree.end(options.limit)
        figures: Figures = {
            "version": version,
            "exit status": "out of time" if status is None else str(status),
            **_counted(script, len(server.requests), len(server.rejected)),
            "CPU, s": cpu,
            "CPU to the first request, s": script.started[0],
            "wall, s": wall,
            "wall to the first request, s": script.started[1],
            "peak memory, MB": tree.peak / 1e6,
        }
        wrong = sorted({message for message, _ in server.rejected})
        if status != 0 or not server.requests or not script.ended:
            wrong += printed.read_text(errors="replace").splitlines()[-5:]
    return figures, wrong


def _counted(script: Script, requests: int, refused: int) -> Figures:
    """Return what the server counted and computed."""
    return {
        "calls asked for": script.asked,
        "outputs that came back whole": script.whole,
        "requests": requests,
        "  of them for a summary": script.summaries,
        "  refused by a rule": refused,
        "  refused as too long": script.too_long,
        "first prompt, tokens": script.first,
        "largest prompt, tokens": script.peak,
        "mean prompt, tokens": script.bill.prompt // max(1, requests - refused),
        "prompts in sum, tokens": script.bill.prompt,
        "  read from a cache, share": script.bill.read / max(1, script.bill.prompt),
        COST: script.bill.relative(TERMS),
        "  of it for what was needed again": script.again_bill.relative(TERMS),
        "calls for what was needed again": script.again,
    }


def start_of(agent: str, home: Path, project: Path, url: str, window: int) -> Start:
    """Configure an agent; return how to start it with the task."""
    if agent in AGENTS:
        return AGENTS[agent](home, url, window, TASK)
    client = CLIENTS[agent]
    return Start(client.task(TASK), client.configure(home, project, url, window))


def version_of(command: str, env: dict[str, str], cwd: Path) -> str:
    told = subprocess.run(
        [command, "--version"], env=env, cwd=cwd, text=True, check=False,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ).stdout.split()  # fmt: skip
    return next((word for word in told if word[:1].isdigit()), "unknown")


def table(rows: dict[str, Figures]) -> str:
    """Return a table with one row per figure and one column per agent."""
    lines = [f"{'':<30}" + "".join(f"{name:>14}" for name in rows)]
    for figure in next(iter(rows.values()), {}):
        cells = (_cell(row[figure]) for row in rows.values())
        lines.append(f"{figure:<30}" + "".join(f"{cell:>14}" for cell in cells))
    return "\n".join(lines)


def _cell(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if value == int(value) or value >= 1000 else f"{value:,.2f}"


def _agent(words: str) -> tuple[str, str]:
    """Return an agent's name and its command."""
    name, _, command = words.partition("=")
    agent, _, proxy = name.partition("@")
    if agent not in PROTOCOLS:
        raise argparse.ArgumentTypeError(f"{agent!r} is none of {', '.join(PROTOCOLS)}")
    if proxy and agent not in AGENTS:
        raise argparse.ArgumentTypeError(f"{agent!r} does not use the Messages API")
    if proxy and proxy not in PROXIES:
        raise argparse.ArgumentTypeError(f"{proxy!r} is none of {', '.join(PROXIES)}")
    return name, command or (COMMAND if agent in OURS else agent)


def _proxy(words: str) -> tuple[str, str]:
    """Return a proxy's name and its command."""
    name, _, command = words.partition("=")
    if name not in PROXIES or not command:
        raise argparse.ArgumentTypeError(
            f"{words!r} is not NAME=PATH, NAME of {', '.join(PROXIES)}"
        )
    return name, command


def asked() -> argparse.Namespace:
    words = argparse.ArgumentParser(description="ctxagent and other agents on the same script")
    words.add_argument(
        "--agent", action="append", type=_agent, metavar="NAME[=PATH]",
        help=f"{', '.join(PROTOCOLS)}; NAME@PROXY through a proxy; without a path, the command of "
        "that name",
    )  # fmt: skip
    words.add_argument(
        "--proxy", action="append", type=_proxy, default=[], metavar="NAME=PATH",
        help=f"the command of a proxy: {', '.join(PROXIES)}",
    )  # fmt: skip
    words.add_argument("--calls", type=int, default=120, help="commands to run")
    words.add_argument("--bytes", type=int, default=12_000, help="approximate output of each")
    words.add_argument(
        "--recording", action="append", type=Path, metavar="FILE",
        help="play the calls of a recorded session instead of commands; repeatable",
    )  # fmt: skip
    words.add_argument("--window", type=int, default=200_000, help="of the model, in tokens")
    words.add_argument("--limit", type=float, default=900.0, help="seconds for each agent")
    given = words.parse_args()
    given.proxy = dict(given.proxy)
    return given


def works(options: argparse.Namespace) -> Iterator[tuple[str, Work]]:
    """Yield the title and the script of each task."""
    if not options.recording:
        title = f"{options.calls} commands with {options.bytes:,} bytes of output each"
        yield title, lambda _: of_commands(options.calls, options.bytes)
    for path in options.recording or ():
        recording = load_recording(path)
        title = f"{recording.name}, {recording.calls} calls in {recording.replies} replies"
        yield title, partial(of_recording, recording)


def compare(work: Work, options: argparse.Namespace) -> dict[str, Figures]:
    """Run one agent after another; print problems to standard error."""
    rows: dict[str, Figures] = {}
    for name, command in options.agent or [_agent(name) for name in PROTOCOLS]:
        found = shutil.which(command)
        if found is None:
            print(f"{name}: skipped, there is no command {command}", file=sys.stderr)
            continue
        path = str(Path(found).absolute())
        run(name, path, work, options, replies=1)  # warms the file cache
        rows[name], wrong = run(name, path, work, options)
        for line in wrong:
            print(f"{name}: {line}", file=sys.stderr)
    return rows


def against_cheapest(tasks: Sequence[dict[str, float]]) -> dict[str, dict[str, float]]:
    """Return the cost of each of our presets relative to the cheapest other agent of each task."""
    rows: dict[str, dict[str, float]] = {}
    if not all(costs.keys() - OURS for costs in tasks):
        return rows
    cheapest = [min(cost for name, cost in costs.items() if name not in OURS) for costs in tasks]
    for name in OURS:
        if all(name in costs for costs in tasks):
            ours = [costs[name] for costs in tasks]
            worst = max(each / other for each, other in zip(ours, cheapest, strict=True))
            rows[name] = {"x_cheapest": sum(ours) / sum(cheapest), "worst": worst}
    return rows


def main() -> int:
    options = asked()
    costs: list[dict[str, float]] = []
    for work_title, work in works(options):
        title = (
            f"{work_title}, in a window of {options.window:,} tokens; a script in place of the "
            f"model; {datetime.date.today()}"
        )
        rows = compare(work, options)
        print(title, table(rows), json.dumps({"benchmark": title, "rows": rows}), sep="\n")
        costs.append({name: float(row[COST]) for name, row in rows.items()})
    if len(costs) < 2:
        return 0
    sums = (f"{name} {sum(each.get(name, 0.0) for each in costs):,.0f}" for name in costs[0])
    print(f"{COST}, of all recordings:", ", ".join(sums))
    relative = {RELATIVE: against_cheapest(costs)}
    if not relative[RELATIVE]:
        return 0
    measure.report(RELATIVE, relative[RELATIVE])
    verdicts = targets.check_targets(relative)
    print(targets.table(verdicts))
    return int(any(verdict.broken for verdict in verdicts))


if __name__ == "__main__":
    sys.exit(main())
