"""Totals: what a session has used, as sums over its log."""

from dataclasses import dataclass, field

from .entries import Assistant, Entry, Mask, Summary, ToolResult, Usage, User


@dataclass(slots=True)
class Totals:
    """Counts since the first entry. `cost_usd` is None as soon as one call had no known price."""

    turns: int = 0
    calls: int = 0
    tool_calls: int = 0
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = 0.0
    compaction: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(
            ("demoted", "microcompacted", "truncated", "summaries", "tokens_saved"), 0
        )
    )

    def add(self, entry: Entry) -> None:
        if isinstance(entry, User):
            self.turns += entry.source == "person"
        elif isinstance(entry, Assistant):
            self.calls += 1
            self.usage += Usage.from_json(entry.usage)
            if self.cost_usd is not None:
                self.cost_usd = None if entry.cost_usd is None else self.cost_usd + entry.cost_usd
        elif isinstance(entry, ToolResult):
            self.tool_calls += 1
            if entry.offloaded:
                self.compaction["demoted"] += 1
                self.compaction["tokens_saved"] += int(entry.details.get("tokens_saved", 0))
        elif isinstance(entry, Mask):
            name = {"demote": "demoted", "truncate": "truncated"}.get(entry.layer, "microcompacted")
            self.compaction[name] += len(entry.targets)
            self.compaction["tokens_saved"] += entry.tokens_before - entry.tokens_after
        elif isinstance(entry, Summary):
            self.compaction["summaries"] += 1
            self.compaction["tokens_saved"] += entry.tokens_before - entry.tokens_after
