"""Totals over the log of a session: calls, tokens, cost and compaction.

Subagents are included, and are also counted separately. The cost includes an estimate for requests
without a recorded reply. A note is recorded before each request: if the process is killed, the
server may still finish the reply and bill it. The estimate then stays in the totals when another
process continues the session.
"""

import operator
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from datetime import datetime
from typing import Any

from ..lazy import dataclass
from .entries import (
    LAYER_NAMES,
    MOVE,
    WARMING,
    Assistant,
    Entry,
    Mask,
    Note,
    Session,
    SubagentRun,
    Summary,
    ToolResult,
    Usage,
    User,
)
from .server_speed import ServerSpeed

REQUEST_TOPIC = "request"  # topic of the note
FIRST_OUTPUT_TOKENS = 200  # assumed for a reply before the first one


@dataclass(slots=True)
class InFlight:
    """The requests in flight, computed from the entries of a log."""

    run: str = ""  # ID of the process that sent the requests in `open`
    open: dict[str, list[float]] = field(default_factory=dict)  # dollars per request, by purpose
    unanswered: float = 0.0  # dollars for requests of processes that ended before the reply
    prompt: int = 0  # prompt tokens of the newest turn reply, which the server may have cached
    replies: int = 0  # number of turn replies
    output: int = 0  # output tokens of these replies

    @property
    def dollars(self) -> float:
        """The estimated cost of requests without a recorded reply."""
        return self.unanswered + sum(map(sum, self.open.values()))

    @property
    def usual_output(self) -> int:
        """The average number of output tokens of a reply."""
        return self.output // self.replies if self.replies else FIRST_OUTPUT_TOKENS

    def add(self, entry: Entry) -> None:
        """Process one entry."""
        if isinstance(entry, Note) and entry.topic == REQUEST_TOPIC:
            self._add_note(entry.data)
        elif isinstance(entry, Assistant):
            if open := self.open.get(entry.purpose):
                open.pop()
            if entry.purpose == "turn":
                usage = Usage.from_json(entry.usage)
                self.prompt = usage.prompt
                self.replies, self.output = self.replies + 1, self.output + usage.output

    def _add_note(self, data: Mapping[str, Any]) -> None:
        purpose, run, cost = str(data.get("of")), str(data.get("run")), data.get("cost_usd")
        if run != self.run:
            self.unanswered += sum(map(sum, self.open.values()))
            self.run, self.open = run, {}
        open = self.open.setdefault(purpose, [])
        if data.get("replaces") and open:
            open.pop()
        if isinstance(cost, int | float) and cost >= 0:
            open.append(float(cost))


def request_note(purpose: str, run: str, cost: float | None, *, replaces: bool = False) -> Note:
    """Return the note for a request that begins. With `replaces`, it updates the newest open
    request of this purpose: it gives another estimate, or says without a cost that the request is
    not billed.
    """
    data = {"of": purpose, "run": run, "cost_usd": cost} | ({"replaces": True} if replaces else {})
    return Note(topic=REQUEST_TOPIC, text="", data=data)


COUNTS = (*(layer.counted for layer in LAYER_NAMES), "tokens_saved")
_COUNTED = {layer.logged: layer.counted for layer in LAYER_NAMES}


def count_name(layer: str) -> str:
    """Return the name of the count of a layer's replacements."""
    return _COUNTED.get(layer, layer)


@dataclass(slots=True)
class Counts:
    """Counts of model calls, tool calls and compaction."""

    calls: int = 0
    tool_calls: int = 0
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = 0.0  # None if the price of any call is unknown
    compaction: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))

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
            {
                name: combine(self.compaction.get(name, 0), other.compaction.get(name, 0))
                for name in self.compaction | other.compaction
            },
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
            {name: _count(agent.compaction, name) for name in (*COUNTS, *agent.compaction)},
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
    speeds: dict[str, ServerSpeed] = field(default_factory=dict)  # of servers, by model

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
            if entry.timings:
                self.speeds.setdefault(self.model, ServerSpeed()).add(entry)
            if own.cost_usd is not None:
                own.cost_usd = None if entry.cost_usd is None else own.cost_usd + entry.cost_usd
        elif isinstance(entry, ToolResult):
            own.tool_calls += 1
        elif isinstance(entry, Mask):
            self._note_edit()
            saved = entry.tokens_before - entry.tokens_after
            self._count_compaction(count_name(entry.layer), len(entry.targets), saved)
        elif isinstance(entry, Summary):
            self._note_edit()
            saved = entry.tokens_before - entry.tokens_after
            self._count_compaction(count_name(entry.kind), 1, saved)
        if isinstance(entry, (ToolResult, User)) and entry.offloaded:
            self._count_compaction(MOVE.counted, 1, _count(entry.details, "tokens_saved"))

    def _note_edit(self) -> None:
        for speed in self.speeds.values():
            speed.note_edit()

    def _count_compaction(self, name: str, replaced: int, saved: int) -> None:
        counts = self.own.compaction
        counts[name] = counts.get(name, 0) + replaced
        counts["tokens_saved"] += saved

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
