"""Totals: what a session has used, as sums over its log; subagents count, and stand apart too."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from .entries import Agent, Assistant, Entry, Mask, Summary, ToolResult, Usage, User

LAYERS = ("demoted", "microcompacted", "truncated", "summaries", "tokens_saved")


def _nothing() -> dict[str, int]:
    return dict.fromkeys(LAYERS, 0)


@dataclass(slots=True)
class Counts:
    """Calls of the model and of tools, and what compaction did. `cost_usd` is None as soon as one
    call had no known price."""

    calls: int = 0
    tool_calls: int = 0
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = 0.0
    compaction: dict[str, int] = field(default_factory=_nothing)

    def __add__(self, other: "Counts") -> "Counts":
        known = self.cost_usd is not None and other.cost_usd is not None
        return Counts(
            self.calls + other.calls,
            self.tool_calls + other.tool_calls,
            self.usage + other.usage,
            (self.cost_usd or 0.0) + (other.cost_usd or 0.0) if known else None,
            {name: self.compaction[name] + other.compaction[name] for name in LAYERS},
        )

    def __sub__(self, other: "Counts") -> "Counts":
        known = self.cost_usd is not None and other.cost_usd is not None
        return Counts(
            self.calls - other.calls,
            self.tool_calls - other.tool_calls,
            self.usage - other.usage,
            (self.cost_usd or 0.0) - (other.cost_usd or 0.0) if known else None,
            {name: self.compaction[name] - other.compaction[name] for name in LAYERS},
        )

    def on(self, agent: Agent) -> Agent:
        """The entry of a subagent that has used so much."""
        return replace(
            agent,
            usage=self.usage.to_json(),
            cost_usd=self.cost_usd,
            calls=self.calls,
            tool_calls=self.tool_calls,
            compaction=self.compaction,
        )

    @classmethod
    def of(cls, agent: Agent) -> "Counts":
        """What a subagent had used by an entry of it. What is garbled counts for nothing."""
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
    """Counts since the first entry: `own` without the subagents, `by_agent` theirs by id, and the
    sums of all under the names of `Counts`. `replied` is when the model did last, as in the log."""

    turns: int = 0
    replied: str = ""
    own: Counts = field(default_factory=Counts)
    by_agent: dict[str, Counts] = field(default_factory=dict)

    def add(self, entry: Entry) -> None:
        own = self.own
        if isinstance(entry, User):
            self.turns += entry.source == "person"
        elif isinstance(entry, Agent):
            self.by_agent[entry.id] = Counts.of(entry)
        elif isinstance(entry, Assistant):
            own.calls += 1
            self.replied = entry.at or self.replied
            own.usage += Usage.from_json(entry.usage)
            if own.cost_usd is not None:
                own.cost_usd = None if entry.cost_usd is None else own.cost_usd + entry.cost_usd
        elif isinstance(entry, ToolResult):
            own.tool_calls += 1
        elif isinstance(entry, Mask):
            name = {"demote": "demoted", "truncate": "truncated"}.get(entry.layer, "microcompacted")
            own.compaction[name] += len(entry.targets)
            own.compaction["tokens_saved"] += entry.tokens_before - entry.tokens_after
        elif isinstance(entry, Summary):
            own.compaction["summaries"] += 1
            own.compaction["tokens_saved"] += entry.tokens_before - entry.tokens_after
        if isinstance(entry, ToolResult | User) and entry.offloaded:
            own.compaction["demoted"] += 1
            own.compaction["tokens_saved"] += _count(entry.details, "tokens_saved")

    @property
    def replied_at(self) -> float | None:
        """In seconds since 1970; None where the model never did, or the log does not tell."""
        try:
            return datetime.fromisoformat(self.replied).timestamp()
        except (ValueError, OverflowError):
            return None

    @property
    def agents(self) -> Counts:
        """All subagents together."""
        return sum(self.by_agent.values(), Counts())

    @property
    def all(self) -> Counts:
        return self.own + self.agents

    @property
    def calls(self) -> int:
        return self.all.calls

    @property
    def tool_calls(self) -> int:
        return self.all.tool_calls

    @property
    def usage(self) -> Usage:
        return self.all.usage

    @property
    def cost_usd(self) -> float | None:
        return self.all.cost_usd

    @property
    def compaction(self) -> dict[str, int]:
        return self.all.compaction


def _count(counts: Mapping[str, Any], name: str) -> int:
    count = counts.get(name, 0)
    return count if isinstance(count, int) else 0
