"""What a useless summary takes away from recorded sessions: nothing.

    python benchmarks/nothing_lost.py [FILE...]

Each FILE is a session that `ctxagent replay` reads; without any, one of our own making is played.
Each goes through the real engine with the largest window that forces at least three summaries, and
says nothing. Counted: paths the session changed that the last context does not name, results whose
text does not come back byte for byte by its ref, and the probes that the summaries answer before
and after what they missed was added.
"""

import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import measure

from ctxagent.agent.compaction.policy import DEFAULT
from ctxagent.agent.replay.formats import load_recording
from ctxagent.agent.replay.recording import Recording
from ctxagent.tests.support.sessions.recording import Played, made, play

WINDOWS = (32_000, 24_000, 18_000, 14_000, 11_000, 9_000, 7_000, 5_500)
LEAST = 3  # summaries
SIZES: dict[str, dict[str, Any]] = {"full": {}, "quick": {}, "tiny": {}}


def recordings(files: Sequence[str]) -> Iterator[Recording]:
    if not files:
        yield made()
    for file in files:
        yield load_recording(Path(file))


def forced(recording: Recording, folder: Path) -> tuple[int, Played]:
    """The window and what came of it. Raises SystemExit when no window does."""
    for policy in (DEFAULT, replace(DEFAULT, clear_when="off", truncate_at=None)):
        for window in WINDOWS:
            place = folder / f"{policy.clear_when}-{window}"
            played = play(recording, place, window=window, policy=policy)
            if len(played.summaries) >= LEAST and not played.run.stopped:
                return window, played
    raise SystemExit("no window forces so many summaries")


def row(recording: Recording) -> tuple[dict[str, float], Counter[str]]:
    probes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        window, played = forced(recording, Path(folder))
        for summary in played.summaries:
            for kind, counts in summary.probes["tally"].items():
                probes.update({f"{kind} {name}": count for name, count in counts.items()})
        paths, results = played.run.paths, played.run.recovered
        return {
            "window": window,
            "summaries": len(played.summaries),
            "paths": paths.whole,
            "paths_missing": paths.whole - paths.part,
            "results": results.whole,
            "results_lost": results.whole - results.part,
            "answered_before": _share(probes, "before"),
            "answered_after": _share(probes, "after"),
            "artifacts_after": _share(probes, "after", "artifact"),
        }, probes


def _share(probes: Counter[str], name: str, kind: str = "") -> float:
    def count(column: str) -> int:
        return sum(n for key, n in probes.items() if key.startswith(kind) and key.endswith(column))

    return count(name) / max(1, count("asked"))


def main(files: Sequence[str] = ()) -> Iterator[measure.Table]:
    rows, total = {}, Counter[str]()
    for recording in recordings(files):
        rows[recording.name[:40]], probes = row(recording)
        total += probes
    yield measure.Table("recorded sessions with useless summaries", rows)
    figures = {
        "missed_before": 1 - _share(total, "before"),
        "missed": 1 - _share(total, "after"),
        "missed_artifacts": 1 - _share(total, "after", "artifact"),
    }
    yield measure.Table("probes of useless summaries", {"all": figures})


if __name__ == "__main__":
    sys.exit(measure.run(main, SIZES, "files"))
