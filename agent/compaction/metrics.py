"""The metrics of compaction, summed over the logs of one session or several: how small summaries
made the context, whether what is critical stood in them, whether it could be recovered, what each
layer saved and what summaries cost. The targets are the source documents' own: S3 "Metrics" for
sizes, sections and recovery; for probes S2 "Validate with Probes", where each one that fails calls
for more. What a log has no figures of is not measured, neither met nor missed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from ..record.entries import Assistant, Entry, Summary
from .acts import LAYERS, Act, acts, count, savings

HALF = 0.50  # of the size before: what a summary must stay below (S3)
ASIDE = ("summary", "verify")  # purposes of calls that compaction makes


@dataclass(frozen=True, slots=True)
class Rate:
    """Things asked for, how many were there before what was missing was added, and after."""

    asked: int = 0
    before: int = 0
    after: int = 0

    def __add__(self, other: "Rate") -> "Rate":
        return Rate(self.asked + other.asked, self.before + other.before, self.after + other.after)

    @property
    def met(self) -> bool | None:
        """Whether all were there in the end; None when none was asked for."""
        return self.after >= self.asked if self.asked else None


@dataclass(frozen=True, slots=True)
class Metrics:
    """`probes` by kind. `saved` has (layer, acts, tokens) and leaves out what was taken back; all
    else counts every summary. `cost_usd` is None when a price was not known."""

    sessions: int = 0
    summaries: tuple[Act, ...] = ()
    probes: tuple[tuple[str, Rate], ...] = ()
    sections: Rate = Rate()
    recovery: Rate = Rate()
    saved: tuple[tuple[str, int, int], ...] = ()
    cost_usd: float | None = 0.0

    @property
    def halved(self) -> Rate:
        """The summaries, and how many left less than half of the context."""
        below = sum(map(is_small, self.summaries))
        return Rate(len(self.summaries), below, below)

    def to_json(self) -> dict[str, Any]:
        return {
            "sessions": self.sessions,
            "summaries": [
                {"ref": a.seq, "tokens_before": a.before, "tokens_after": a.after}
                for a in self.summaries
            ],
            "below_half": _json(self.halved),
            "probes": {kind: _json(rate) for kind, rate in self.probes},
            "critical_sections": _json(self.sections),
            "recovery": _json(self.recovery),
            "saved": {layer: {"acts": n, "tokens": t} for layer, n, t in self.saved},
            "cost_usd": self.cost_usd,
        }


def is_small(summary: Act) -> bool:
    """Whether a summary left less than half of the context (S3 "Metrics")."""
    return summary.after < HALF * summary.before


def measure(entries: Iterable[Entry]) -> Metrics:
    """The metrics of one session."""
    found = [e for e in entries if isinstance(e, Summary)]
    done = acts(entries)
    prices = [e.cost_usd for e in entries if isinstance(e, Assistant) and e.purpose in ASIDE]
    checks = [e.probes if isinstance(e.probes, dict) else {} for e in found]
    return Metrics(
        sessions=1,
        summaries=tuple(act for act in done if act.layer == "summary"),
        probes=_by_kind([row for check in checks for row in _rates(check.get("tally"))]),
        sections=_sum([_whole(check.get("sections"), "critical", "kept") for check in checks]),
        recovery=_sum([_whole(check.get("recovery"), "asked", "ok") for check in checks]),
        saved=tuple(savings(done)),
        cost_usd=_dollars(prices),
    )


def total(parts: Sequence[Metrics]) -> Metrics:
    """The metrics of several sessions in one."""
    saved = [
        (
            layer,
            sum(n for part in parts for name, n, _ in part.saved if name == layer),
            sum(t for part in parts for name, _, t in part.saved if name == layer),
        )
        for layer in LAYERS
    ]
    return Metrics(
        sessions=sum(part.sessions for part in parts),
        summaries=tuple(act for part in parts for act in part.summaries),
        probes=_by_kind([row for part in parts for row in part.probes]),
        sections=_sum([part.sections for part in parts]),
        recovery=_sum([part.recovery for part in parts]),
        saved=tuple(row for row in saved if row[1]),
        cost_usd=_dollars([part.cost_usd for part in parts]),
    )


def _rates(facts: Any) -> list[tuple[str, Rate]]:
    rows = facts.items() if isinstance(facts, dict) else ()
    return [
        (str(kind), Rate(*(count(row, name) for name in ("asked", "before", "after"))))
        for kind, row in rows
    ]


def _whole(facts: Any, asked: str, there: str) -> Rate:
    """A rate of what is not asked twice: before and after are one."""
    return Rate(count(facts, asked), count(facts, there), count(facts, there))


def _by_kind(rows: Sequence[tuple[str, Rate]]) -> tuple[tuple[str, Rate], ...]:
    kinds: dict[str, Rate] = {}
    for kind, rate in rows:
        kinds[kind] = kinds.get(kind, Rate()) + rate
    return tuple(kinds.items())


def _sum(rates: Sequence[Rate]) -> Rate:
    return reduce(Rate.__add__, rates, Rate())


def _dollars(prices: Sequence[float | None]) -> float | None:
    known = [price for price in prices if price is not None]
    return sum(known) if len(known) == len(prices) else None


def _json(rate: Rate) -> dict[str, Any]:
    return {
        "asked": rate.asked, "before": rate.before, "after": rate.after, "met": rate.met,
    }  # fmt: skip
