"""The cost of a run and of a session: the budget check before each call, and the bill by purpose.

The lines of a bill are computed from the session's entries and add up to its totals. If a price is
unknown, every sum that contains it is unknown.
"""

from collections.abc import Callable, Iterable
from dataclasses import field, replace
from typing import Optional

from ...tools.system.phrasing import count_of
from ..errors import LimitReached
from ..launch import Budget
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


@dataclass
class BudgetMeter:
    """The model calls and dollars of one run, shared by its conversations.

    Calls and dollars are also counted by the meter `within`, whose limits apply too.
    """

    budget: Budget = field(default_factory=Budget)
    calls: int = 0
    dollars: float = 0.0
    in_flight: float = 0.0  # estimated dollars of requests without a reply yet
    records_requests: bool = False  # record the start of each request in the log
    within: Optional["BudgetMeter"] = None
    hint: str = ""  # how to continue after the limit; "": raise the option

    def check(self) -> None:
        """Raise LimitReached if the budget allows no further call."""
        if self.within is not None:
            self.within.check()
        if self.budget.calls is not None and self.calls >= self.budget.calls:
            raise LimitReached(
                f"the limit of {count_of(self.budget.calls, 'model call')} has been reached",
                limit="turns",
                value=self.budget.calls,
                hint=self.hint or "Resume with `ctxagent --continue` and a higher --max-turns.",
            )
        if self.budget.dollars is not None and self.dollars + self.in_flight >= self.budget.dollars:
            raise LimitReached(
                f"the budget of ${self.budget.dollars:g} is spent (${self.dollars:.4f})",
                limit="budget",
                value=self.budget.dollars,
                hint=self.hint
                or "Resume with `ctxagent --continue` and a higher --max-budget-usd.",
            )

    @property
    def is_spent(self) -> bool:
        """True if no further call is allowed."""
        try:
            self.check()
        except LimitReached:
            return True
        return False

    def call(self) -> int:
        """Count one more call and return its number.

        Raises LimitReached like `check`, since another conversation may have spent the rest of the
        budget.
        """
        self.check()
        self._count()
        return self.calls

    def pay(self, dollars: float) -> None:
        self.dollars += dollars
        if self.within is not None:
            self.within.pay(dollars)

    def reserve(self, dollars: float) -> None:
        """Reserve the dollars of a request until it is paid. A negative amount releases them."""
        self.in_flight += dollars
        if self.within is not None:
            self.within.reserve(dollars)

    def _count(self) -> None:
        self.calls += 1
        if self.within is not None:
            self.within._count()
