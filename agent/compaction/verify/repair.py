"""Add facts that a summary misses, and count the answered probes before and after.

The fact of a failed probe is added to its section, within the summary's cap. `probes.py` has the
questions and the check of answers.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast, get_args

from ....tools.system.plural import count_of
from ...context.tokens import estimate
from ...lazy import dataclass, regex
from ...session.ledger import FileAction
from ..document import FileRow, ReadRow, SummaryDocument, SummaryFact, render
from .probes import SEPARATELY_LIMITED, Probe, ProbeKind, is_answered

PROBE_KINDS: tuple[ProbeKind, ...] = get_args(ProbeKind)

_REF = regex(r"(?:#\d+)?")

ItemPlace = tuple[str, int]  # a section, and the index of an item in it


@dataclass(frozen=True, slots=True)
class ProbeTally:
    """Counts of probes by kind."""

    asked: Mapping[ProbeKind, int]
    before: Mapping[ProbeKind, int]  # answered by the summary as written
    after: Mapping[ProbeKind, int]  # answered after missing facts were added

    def line(self) -> str:
        """Return a line for the report: how many facts were missing, added back and are still
        missing.
        """
        before, after, asked = (sum(n.values()) for n in (self.before, self.after, self.asked))
        if before == asked:
            return f"none of {count_of(asked, 'fact')} missing" if asked else ""
        parts = []
        if after > before:
            parts.append(f"{count_of(after - before, 'missing fact')} added back")
        if after < asked:
            parts.append(f"{count_of(asked - after, 'fact')} still missing")
        return ", ".join(parts)

    def to_json(self) -> dict[str, Any]:
        return {
            kind: {"asked": n, "before": self.before[kind], "after": self.after[kind]}
            for kind, n in self.asked.items()
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "ProbeTally":
        """Read the output of `to_json`. Raises KeyError, TypeError or ValueError."""
        rows = {kind: data[kind] for kind in PROBE_KINDS if kind in data}

        def column(name: str) -> dict[ProbeKind, int]:
            return {kind: int(row[name]) for kind, row in rows.items()}

        return cls(column("asked"), column("before"), column("after"))


def tally_probes(asked: Sequence[Probe], before: str, after: str) -> ProbeTally:
    """Count the probes answered by a summary as written (`before`) and as applied (`after`)."""
    kinds = [kind for kind in PROBE_KINDS if any(probe.kind == kind for probe in asked)]

    def count(text: str | None) -> dict[ProbeKind, int]:
        found = [probe.kind for probe in asked if text is None or is_answered(probe, text)]
        return {kind: found.count(kind) for kind in kinds}

    return ProbeTally(count(None), count(before), count(after))


def probed_facts_test(asked: Sequence[Probe]) -> Callable[[str], bool]:
    """Return a function that is True for a critical fact that a probe asks for."""
    about = [probe for probe in asked if probe.section == "facts"]
    return lambda fact: any(is_answered(probe, fact) for probe in about)


def add_missed_facts(
    document: SummaryDocument, asked: Sequence[Probe], cap_tokens: int
) -> SummaryDocument:
    """Return the document with its missing facts added verbatim, in at most `cap_tokens` when
    rendered. Return it unchanged if nothing can be added.

    `asked` has all probes; items that answer a probe stay. To make room, finished work and files
    read without a description are removed. For the intent, changed files and constraints,
    references and other files read are removed too. Facts that still do not fit are left out, the
    least important first. Rules and errors are not added here: other code adds them as far as they
    fit.
    """
    text = render(document)
    missed = [
        probe
        for probe in asked
        if probe.section not in SEPARATELY_LIMITED and not is_answered(probe, text)
    ]
    missed.sort(key=lambda probe: not _is_essential(probe))
    essential = sum(map(_is_essential, missed))
    spare = _unprobed_items(document, asked)
    minor = [place for place in spare if _is_minor(document, place)]
    spare = [*minor, *(place for place in spare if place not in set(minor))]

    def fits(count: int, gone: Sequence[ItemPlace]) -> bool:
        return estimate(render(_changed(document, gone, missed[:count]))) <= cap_tokens

    count, removable = len(missed), minor
    if not fits(count, minor):
        if not fits(essential, minor):
            count, removable = essential, spare
        count = _last_true(count, lambda n: fits(n, removable))
    if not count:
        return document
    removed = _first_true(len(removable), lambda n: fits(count, removable[:n]))
    return _changed(document, removable[:removed], missed[:count])


def _first_true(end: int, test: Callable[[int], bool]) -> int:
    """Return the first number below `end` that passes, else `end`. Later numbers must pass too."""
    return bisect_left(range(end), True, key=test)


def _last_true(end: int, test: Callable[[int], bool]) -> int:
    """Return the last number up to `end` that passes, else 0. All smaller numbers must pass too."""
    return bisect_left(range(1, end + 1), True, key=lambda n: not test(n))


def _is_essential(probe: Probe) -> bool:
    """Return True if a probe asks for the intent, a changed file or a constraint."""
    return probe.is_constraint or probe.section in ("intent", "modified")


def _unprobed_items(document: SummaryDocument, asked: Sequence[Probe]) -> list[ItemPlace]:
    """Return the files read, the finished work and the references that answer no probe. They are in
    this order of sections, and each section begins with its oldest item.
    """
    rows = {row.path for row in document.modified}
    guarding = [p for p in asked if p.section != "modified" or p.fact not in rows]

    def guarded(text: str) -> bool:
        return any(is_answered(probe, text) for probe in guarding)

    return [
        (name, index)
        for name in ("read", "done", "recovery")
        for index, item in enumerate(getattr(document, name))
        if not guarded(item.path if isinstance(item, ReadRow) else item)
    ]


def _is_minor(document: SummaryDocument, place: ItemPlace) -> bool:
    """Return True if an item is less critical than any probed fact."""
    name, index = place
    item = getattr(document, name)[index]
    if isinstance(item, ReadRow):
        return _REF.fullmatch(item.why) is not None
    return name == "done"


def _changed(
    document: SummaryDocument, gone: Collection[ItemPlace], missed: Iterable[Probe]
) -> SummaryDocument:
    """Return the document without the items `gone`, and with the entries of the `missed` probes
    added to their sections.
    """
    new: dict[str, dict[Any, None]] = {name: {} for name, _ in gone}
    for probe in missed:
        new.setdefault(probe.section, {})[_item(probe)] = None
    changed, places = dict[str, Any](), set(gone)
    for name, entries in new.items():
        before = getattr(document, name)
        if isinstance(before, str):
            changed[name] = "\n".join(filter(None, (before, *entries)))
        else:
            kept = (item for n, item in enumerate(before) if (name, n) not in places)
            changed[name] = (*kept, *entries)
    return replace(document, **changed)


def _item(probe: Probe) -> str | SummaryFact | FileRow | ReadRow:
    if probe.section == "modified":
        return FileRow(probe.fact, cast(FileAction, probe.entry))
    if probe.section == "facts":
        return SummaryFact(probe.entry)
    return ReadRow(probe.fact, probe.entry) if probe.section == "read" else probe.entry
