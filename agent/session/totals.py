"""Totals over the log of a session: calls, tokens, cost and compaction. Subagents are included, and
are also counted separately.
"""

import operator
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from datetime import datetime
from typing import Any

from ..lazy import dataclass
from .entries import (
    WARMING,
    Assistant,
    Entry,
    Mask,
    Session,
    SubagentRun,
    Summary,
    ToolResult,
    Usage,
    User,
)
from .in_flight import InFlight

LAYERS = ("demoted", "microcompacted", "truncated", "outlined", "summaries", "tokens_saved")
_COUNTED_AS = {"demote": "demoted", "truncate": "truncated", "outline": "outlined"}


@dataclass(slots=True)
class Counts:
    """Counts of model calls, tool calls and compaction."""

    calls: int = 0
    tool_calls: int = 0
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = 0.0  # None if the price of any call is unknown
    compaction: dict[str, int] = field(default_factory=lambda: dict.fromkeys(LAYERS, 0))

    def __add__(self, other: "Counts") -> "Counts":
        return self._combined(other, operator.add)

    def __sub__(self, other: "Counts") -> "Counts":
        return self._combined(other, operator.sub)

    def _combined(self, other: "Counts", combine: Callable[[Any, Any], Any]) -> "Counts":
        known = self.cost_usd is not None and other.cost_usd is not None
        return Counts(
            combine(self.calls, other.calls),
            combine(self.tool_calls, other.tool_calls),
            combine(self.usage, other.usage),
            combine(self.cost_usd, other.cost_usd) if known else None,
            {name: combine(self.compaction[name], other.compaction[name]) for name in LAYERS},
        )

    def recorded_in(self, agent: SubagentRun) -> SubagentRun:
        """Return the entry of a subagent with these counts."""
        return replace(
            agent,
            usage=self.usage.to_json(),
            cost_usd=self.cost_usd,
            calls=self.calls,
            tool_calls=self.tool_calls,
            compaction=self.compaction,
        )

    @classmethod
    def of(cls, agent: SubagentRun) -> "Counts":
        """Return the counts in a subagent's entry. Malformed counts are 0."""
        unknown = agent.cost_usd is None and agent.calls > 0
        return cls(
            agent.calls,
            agent.tool_calls,
            Usage.from_json(agent.usage),
            None if unknown else agent.cost_usd or 0.0,
            {name: _count(agent.compaction, name) for name in LAYERS},
        )


@dataclass(slots=True)
class Totals:
    """Totals since the first entry of a log."""

    turns: int = 0
    model: str = ""  # the current model
    # Time at which each model last read the prompt, in the log's format.
    replied: dict[str, str] = field(default_factory=dict)
    own: Counts = field(default_factory=Counts)  # without the subagents
    by_agent: dict[str, Counts] = field(default_factory=dict)  # by subagent ID
    in_flight: InFlight = field(default_factory=InFlight)  # requests without a recorded reply

    def add(self, entry: Entry) -> None:
        own = self.own
        self.in_flight.add(entry)
        if isinstance(entry, Session):
            self.model = entry.model
        elif isinstance(entry, User):
            self.turns += entry.begins_turn
        elif isinstance(entry, SubagentRun):
            self.by_agent[entry.id] = Counts.of(entry)
        elif isinstance(entry, Assistant):
            own.calls += 1
            if entry.purpose in ("turn", WARMING) and entry.at:
                self.replied[self.model] = entry.at
            own.usage += Usage.from_json(entry.usage)
            if own.cost_usd is not None:
                own.cost_usd = None if entry.cost_usd is None else own.cost_usd + entry.cost_usd
        elif isinstance(entry, ToolResult):
            own.tool_calls += 1
        elif isinstance(entry, Mask):
            name = _COUNTED_AS.get(entry.layer, "microcompacted")
            own.compaction[name] += len(entry.targets)
            own.compaction["tokens_saved"] += entry.tokens_before - entry.tokens_after
        elif isinstance(entry, Summary):
            own.compaction["summaries"] += 1
            own.compaction["tokens_saved"] += entry.tokens_before - entry.tokens_after
        if isinstance(entry, (ToolResult, User)) and entry.offloaded:
            own.compaction["demoted"] += 1
            own.compaction["tokens_saved"] += _count(entry.details, "tokens_saved")

    def replied_at(self, model: str) -> float | None:
        """Return the time of a model's last reply in seconds since 1970, or None if there is none
        or it is malformed.
        """
        try:
            return datetime.fromisoformat(self.replied.get(model, "")).timestamp()
        except (ValueError, OverflowError):
            return None

    @property
    def agents(self) -> Counts:
        """The sum over all subagents."""
        return sum(self.by_agent.values(), Counts())

    @property
    def all(self) -> Counts:
        """The sum over the session and its subagents. The cost includes requests in flight."""
        found = self.own + self.agents
        if found.cost_usd is not None:
            found.cost_usd += self.in_flight.dollars
        return found


def _count(counts: Mapping[str, Any], name: str) -> int:
    count = counts.get(name, 0)
    return count if isinstance(count, int) else 0
