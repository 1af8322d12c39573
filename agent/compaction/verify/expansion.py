"""Verification: a summary is checked against the facts, and what it misses is put back (S2
"Validate with Probes": a probe that fails says which section to expand).

`expanded` adds missed facts to their sections within the summary's cap; `tally` counts what was
answered before and after. What is asked, and whether it is answered, is in `probe.py`.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast, get_args

from ...context.tokens import estimate
from ...record.ledger import Action
from ..document import Document, FileRow, ReadRow, render
from ..folding import is_count
from .probe import Kind, Probe, answered

KINDS: tuple[Kind, ...] = get_args(Kind)

_ENTRY = re.compile(r"The person \(#\d+\): .*|.* \(#\d+\)(?: …)?", re.DOTALL)  # made by a probe
_REF = re.compile(r"(?:#\d+)?")

Place = tuple[str, int]  # a section, and the index of an item in it


@dataclass(frozen=True, slots=True)
class Tally:
    """Probes by kind: how many were asked, how many the summary answered before and after what it
    had missed was added."""

    asked: Mapping[Kind, int]
    before: Mapping[Kind, int]
    after: Mapping[Kind, int]

    @property
    def rate_before(self) -> float:
        """Share of all that were answered; 1.0 where none was asked."""
        return _rate(self.before, self.asked)

    @property
    def rate_after(self) -> float:
        return _rate(self.after, self.asked)

    def line(self) -> str:
        """For a receipt: what there was of what was asked, before and after."""
        before, after, asked = (sum(n.values()) for n in (self.before, self.after, self.asked))
        return f"probes {before}/{asked} → {after}/{asked}"

    def to_json(self) -> dict[str, Any]:
        return {
            kind: {"asked": n, "before": self.before[kind], "after": self.after[kind]}
            for kind, n in self.asked.items()
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Tally":
        """The inverse of `to_json`. Raises KeyError, TypeError or ValueError for what is none."""
        rows = {kind: data[kind] for kind in KINDS if kind in data}

        def column(name: str) -> dict[Kind, int]:
            return {kind: int(row[name]) for kind, row in rows.items()}

        return cls(column("asked"), column("before"), column("after"))


def tally(asked: Sequence[Probe], before: str, after: str) -> Tally:
    """How many of the probes two texts answer: the summary as it was written, and as it stands."""
    kinds = [kind for kind in KINDS if any(probe.kind == kind for probe in asked)]

    def count(those: Iterable[Probe]) -> dict[Kind, int]:
        found = [probe.kind for probe in those]
        return {kind: found.count(kind) for kind in kinds}

    return Tally(
        count(asked),
        count(probe for probe in asked if answered(probe, before)),
        count(probe for probe in asked if answered(probe, after)),
    )


def _rate(some: Mapping[Kind, int], asked: Mapping[Kind, int]) -> float:
    total = sum(asked.values())
    return sum(some.values()) / total if total else 1.0


def facts_of(asked: Sequence[Probe]) -> Callable[[str], bool]:
    """Says of a critical fact whether one of the probes asks for it."""
    about = [probe for probe in asked if probe.section == "facts"]
    return lambda fact: any(answered(probe, fact) for probe in about)


def expanded(document: Document, asked: Sequence[Probe], cap_tokens: int) -> Document:
    """The document with the facts it misses, each verbatim in its section, in at most `cap_tokens`
    when rendered; as it came, if nothing can be added.

    `asked` are all the probes: what answers one of them stays. To make room there go files read of
    which nothing is said, what is done, and entries of earlier probes that are not asked again; for
    the intent, changed files, open errors and constraints also references, other files read, and
    the oldest errors, decisions and facts. Facts that still have no room are left out, the least
    important first.
    """
    text = render(document)
    missed = [probe for probe in asked if not answered(probe, text)]
    missed.sort(key=lambda probe: not _is_vital(probe))
    vital = sum(map(_is_vital, missed))
    spare = _unasked(document, asked)
    trifles = [place for place in spare if _is_trifle(document, place)]
    spare = [*trifles, *(place for place in spare if place not in set(trifles))]

    def with_first(count: int, gone: Sequence[Place]) -> Document:
        return _added(_without(document, gone), missed[:count])

    def fits(count: int, gone: Sequence[Place]) -> bool:
        return estimate(render(with_first(count, gone))) <= cap_tokens

    count, places = len(missed), trifles
    if not fits(count, trifles):
        places = trifles if fits(vital, trifles) else spare
        most = count if places is trifles else vital
        count = _last(most, lambda n: fits(n, places))
    if not count:
        return document
    return with_first(count, places[: _first(len(places), lambda n: fits(count, places[:n]))])


def _first(end: int, good: Callable[[int], bool]) -> int:
    """The first number up to `end` that is good, as are all after it; `end` needs no proof."""
    return bisect_left(range(end), True, key=good)


def _last(end: int, good: Callable[[int], bool]) -> int:
    """The last number up to `end` that is good, as are all before it; 0 needs no proof."""
    return bisect_left(range(1, end + 1), True, key=lambda n: not good(n))


def _is_vital(probe: Probe) -> bool:
    """Whether it asks for the intent, a changed file, an open error or a constraint."""
    constraint = probe.kind == "decision" and probe.section == "facts"
    return constraint or probe.section in ("intent", "modified", "errors")


def _unasked(document: Document, asked: Sequence[Probe]) -> list[Place]:
    """The items that may have to go and answer none of the probes: the least critical section
    first (as in `bounded`), of each the oldest."""
    rows = {row.path for row in document.modified}
    guarding = [p for p in asked if p.section != "modified" or p.fact not in rows]

    def guarded(text: str) -> bool:
        return is_count(text) or any(answered(probe, text) for probe in guarding)

    return [
        (name, index)
        for name in ("read", "done", "recovery", "errors", "decisions", "facts")
        for index, item in enumerate(getattr(document, name))
        if not guarded(item.path if isinstance(item, ReadRow) else item)
    ]


def _is_trifle(document: Document, place: Place) -> bool:
    """Whether an item is plainly less critical than any fact that is asked for."""
    name, index = place
    item = getattr(document, name)[index]
    if isinstance(item, ReadRow):
        return _REF.fullmatch(item.why) is not None
    return name == "done" or (name in ("decisions", "facts") and _ENTRY.fullmatch(item) is not None)


def _without(document: Document, places: Iterable[Place]) -> Document:
    gone: dict[str, set[int]] = {}
    for name, index in places:
        gone.setdefault(name, set()).add(index)
    changed: dict[str, Any] = {
        name: tuple(x for n, x in enumerate(getattr(document, name)) if n not in indexes)
        for name, indexes in gone.items()
    }
    return replace(document, **changed)


def _added(document: Document, missed: Iterable[Probe]) -> Document:
    """The document with the entries of these probes at the end of their sections."""
    new: dict[str, dict[Any, None]] = {}
    for probe in missed:
        new.setdefault(probe.section, {})[_item(probe)] = None
    changed: dict[str, Any] = {}
    for name, entries in new.items():
        before = getattr(document, name)
        changed[name] = (
            "\n".join(filter(None, (before, *entries)))
            if isinstance(before, str)
            else (*before, *entries)
        )
    return replace(document, **changed)


def _item(probe: Probe) -> str | FileRow | ReadRow:
    if probe.section == "modified":
        return FileRow(probe.fact, cast(Action, probe.entry))
    return ReadRow(probe.fact, probe.entry) if probe.section == "read" else probe.entry
