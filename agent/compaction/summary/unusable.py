"""Summaries of a model that were not usable, in a row.

A model that cannot write a summary costs a long call each time. After two such summaries the ledger
writes them, until the model changes. The newest summary's entry has the count, so a
resumed session goes on counting.
"""

from collections.abc import Mapping
from typing import Any

from ...lazy import dataclass
from ...session.entries import Summary

MAX_UNUSABLE = 2  # in a row
KEY = "unusable"  # among the checks of a summary


@dataclass(slots=True)
class UnusableSummaries:
    """The summaries of one model in a row that were not usable."""

    model: str = ""
    count: int = 0

    @classmethod
    def noted_in(cls, summary: Summary | None) -> "UnusableSummaries":
        """Return the count in the entry of the newest summary."""
        noted = summary.probes.get(KEY) if summary else None
        if not isinstance(noted, Mapping) or not isinstance(noted.get("count"), int):
            return cls()
        return cls(str(noted.get("model")), noted["count"])

    def add(self, model: str) -> None:
        """Count a summary that was not usable."""
        self.model, self.count = model, self.count + 1 if model == self.model else 1

    def clear(self) -> None:
        """Count from 0 again: a summary was usable."""
        self.count = 0

    def is_over(self, model: str) -> bool:
        """Return True if the model is not asked any more."""
        return model == self.model and self.count >= MAX_UNUSABLE

    def note(self) -> dict[str, Any]:
        """Return the checks of a summary that tell the count; none for 0."""
        return {KEY: {"model": self.model, "count": self.count}} if self.count else {}
