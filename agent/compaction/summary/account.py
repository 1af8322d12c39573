"""The account of a summary: the cost of reading the old part so far, compared with the price of a
summary.

Every call reads the old part of the context, long before a large window is full. The number of
future calls is unknown, so the engine uses a break-even rule, as for clearing
(`layers/break_even.py`). A summary pays once the reads have cost as much as the summary. Its price
is the call that writes it, its own text, the rewrite of the remaining context, and the expected
cost of content that is needed again.
"""

from ...lazy import dataclass

OUTPUT_PRICE = 5.0  # price of output as a multiple of input, for models without a known price
REPLY_SHARE = 0.35  # average length of a summary, as a share of its cap


@dataclass(frozen=True, slots=True)
class SummaryCost:
    """The costs for one decision about a summary, in input tokens."""

    reading: float  # reading the part that the summary would replace, once
    price: float  # making the summary


@dataclass(slots=True)
class SummaryAccount:
    """The cost of reading the old part since the last summary, in input tokens."""

    spent: float = 0.0

    def charge(self, cost: SummaryCost) -> None:
        """Add the cost of one read, before a call."""
        self.spent += max(0.0, cost.reading)

    def pays(self, cost: SummaryCost) -> bool:
        """Return True if reading has cost at least as much as a summary."""
        return cost.reading > 0 and self.spent >= cost.price

    def calls_left(self, cost: SummaryCost) -> int | None:
        """Return the number of calls at this cost until a summary pays; None if never."""
        if cost.reading <= 0:
            return None
        return max(0, -int((self.spent - cost.price) // cost.reading))
