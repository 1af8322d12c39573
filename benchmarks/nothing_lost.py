"""What a useless summary takes away from recorded sessions: nothing.

    python benchmarks/nothing_lost.py [FILE...]

Each FILE is a recording as JSON, `{"system": "…", "messages": […]}` as the Messages API would have
been sent them; without any, one of our own making is played. Each goes through the real loop with
the largest window that forces at least three summaries, and every summary is replaced by one that
says nothing. Counted: paths the session changed that the last context does not name, results whose
text does not come back byte for byte by its ref, and the probes that the summaries answer before
and after what they missed was added. Exit code 1 when one of the promises does not hold.
"""

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import measure

from ctxagent.agent.compaction.policy import DEFAULT
from ctxagent.tests.support.recording import Played, made, play

WINDOWS = (32_000, 24_000, 18_000, 14_000, 11_000, 9_000, 7_000, 5_500)
LEAST = 3  # summaries
ARTIFACTS, ALL = 0.95, 0.90  # of the probes that must be answered


def recordings(files: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    if not files:
        yield "made here", made()
    for file in files:
        yield Path(file).stem, json.loads(Path(file).read_text("utf-8"))


def forced(recording: dict[str, Any], folder: Path) -> tuple[int, Played]:
    """The window and what came of it. Raises SystemExit when no window does."""
    for policy in (DEFAULT, replace(DEFAULT, clear_when="off", truncate_at=None)):
        for window in WINDOWS:
            place = folder / f"{policy.clear_when}-{window}"
            try:
                played = play(recording, place, window=window, policy=policy)
            except AssertionError:  # one item alone is larger than this window
                continue
            if len(played.summaries) >= LEAST:
                return window, played
    raise SystemExit("no window forces so many summaries")


def row(recording: dict[str, Any]) -> tuple[dict[str, float], Counter[str]]:
    probes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        window, played = forced(recording, Path(folder))
        for summary in played.summaries:
            for kind, counts in summary.probes["tally"].items():
                probes.update({f"{kind} {name}": count for name, count in counts.items()})
        return {
            "window": window,
            "summaries": len(played.summaries),
            "paths": len(played.modified()),
            "paths_missing": len(played.missing_paths()),
            "results": len(played.given),
            "results_lost": len(played.lost()),
            "answered_before": _share(probes, "before"),
            "answered_after": _share(probes, "after"),
            "artifacts_after": _share(probes, "after", "artifact"),
        }, probes


def _share(probes: Counter[str], name: str, kind: str = "") -> float:
    def count(column: str) -> int:
        return sum(n for key, n in probes.items() if key.startswith(kind) and key.endswith(column))

    return count(name) / max(1, count("asked"))


def main() -> int:
    rows, total = {}, Counter[str]()
    for name, recording in recordings(sys.argv[1:]):
        rows[name[:40]], probes = row(recording)
        total += probes
    measure.report("recorded sessions with useless summaries", rows)
    after, artifacts = _share(total, "after"), _share(total, "after", "artifact")
    print(f"all probes: {_share(total, 'before'):.1%} -> {after:.1%}; artifacts: {artifacts:.1%}")
    lost = sum(r["paths_missing"] + r["results_lost"] for r in rows.values())
    return int(lost > 0 or artifacts < ARTIFACTS or after < ALL)


if __name__ == "__main__":
    raise SystemExit(main())
