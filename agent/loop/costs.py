"""The bill of a session: its cost by purpose, computed from its entries.

The lines add up to the session's totals. If a price is unknown, every sum that contains it is
unknown.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

from ..lazy import dataclass
from ..models.catalog import cost, known_model
from ..session.entries import (
    CHECK,
    SAMPLING,
    WARMING,
    Assistant,
    Entry,
    Session,
    SubagentRun,
    Usage,
)
from ..session.totals import Counts, Totals

PURPOSES = {
    "turn": "conversation",
    "summary": "compaction",
    "verify": "verification",
    SAMPLING: "asked by MCP servers",
    WARMING: "cache kept warm",  # only in older logs
    "attempt": "broken attempts",
    CHECK: "checks after refusals",
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

    lines: tuple[BillLine, ...]  # lines with calls: the session's own, then its subagents
    totals: Totals
    saved: float | None  # dollars that the cache saved (negative: cost); None if unknown


def session_bill(
    entries: Iterable[Entry], log: Callable[[SubagentRun], Iterable[Entry]]
) -> SessionBill:
    """Return the bill of a session. `log` returns the entries of a subagent's log."""
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
    return SessionBill(made, totals, cache.saved)


@dataclass(slots=True)
class _Cache:
    """The savings of the prompt cache in one log, call by call."""

    saved: float | None = 0.0
    calls: int = 0
    asked: str = ""  # requested model of the newest call; servers may answer under another name

    def add(self, entry: Entry) -> None:
        if isinstance(entry, Session):
            self.asked = entry.model
        elif isinstance(entry, Assistant):
            self.calls += 1
            usage = Usage.from_json(entry.usage)
            model = entry.model if known_model(entry.model) else self.asked
            paid = cost(model, usage)
            plain = replace(usage, input=usage.prompt, cache_read=0, cache_creation=0)
            # Only in older logs. Without a cache these requests would not have been made.
            full = 0.0 if entry.purpose == WARMING else cost(model, plain)
            if self.saved is None or paid is None or full is None:
                self.saved = None
            else:
                self.saved += full - paid

    def include(self, other: "_Cache", counts: Counts) -> None:
        """Add the savings of a subagent. The sum is unknown if the subagent's log lacks counted
        calls.
        """
        if self.saved is None or other.saved is None or other.calls < counts.calls:
            self.saved = None
        else:
            self.saved += other.saved
