"""Check that bad summaries lose nothing from recorded sessions.

    .venv/bin/python benchmarks/nothing_lost.py [FILE or FOLDER...]

Each FILE is a session that `ctxagent replay` reads; by default, a synthetic session is played. Each
session goes through the real engine four times, with a window of 40,000 tokens and at least five
summaries: the summaries are useless, empty, copies of the previous one, or half negated. Counted
are: changed paths that the last context does not name; rules of the user, newest open errors and
newest decisions that it does not contain; results that Recall does not return byte for byte; and
the probes that useless summaries answer before and after the missing facts were added.
"""

import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import measure

from ctxagent.addons.replay.formats import load_recording
from ctxagent.agent.recordings.recording import Recording
from ctxagent.tests.support.sessions.recording import USELESS, made, play
from ctxagent.tests.support.sessions.summarizers import SUMMARIZERS
from ctxagent.tests.support.sessions.survivors import lost, survivors

WINDOW = 40_000  # tokens
MIN_SUMMARIES = 5  # summaries
SIZES: dict[str, dict[str, Any]] = {"full": {}, "quick": {}, "tiny": {}}


def recordings(given: Sequence[str]) -> Iterator[Recording]:
    if not given:
        yield made()
    for path in map(Path, given):
        for file in sorted(path.glob("*.gz")) if path.is_dir() else [path]:
            yield load_recording(file)


def find_interval(recording: Recording, folder: Path) -> int:
    """Return the interval between summaries, in replies, that gives enough summaries. Raises
    SystemExit if there is none.
    """
    for number in (MIN_SUMMARIES + 1, 2 * MIN_SUMMARIES, 4 * MIN_SUMMARIES, recording.replies):
        every, place = max(1, recording.replies // number), folder / str(number)
        played = play(recording, place, window=WINDOW, summary_every=every)
        if len(played.summaries) >= MIN_SUMMARIES and not played.run.stopped:
            return every
    raise SystemExit(f"{recording.name}: no interval gives {MIN_SUMMARIES} summaries")


def rows(recording: Recording, probes: Counter[str]) -> Iterator[tuple[str, dict[str, float]]]:
    """Play a recording with each kind of summaries; `probes` collects those of the useless ones."""
    with tempfile.TemporaryDirectory() as folder:
        every = find_interval(recording, Path(folder))
        for name, record in {"useless": USELESS, **SUMMARIZERS}.items():
            place = Path(folder) / name
            played = play(recording, place, window=WINDOW, record=record, summary_every=every)
            shares = survivors(played)
            for summary in played.summaries if name == "useless" else ():
                for kind, counts in summary.probes["tally"].items():
                    probes.update({f"{kind} {name}": count for name, count in counts.items()})
            results = played.run.recovered
            yield (
                f"{recording.name[:30]}, {name}",
                {
                    "summaries": len(played.summaries),
                    **{kind: share.whole for kind, share in shares.items()},
                    **{f"{kind}_missing": s.whole - s.part for kind, s in shares.items()},
                    "results_lost": results.whole - results.part,
                },
            )
            for text in lost(played):
                print(f"{recording.name[:30]}, {name}: not there: {text[:100]}", file=sys.stderr)


def _share(probes: Counter[str], name: str, kind: str = "") -> float:
    def count(column: str) -> int:
        return sum(n for key, n in probes.items() if key.startswith(kind) and key.endswith(column))

    return count(name) / max(1, count("asked"))


def main(files: Sequence[str] = ()) -> Iterator[measure.Table]:
    table, total = {}, Counter[str]()
    for recording in recordings(files):
        table.update(rows(recording, total))
    yield measure.Table("recorded sessions with bad summaries", table)
    figures = {
        "missed_before": 1 - _share(total, "before"),
        "missed": 1 - _share(total, "after"),
        "missed_artifacts": 1 - _share(total, "after", "artifact"),
    }
    yield measure.Table("probes of useless summaries", {"all": figures})


if __name__ == "__main__":
    sys.exit(measure.run(main, SIZES, "files"))
