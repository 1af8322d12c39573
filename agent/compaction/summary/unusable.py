"""Count consecutive unusable summaries of a model.

A model that cannot write a summary costs a long call each time. After two unusable summaries,
summaries are built from the ledger until the model changes. The newest summary's entry stores the
count for resumed sessions.
"""

from collections.abc import Mapping
from typing import Any

from ...lazy import dataclass
from ...session.entries import Summary

MAX_UNUSABLE = 2  # in a row
KEY = "unusable"  # in the checks of a summary


@dataclass(slots=True)
class UnusableSummaries:
    """The number of consecutive unusable summaries of one model."""

    model: str = ""
    count: int = 0

    @classmethod
    def from_summary(cls, summary: Summary | None) -> "UnusableSummaries":
        """Return the count in the entry of the newest summary."""
        noted = summary.probes.get(KEY) if summary else None
        if not isinstance(noted, Mapping) or not isinstance(noted.get("count"), int):
            return cls()
        return cls(str(noted.get("model")), noted["count"])

    def add(self, model: str) -> None:
        """Count an unusable summary."""
        self.model, self.count = model, self.count + 1 if model == self.model else 1

    def clear(self) -> None:
        """Reset the count after a usable summary."""
        self.count = 0

    def should_skip(self, model: str) -> bool:
        """Return True if the model should not be asked for summaries any more."""
        return model == self.model and self.count >= MAX_UNUSABLE

    def to_check(self) -> dict[str, Any]:
        """Return the count as a field of a summary's checks; an empty dict for 0."""
        return {KEY: {"model": self.model, "count": self.count}} if self.count else {}
