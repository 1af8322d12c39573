"""Fit the probability that a text is needed after it has left the context, on recorded sessions.

    .venv/bin/python benchmarks/need_chances.py [FILE or FOLDER...]

Each FILE is a session that `ctxagent replay` reads; by default, a synthetic session is played,
which says nothing about yours. Nothing is cleared. After each reply, every result and input is
noted with its kind, its age, and whether a later call shows that it would have been needed, if it
had left the context (`addons/replay/player.py`). For each kind, a curve of the form in
`agent/compaction/layers/later_calls.py` is fitted: least squares over the ages, weighted by the
number of texts. Sessions are split by repository (the file name up to its last `__`, else its
folder): the curves are fitted on every other repository, starting with the one that has the most
sessions, and validated on the rest.
"""

import asyncio
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing import Pool
from pathlib import Path
from typing import Any

import measure

from ctxagent.addons.replay.cache_prices import CacheBill
from ctxagent.addons.replay.formats import load_recording
from ctxagent.addons.replay.player import Player, Terms
from ctxagent.agent.compaction.layers.later_calls import (
    CURVES,
    NeedClass,
    NeedCurve,
    fates_of,
    input_ages,
    kind_of,
)
from ctxagent.agent.compaction.policy import DEFAULT
from ctxagent.agent.recordings.recording import RecordedCall, RecordedReply, Recording
from ctxagent.agent.recordings.tool_names import TranslatedCall
from ctxagent.tests.support.sessions.recording import made

MIN_TOKENS = 100  # smallest text that is noted
AGES = (0, 1, 2, 3, 5, 8, 12, 20, 35, 60, 120)  # lower bounds of the age ranges
HALF_LIVES = (5, 8, 10, 15, 20, 30, 40, 60)  # candidates, in replies
MIN_NEEDED = 8  # needed texts of a kind; below this, its curve is not fitted
KEEP_ALL = replace(DEFAULT, mode="off", move_above=None, clear_when="off", truncate_at=None)
TERMS = Terms("all", KEEP_ALL, "claude-sonnet-5", 100_000_000, "", (), fills=0)
SIZES: dict[str, dict[str, Any]] = {"full": {}, "quick": {}, "tiny": {}}

# (texts needed later, all texts) by kind and age range.
Counts = dict[tuple[NeedClass, int], tuple[int, int]]


@dataclass
class Observer(Player):
    """Player that clears nothing and notes every text after each reply."""

    # Kind, age, entry and number of the call.
    noted: list[tuple[NeedClass, int, int, int]] = field(default_factory=list)
    needed: dict[int, int] = field(default_factory=dict)  # the last call that needs it, by entry

    async def _play_reply(self, reply: RecordedReply, *, start: bool) -> None:
        await super()._play_reply(reply, start=start)
        view, number = self.host.view, len(self._priced)
        fates = fates_of(view)
        for result in view.results():
            fate = fates[result.call.id]
            if result.size >= MIN_TOKENS and fate.repeated_by is None:
                kind = kind_of(result.call, fate.changes)
                self.noted.append((kind, fate.age, result.item.seq, number))
        for id, age in input_ages(view).items():
            self.noted.append(("input", age, view.calls[id].seq, number))

    def _check_need(self, call: RecordedCall, translated: TranslatedCall, bill: CacheBill) -> None:
        found = self._detector.find(
            translated, call.text, lambda ref: True, self._said, call.recalls
        )
        if found is not None:
            self.needed[found.ref] = len(self._priced)

    def _said(self) -> str:
        """Return the user's messages: the only text that a search for a line assumes to be still
        present.
        """
        items = (item for item in self.host.view.items if item.source == "person")
        return "\n".join(str(block.get("text", "")) for item in items for block in item.blocks)

    def counts(self) -> Counts:
        found: dict[tuple[NeedClass, int], list[int]] = defaultdict(lambda: [0, 0])
        for kind, age, ref, number in self.noted:
            row = found[kind, sum(start <= age for start in AGES) - 1]
            row[0] += self.needed.get(ref, 0) > number
            row[1] += 1
        return {key: (row[0], row[1]) for key, row in found.items()}


def observe(recording: Recording) -> Counts:
    with tempfile.TemporaryDirectory() as folder:
        observer = Observer(recording, TERMS, Path(folder))
        asyncio.run(observer.run())
        return observer.counts()


def observe_file(path: Path) -> Counts:
    return observe(load_recording(path))


def repository(path: Path) -> str:
    return path.name.rpartition("__")[0] or path.parent.name


def fitted_of(sessions: Mapping[str, int]) -> list[str]:
    """Return every other repository of those with this many sessions, starting with the largest."""
    return sorted(sessions, key=lambda name: (-sessions[name], name))[::2]


def added(many: Sequence[Counts]) -> Counts:
    sums: Counts = {}
    for counts in many:
        for key, (needed, texts) in counts.items():
            before = sums.get(key, (0, 0))
            sums[key] = before[0] + needed, before[1] + texts
    return sums


def fit(kind: NeedClass, counts: Counts) -> NeedCurve:
    """Return the curve closest to the shares, or the shipped one for less than MIN_NEEDED needs."""
    mine = [(AGES[at], *row) for (of, at), row in counts.items() if of == kind]
    if sum(needed for _, needed, _ in mine) < MIN_NEEDED:
        return CURVES[kind]
    rows = [(age, needed / texts, texts) for age, needed, texts in mine]

    def error(curve: NeedCurve) -> float:
        return sum(texts * (curve.at(age) - share) ** 2 for age, share, texts in rows)

    return min((_with_half_life(rows, each) for each in HALF_LIVES), key=error)


def _with_half_life(rows: Sequence[tuple[int, float, int]], half_life: float) -> NeedCurve:
    """Return the best curve with this half-life, by a weighted linear fit to the decayed share."""
    left = [(0.5 ** (age / half_life), share, n) for age, share, n in rows]
    total = sum(n for *_, n in left)
    x = sum(n * each for each, _, n in left) / total
    y = sum(n * share for _, share, n in left) / total
    spread = sum(n * (each - x) ** 2 for each, _, n in left)
    slope = sum(n * (each - x) * (share - y) for each, share, n in left) / spread if spread else 0.0
    rest = max(0.0, y - slope * x)
    return NeedCurve(round(max(rest, rest + slope), 4), half_life, round(rest, 4))


def rows(fitted: Counts, others: Counts) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield for each kind its curve and, per thousand texts, how many were needed and how many the
    curve predicts, in the fitted sessions and in the others.
    """
    for kind in CURVES:
        curve = fit(kind, fitted)
        figures = {"first": curve.first, "half-life": curve.half_life, "rest": curve.rest}
        for name, counts in (("fitted", fitted), ("others", others)):
            mine = [(AGES[at], *row) for (of, at), row in counts.items() if of == kind]
            texts = sum(n for *_, n in mine) or 1
            figures[f"{name}, needed"] = 1_000 * sum(needed for _, needed, _ in mine) / texts
            figures[f"{name}, expected"] = 1_000 * sum(n * curve.at(a) for a, _, n in mine) / texts
        yield kind, figures


def main(files: Sequence[str] = ()) -> Iterator[measure.Table]:
    paths = [f for p in map(Path, files) for f in (sorted(p.glob("*.gz")) if p.is_dir() else [p])]
    by_repository = defaultdict[str, list[Counts]](list)
    if paths:
        with Pool() as pool:
            for path, counts in zip(paths, pool.imap(observe_file, paths), strict=True):
                by_repository[repository(path)].append(counts)
    else:
        by_repository["our own"].append(observe(made()))
    names = fitted_of({name: len(counts) for name, counts in by_repository.items()})
    held = sorted(by_repository.keys() - names)
    print("fitted on", ", ".join(names), "- held against", ", ".join(held) or "none")
    fitted = added([counts for name in names for counts in by_repository[name]])
    others = added([counts for name in held for counts in by_repository[name]])
    yield measure.Table("chances, and needs per thousand texts", dict(rows(fitted, others)))


if __name__ == "__main__":
    sys.exit(measure.run(main, SIZES, "files"))
