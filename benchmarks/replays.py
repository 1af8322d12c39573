"""Compare the presets with summaries only on recorded sessions.

    .venv/bin/python benchmarks/replays.py [FILE or FOLDER...]

Each FILE is a session that `ctxagent replay` reads; by default, a synthetic session is played,
which says nothing about yours. The real command replays all of them without a model, at the prices
of claude-sonnet-5 in a window of 200,000 tokens. `need_chances.py` fits the chances of need on the
sessions of the fitted repositories. The targets are the figures of the guide: they hold for its 87
recordings, and other recordings can miss them.
"""

import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import measure
from need_chances import fitted_of, repository

from ctxagent.tests.support.sessions.recorded_as import claude
from ctxagent.tests.support.sessions.recording import made

PRESETS = ("default", "lean", "append")
OPTIONS = ("--model", "claude-sonnet-5", "--context-window", "200000")
GROUPS = {True: "fitted", False: "not fitted"}
SIZES: dict[str, dict[str, Any]] = {"full": {}, "quick": {}, "tiny": {}}
Sums = Mapping[str, Any]


def replayed(files: Sequence[Path]) -> dict[str, dict[str, Sums]]:
    """Replay recordings with each preset; return the sums by recording and preset."""
    presets = [word for preset in PRESETS for word in ("--preset", preset)]
    command = [measure.COMMAND, "replay", *OPTIONS, *presets, "--json", *map(str, files)]
    told = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return {
        each["name"]: {run["label"]: run["sums"] for run in each["runs"]}
        for each in json.loads(told.stdout)["recordings"]
    }


def rows(played: Sequence[Mapping[str, Sums]]) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield a row for each preset, with the sums of all recordings."""
    plain = sum(runs["summaries only"]["dollars"] for runs in played)
    for label in played[0]:
        total = Counter[str]()
        for sums in (runs[label] for runs in played):
            for name in ("dollars", "missed", "lost_facts"):
                total[name] += sums[name]
            for name in ("paths", "errors", "recovered"):
                kept, total_of = sums[name]
                total.update({name: total_of, f"{name}_lost": total_of - kept})
        results = max(1, total["recovered"])
        yield (
            label,
            {
                "ratio": total["dollars"] / plain,
                "needed": total["missed"],
                "needed_pct": 100 * total["missed"] / results,
                "errors_lost": total["errors_lost"],
                "errors": total["errors"],
                "facts": total["lost_facts"],
                "paths_lost": total["paths_lost"],
                "results_lost": total["recovered_lost"],
                "results": results,
                "dollars": total["dollars"],
            },
        )


def main(files: Sequence[str] = ()) -> Iterator[measure.Table]:
    if not files:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "made.jsonl"
            file.write_bytes(claude(made()))
            yield measure.Table(
                "presets, a synthetic recording", dict(rows([*replayed([file]).values()]))
            )
        return
    paths = [f for p in map(Path, files) for f in (sorted(p.glob("*.gz")) if p.is_dir() else [p])]
    played = replayed(paths)
    yield measure.Table("presets, recorded sessions", dict(rows([*played.values()])))
    fitted = fitted_of(Counter(map(repository, paths)))
    groups: dict[str, list[Mapping[str, Sums]]] = {}
    for path, runs in zip(paths, played.values(), strict=True):
        groups.setdefault(GROUPS[repository(path) in fitted], []).append(runs)
    for group, several in groups.items():
        yield measure.Table(f"presets, {group} repositories", dict(rows(several)))


if __name__ == "__main__":
    sys.exit(measure.run(main, SIZES, "files"))
