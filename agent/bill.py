"""The bill: what a session has cost and what for, folded from its entries.

The lines add up to the session's totals. A price that is not known stays unknown in every sum that
it is part of.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from .model.base import cost, known
from .record.entries import Agent, Assistant, Entry, Session, Usage
from .record.totals import Counts, Totals

PURPOSES = {
    "turn": "conversation",
    "summary": "compaction",
    "verify": "verification",
    "attempt": "broken attempts",
}


@dataclass(frozen=True, slots=True)
class Line:
    """`agent` is None for what the session itself asked: then `what` says for which purpose. For a
    subagent it is what it was started for."""

    what: str
    counts: Counts
    agent: Agent | None = None


@dataclass(frozen=True, slots=True)
class Bill:
    """`lines` are those that have calls: the session's own, then its subagents. `saved` are the
    dollars that its prompts would have cost more without the cache (less, when negative); None
    when that cannot be known."""

    lines: tuple[Line, ...]
    totals: Totals
    saved: float | None


def bill(entries: Iterable[Entry], log: Callable[[Agent], Iterable[Entry]]) -> Bill:
    """The bill of a session. `log` gives the entries of a subagent's own log."""
    totals, own = Totals(), {what: Totals() for what in PURPOSES.values()}
    agents: dict[str, Agent] = {}
    cache = _Cache()
    for entry in entries:
        totals.add(entry)
        cache.add(entry)
        if isinstance(entry, Assistant):
            own.setdefault(PURPOSES.get(entry.purpose, entry.purpose), Totals()).add(entry)
        elif isinstance(entry, Agent):
            agents[entry.id] = entry
    for agent in agents.values():
        child = _Cache()
        for entry in log(agent):
            child.add(entry)
        cache.include(child, totals.by_agent[agent.id])
    lines = [Line(what, part.all) for what, part in own.items()]
    lines += [Line(a.description, totals.by_agent[a.id], a) for a in agents.values()]
    return Bill(tuple(line for line in lines if line.counts.calls), totals, cache.saved)


@dataclass(slots=True)
class _Cache:
    """What the cache has saved in a log, call by call. `asked` is the model that the newest call
    went to: a server may answer under another name."""

    saved: float | None = 0.0
    calls: int = 0
    asked: str = ""

    def add(self, entry: Entry) -> None:
        if isinstance(entry, Session):
            self.asked = entry.model
        elif isinstance(entry, Assistant):
            self.calls += 1
            usage = Usage.from_json(entry.usage)
            model = entry.model if known(entry.model) else self.asked
            paid = cost(model, usage)
            full = cost(model, Usage(input=usage.prompt, output=usage.output))
            if self.saved is None or paid is None or full is None:
                self.saved = None
            else:
                self.saved += full - paid

    def include(self, other: "_Cache", counts: Counts) -> None:
        """Add that of a subagent. One whose log lacks calls that were counted is not known."""
        if self.saved is None or other.saved is None or other.calls < counts.calls:
            self.saved = None
        else:
            self.saved += other.saved
