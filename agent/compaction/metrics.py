"""The metrics of compaction, summed over the logs of one or more sessions.

They cover the size after summaries, the critical sections kept, the results that could be recalled,
the tokens saved by each layer and the cost of summaries. A metric without data in the log is
neither met nor missed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from ..lazy import dataclass
from ..session.entries import Assistant, Entry, Summary
from .history import Act, acts, int_field, savings
from .layers.known import ordered

MAX_SHARE_LEFT = 0.50  # of the context before a summary; the context after must be smaller
COMPACTION_PURPOSES = ("summary", "verify")  # purposes of compaction's model calls


@dataclass(frozen=True, slots=True)
class Rate:
    """The result of a check, as counts of items."""

    asked: int = 0
    before: int = 0  # present before missing items were added
    after: int = 0  # present in the end

    def __add__(self, other: "Rate") -> "Rate":
        return Rate(self.asked + other.asked, self.before + other.before, self.after + other.after)

    @property
    def met(self) -> bool | None:
        """True if all items were present in the end; None if there were no items."""
        return self.after >= self.asked if self.asked else None


@dataclass(frozen=True, slots=True)
class CompactionMetrics:
    """The metrics of one or more sessions. Only `saved` leaves out reverted acts."""

    sessions: int
    summaries: tuple[Act, ...]
    probes: tuple[tuple[str, Rate], ...]  # by kind
    sections: Rate
    recovery: Rate
    saved: tuple[tuple[str, int, int], ...]  # layer, acts, tokens
    cost_usd: float | None  # None if a price is unknown

    @property
    def halved(self) -> Rate:
        """The number of summaries, and how many left less than half of the context."""
        below = sum(map(left_less_than_half, self.summaries))
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


def left_less_than_half(summary: Act) -> bool:
    """Return True if a summary left less than half of the context."""
    return summary.after < MAX_SHARE_LEFT * summary.before


def session_metrics(entries: Iterable[Entry]) -> CompactionMetrics:
    """Return the metrics of one session."""
    found = [e for e in entries if isinstance(e, Summary)]
    done = acts(entries)
    prices = [
        e.cost_usd for e in entries if isinstance(e, Assistant) and e.purpose in COMPACTION_PURPOSES
    ]
    checks = [e.probes if isinstance(e.probes, dict) else {} for e in found]
    return CompactionMetrics(
        sessions=1,
        summaries=tuple(act for act in done if act.layer == Summary.kind),
        probes=_by_kind([row for check in checks for row in _rates(check.get("tally"))]),
        sections=sum(
            (_single_check_rate(check.get("sections"), "critical", "kept") for check in checks),
            Rate(),
        ),
        recovery=sum(
            (_single_check_rate(check.get("recovery"), "asked", "ok") for check in checks), Rate()
        ),
        saved=tuple(savings(done)),
        cost_usd=_total_cost(prices),
    )


def total_metrics(parts: Sequence[CompactionMetrics]) -> CompactionMetrics:
    """Return the sum of several sessions' metrics."""
    saved = [
        (
            layer,
            sum(n for part in parts for name, n, _ in part.saved if name == layer),
            sum(t for part in parts for name, _, t in part.saved if name == layer),
        )
        for layer in ordered(name for part in parts for name, _, _ in part.saved)
    ]
    return CompactionMetrics(
        sessions=sum(part.sessions for part in parts),
        summaries=tuple(act for part in parts for act in part.summaries),
        probes=_by_kind([row for part in parts for row in part.probes]),
        sections=sum((part.sections for part in parts), Rate()),
        recovery=sum((part.recovery for part in parts), Rate()),
        saved=tuple(saved),
        cost_usd=_total_cost([part.cost_usd for part in parts]),
    )


def _rates(facts: Any) -> list[tuple[str, Rate]]:
    rows = facts.items() if isinstance(facts, dict) else ()
    return [
        (str(kind), Rate(*(int_field(row, name) for name in ("asked", "before", "after"))))
        for kind, row in rows
    ]


def _single_check_rate(facts: Any, asked: str, there: str) -> Rate:
    """Return the rate of a check that is made once: `before` and `after` are equal."""
    return Rate(int_field(facts, asked), int_field(facts, there), int_field(facts, there))


def _by_kind(rows: Sequence[tuple[str, Rate]]) -> tuple[tuple[str, Rate], ...]:
    kinds: dict[str, Rate] = {}
    for kind, rate in rows:
        kinds[kind] = kinds.get(kind, Rate()) + rate
    return tuple(kinds.items())


def _total_cost(prices: Sequence[float | None]) -> float | None:
    known = [price for price in prices if price is not None]
    return sum(known) if len(known) == len(prices) else None


def _json(rate: Rate) -> dict[str, Any]:
    return {**asdict(rate), "met": rate.met}
