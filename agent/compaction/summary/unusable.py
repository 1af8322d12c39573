"""Count consecutive unusable summaries of a model.

A model that cannot write a summary costs a long call each time. After two unusable summaries, the
next one is built from the ledger. Then the model is asked again, since the context has grown and
changed. After each further unusable answer, twice as many summaries are built from the ledger. The
newest summary's entry stores the counts for resumed sessions.
"""

from collections.abc import Mapping
from typing import Any

from ...lazy import dataclass
from ...session.entries import Summary

MAX_ATTEMPTS = 2  # to write one summary
MAX_UNUSABLE = 2  # in a row, before the model is left out
MAX_SKIPPED = 16  # summaries from the ledger before the model is asked again
KEY = "unusable"  # in the checks of a summary


@dataclass(slots=True)
class UnusableSummaries:
    """The number of consecutive unusable summaries of one model."""

    model: str = ""
    count: int = 0
    skipped: int = 0  # summaries from the ledger since the newest unusable one

    @classmethod
    def from_summary(cls, summary: Summary | None) -> "UnusableSummaries":
        """Return the counts in the entry of the newest summary."""
        noted = summary.probes.get(KEY) if summary else None
        if not isinstance(noted, Mapping) or not isinstance(noted.get("count"), int):
            return cls()
        skipped = noted.get("skipped", 0)
        return cls(
            str(noted.get("model")), noted["count"], skipped if isinstance(skipped, int) else 0
        )

    def add(self, model: str) -> None:
        """Count an unusable summary."""
        self.model, self.count = model, self.count + 1 if model == self.model else 1
        self.skipped = 0

    def clear(self) -> None:
        """Reset the counts after a usable summary."""
        self.count = self.skipped = 0

    def skip(self) -> None:
        """Count a summary for which the model was not asked."""
        self.skipped += 1

    def should_skip(self, model: str) -> bool:
        """Return True if the model should not be asked for the next summary."""
        return model == self.model and self.skipped < self.to_skip

    def attempts(self, model: str) -> int:
        """Return how often the model may be asked for one summary: once if its newest ones were
        unusable.
        """
        return 1 if model == self.model and self.to_skip else MAX_ATTEMPTS

    @property
    def to_skip(self) -> int:
        """The number of summaries from the ledger after the newest unusable one."""
        doublings = self.count - MAX_UNUSABLE
        return min(2**doublings, MAX_SKIPPED) if doublings >= 0 else 0

    def to_check(self) -> dict[str, Any]:
        """Return the counts as a field of a summary's checks; an empty dict for 0."""
        if not self.count:
            return {}
        return {KEY: {"model": self.model, "count": self.count, "skipped": self.skipped}}
