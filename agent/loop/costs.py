"""The bill of a session: what it has cost and what for, folded from its entries.

The lines add up to the session's totals. A price that is not known makes every sum unknown that it
is part of.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from ..models.cache_warming import miss_usd
from ..models.catalog import cache_life, cost, known_model
from ..session.entries import WARMING, Assistant, Entry, Session, SubagentRun, Usage, User
from ..session.totals import Counts, Totals

PURPOSES = {
    "turn": "conversation",
    "summary": "compaction",
    "verify": "verification",
    WARMING: "cache kept warm",
    "attempt": "broken attempts",
}


@dataclass(frozen=True, slots=True)
class BillLine:
    """One line of a bill."""

    what: str  # the purpose of the session's own calls, or the subagent's task
    counts: Counts
    agent: SubagentRun | None = None  # None for the session's own calls


@dataclass(frozen=True, slots=True)
class SessionBill:
    """The bill of one session."""

    lines: tuple[BillLine, ...]  # those that have calls: the session's own, then its subagents
    totals: Totals
    saved: float | None  # dollars that the cache saved (negative: cost); None when not known
    # Of `saved`, those of calls that read the cache because it was kept warm, without the price of
    # that.
    saved_by_warming: float | None = 0.0


def session_bill(
    entries: Iterable[Entry], log: Callable[[SubagentRun], Iterable[Entry]]
) -> SessionBill:
    """Return the bill of a session; `log` gives the entries of a subagent's own log."""
    totals, own = Totals(), {what: Totals() for what in PURPOSES.values()}
    agents: dict[str, SubagentRun] = {}
    cache = _Cache()
    for entry in entries:
        totals.add(entry)
        cache.add(entry)
        if isinstance(entry, Assistant):
            own.setdefault(PURPOSES.get(entry.purpose, entry.purpose), Totals()).add(entry)
        elif isinstance(entry, SubagentRun):
            agents[entry.id] = entry
    for agent in agents.values():
        child = _Cache()
        for entry in log(agent):
            child.add(entry)
        cache.include(child, totals.by_agent[agent.id])
    lines = [BillLine(what, part.all) for what, part in own.items()]
    lines += [BillLine(a.description, totals.by_agent[a.id], a) for a in agents.values()]
    made = tuple(line for line in lines if line.counts.calls)
    return SessionBill(made, totals, cache.saved, cache.saved_by_warming)


@dataclass(slots=True)
class _Cache:
    """What the prompt cache has saved in one log, call by call."""

    saved: float | None = 0.0
    calls: int = 0
    asked: str = ""  # the model of the newest call: a server may answer under another name
    saved_by_warming: float | None = 0.0
    _called: str = ""  # when the newest reply came, as in the log
    _heard: str = ""  # the same of the person's newest words
    _warmed: int = 0  # tokens that were read from the cache to keep them there, since that reply

    def add(self, entry: Entry) -> None:
        if isinstance(entry, Session):
            self.asked = entry.model
        elif isinstance(entry, User) and entry.begins_turn:
            self._heard = entry.at
        elif isinstance(entry, Assistant):
            self.calls += 1
            usage = Usage.from_json(entry.usage)
            model = entry.model if known_model(entry.model) else self.asked
            paid = cost(model, usage)
            plain = replace(usage, input=usage.prompt, cache_read=0, cache_creation=0)
            # Without a cache nobody would have kept it warm.
            full = 0.0 if entry.purpose == WARMING else cost(model, plain)
            if self.saved is None or paid is None or full is None:
                self.saved = None
            else:
                self.saved += full - paid
            self._add_warming(entry, model, usage)

    def _add_warming(self, entry: Assistant, model: str, usage: Usage) -> None:
        """Count what a turn's first call reads that would not be in the cache any more."""
        if entry.purpose == WARMING:
            self._warmed = max(self._warmed, usage.cache_read)
        elif entry.purpose == "turn":
            if self._warmed and _seconds_between(self._called, self._heard) > cache_life(model):
                saved = miss_usd(model, min(usage.cache_read, self._warmed))
                before = self.saved_by_warming
                self.saved_by_warming = None if before is None or saved is None else before + saved
            self._called, self._warmed = entry.at, 0

    def include(self, other: "_Cache", counts: Counts) -> None:
        """Add the savings of a subagent; unknown when its log lacks calls that were counted."""
        if self.saved is None or other.saved is None or other.calls < counts.calls:
            self.saved = None
        else:
            self.saved += other.saved


def _seconds_between(earlier: str, later: str) -> float:
    """Return the seconds between two times of the log; 0 where one is garbled."""
    try:
        return (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds()
    except (ValueError, TypeError):
        return 0.0
