"""Compare compaction policies on recorded sessions: what they cost and what they lose.

    .venv/bin/python benchmarks/context/run.py FILE... [--policy NAME] [--policy MODULE:FUNCTION]
                                     [--proxy URL --listen PORT] [--json OUT]

README.md explains the figures and how to add a policy. No model is called.
"""

import argparse
import asyncio
import importlib
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from player import SUMMARIES_ALONE, PolicyPlayer
from policies import POLICIES, ContextPolicy
from proxy import through

from ctxagent.addons.replay.formats import load_recording
from ctxagent.addons.replay.player import Player, Terms
from ctxagent.addons.replay.results import ReplayRun, Sums
from ctxagent.agent.compaction.policy import PRESETS
from ctxagent.agent.errors import CtxagentError

BASELINE = "everything"  # automatic summaries only; all policies have these
OURS = ("default", "lean", "append")
HEAD = ("policy", "cost", "needed when gone", "error lines kept", "facts written when gone",
        "summaries", "stopped")  # fmt: skip


@dataclass(frozen=True)
class Task:
    """One recording under one policy."""

    file: Path
    name: str  # a policy, a preset, MODULE:FUNCTION or the URL of a proxy
    model: str
    window: int
    port: int  # port of the model server behind a proxy


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--policy", action="append", default=[], metavar="NAME|MODULE:FUNCTION")
    parser.add_argument("--proxy", metavar="URL", help="a proxy whose model is at --listen")
    parser.add_argument("--listen", type=int, default=0, metavar="PORT")
    parser.add_argument("--model", default="claude-sonnet-5")
    parser.add_argument("--window", type=int, default=200_000)
    parser.add_argument("--json", type=Path, metavar="OUT")
    given = parser.parse_args(arguments)
    if given.proxy and not given.listen:
        parser.error("--proxy needs --listen PORT, the port of the proxy's model server")
    names = given.policy or [*POLICIES, *OURS]
    names = [BASELINE, *(n for n in names if n != BASELINE), *([given.proxy] * bool(given.proxy))]
    for name in names:
        if name != given.proxy and name not in PRESETS:
            policy_of(name, parser)
    rows = dict(_rows(names, given))
    base = rows[BASELINE].dollars
    print(" | ".join(["", *HEAD, ""]).strip())
    print(f"|{' --- |' * len(HEAD)}")
    for name, sums in rows.items():
        print(f"| {name} | {' | '.join(_cells(sums, base))} |", flush=True)
    if given.json:
        told = {name: {"ratio": s.dollars / base, **_figures(s)} for name, s in rows.items()}
        given.json.write_text(json.dumps(told, indent=1) + "\n", "utf-8")
    return 0


def policy_of(name: str, parser: argparse.ArgumentParser | None = None) -> ContextPolicy:
    """Return a policy by its name, or the function MODULE:FUNCTION."""
    if name in POLICIES:
        return POLICIES[name]
    module, _, function = name.partition(":")
    try:
        sys.path.insert(0, "")
        found: ContextPolicy = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        known = ", ".join([*POLICIES, *PRESETS])
        if parser is None:
            raise
        parser.error(f"no policy {name!r} ({error}). Known: {known}, or MODULE:FUNCTION")
    return found


def play(task: Task) -> ReplayRun | None:
    """Play one recording; return None if the file is not a recording."""
    try:
        recording = load_recording(task.file)
    except CtxagentError as error:
        print(f"{task.file}: {error.message}", file=sys.stderr)
        return None
    policy = PRESETS.get(task.name, SUMMARIES_ALONE)
    terms = Terms(task.name, policy, task.model, task.window, "", (), fills=0)
    with tempfile.TemporaryDirectory() as folder:
        if task.name in PRESETS:
            return asyncio.run(Player(recording, terms, Path(folder)).run())
        if task.name.startswith("http"):
            with through(task.name, task.port, task.model) as change:
                player = PolicyPlayer(recording, terms, Path(folder), change=change)
                return asyncio.run(player.run())
        player = PolicyPlayer(recording, terms, Path(folder), change=policy_of(task.name))
        return asyncio.run(player.run())


def _rows(names: Sequence[str], given: argparse.Namespace) -> Iterator[tuple[str, Sums]]:
    """Yield the sums of each policy over all files. Sessions run one after another through a proxy,
    because it has a single model server.
    """
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        for name in names:
            tasks = [Task(f, name, given.model, given.window, given.listen) for f in given.files]
            runs = map(play, tasks) if name.startswith("http") else pool.map(play, tasks)
            yield name, sum((run.sums for run in runs if run is not None), Sums())


def _cells(sums: Sums, base: float) -> list[str]:
    results = sums.recovered.whole
    return [
        f"{sums.dollars / base:.2f}" if base else "–",
        f"{sums.missed:,} ({sums.missed / max(1, results):.2%})",
        f"{sums.errors.part} of {sums.errors.whole}",
        f"{sums.lost:,}",
        f"{sums.summaries:,}",
        f"{sums.stopped:,}",
    ]


def _figures(sums: Sums) -> dict[str, float]:
    return {
        "dollars": sums.dollars,
        "calls": sums.calls,
        "read": sums.read,
        "written": sums.written,
        "missed": sums.missed,
        "results": sums.recovered.whole,
        "error_lines": sums.errors.part,
        "error_lines_of": sums.errors.whole,
        "facts": sums.lost,
        "summaries": sums.summaries,
        "stopped": sums.stopped,
    }


if __name__ == "__main__":
    sys.exit(main())
