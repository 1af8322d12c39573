"""What a run has used, held against its bounds before each call. Shared by all that run in it."""

from dataclasses import dataclass, field
from typing import Optional

from .errors import LimitReached
from .launch import Bounds


@dataclass
class Spending:
    """Model calls and dollars of this run. What is spent `within` another counts there too, and
    ends with it. `hint` says how to go on after a limit of its own, where that is not by a higher
    option."""

    bounds: Bounds = field(default_factory=Bounds)
    calls: int = 0
    dollars: float = 0.0
    within: Optional["Spending"] = None
    hint: str = ""

    def check(self) -> None:
        """Raises LimitReached before a call that this run may not make."""
        if self.within is not None:
            self.within.check()
        if self.bounds.calls is not None and self.calls >= self.bounds.calls:
            raise LimitReached(
                f"the limit of {self.bounds.calls} model calls is reached",
                limit="turns",
                hint=self.hint or "Go on with `ctxagent --continue` and a higher --max-turns.",
            )
        if self.bounds.dollars is not None and self.dollars >= self.bounds.dollars:
            raise LimitReached(
                f"the budget of ${self.bounds.dollars:g} is spent (${self.dollars:.4f})",
                limit="budget",
                hint=self.hint or "Go on with `ctxagent --continue` and a higher --max-budget-usd.",
            )

    @property
    def is_spent(self) -> bool:
        """Whether no further call may be made."""
        try:
            self.check()
        except LimitReached:
            return True
        return False

    def call(self) -> int:
        """Count one more call; its number. Raises LimitReached as `check`, since others that share
        the bounds may have called in the meantime."""
        self.check()
        self._count()
        return self.calls

    def pay(self, dollars: float) -> None:
        self.dollars += dollars
        if self.within is not None:
            self.within.pay(dollars)

    def _count(self) -> None:
        self.calls += 1
        if self.within is not None:
            self.within._count()
