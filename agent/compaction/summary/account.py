"""The account of a summary: what not having it has cost so far, against what it would cost.

In a large window the part of the context that a summary would take the place of is read with every
call, long before the window is full. As with clearing (`layers/break_even.py`), nobody knows how
many calls are still to come, so what reading that part costs is added up, and a summary pays when
this has come to its price: the call that writes it, its own text, writing again what stays, and
what will be missed afterwards.
"""

from ...lazy import dataclass

OUTPUT_PRICE = 5.0  # times that of input, of models whose price is not known
REPLY_SHARE = 0.35  # of the cap on a summary: what one has on the average


@dataclass(frozen=True, slots=True)
class SummaryCost:
    """The prices around one summary, in tokens at the price of input."""

    reading: float  # of reading once what the summary would take the place of
    price: float  # of the summary itself


@dataclass(slots=True)
class SummaryAccount:
    """What reading the old part has cost since the last summary, in tokens at input price."""

    spent: float = 0.0

    def charge(self, cost: SummaryCost) -> None:
        """Add one reading, before a call."""
        self.spent += max(0.0, cost.reading)

    def pays(self, cost: SummaryCost) -> bool:
        """Return whether a summary would have paid for itself by now."""
        return cost.reading > 0 and self.spent >= cost.price

    def calls_left(self, cost: SummaryCost) -> int | None:
        """Return after how many calls like this one it will pay; None if it never does so."""
        if cost.reading <= 0:
            return None
        return max(0, -int((self.spent - cost.price) // cost.reading))
