"""Count the model calls and the cost of a run, and check its budget before each call."""

from dataclasses import field
from typing import Optional

from ...tools.system.plural import count_of
from ..errors import LimitReached
from ..launch import Budget
from ..lazy import dataclass


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
                hint=self.hint or "Resume with `ctxagent --continue` and a higher --max-turns.",
            )
        if self.budget.dollars is not None and self.dollars + self.in_flight >= self.budget.dollars:
            raise LimitReached(
                f"the budget of ${self.budget.dollars:g} is spent (${self.dollars:.4f})",
                limit="budget",
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
