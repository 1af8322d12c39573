"""Break-even: when an edit of history pays, and how far back it should reach.

What is due to be cleared is read again with each call until it is gone. An edit saves that, and
costs one rewrite: all that stands after the first change is written to the cache anew. Nobody knows
how many calls are still to come. So the cost of reading each thing since it became due is added up,
and an edit is made when the sum over all that it clears has come to a share of the rewrite's price:
then it is never far from the best choice in hindsight (as with renting or buying skis). Of all
places where it could begin, the one with the largest gain is taken, so that a small result far back
does not cause the rewrite of a long context.

Some models charge more for all of a prompt above a size. What the rest of a prompt costs more
so, while clearing could spare it, is one more account; it counts for an edit that brings the prompt
below that size.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ...context.view import View

REWRITE_COST_SHARE = 0.5  # of a rewrite's price: what reading must have cost before an edit pays


@dataclass(frozen=True, slots=True)
class DueMask:
    """A result or an input that may be masked now, with what that saves."""

    layer: Literal["microcompact", "truncate"]
    target: Mapping[str, Any]  # of the mask
    saved: int  # scaled tokens

    @property
    def id(self) -> str:
        return f"{self.layer} {self.target['tool_use_id']}"

    @property
    def seq(self) -> int:
        return int(self.target["seq"])


@dataclass(frozen=True, slots=True)
class HistoryEdit:
    """An edit of history that could be made."""

    due: tuple[DueMask, ...]  # what it clears, oldest first
    saved: int  # scaled tokens
    rewritten: int  # scaled tokens that stand from its first change on afterwards
    gain: float  # reading cost so far, less the share of the rewrite's; in tokens at input price

    @property
    def pays(self) -> bool:
        return self.gain >= 0


@dataclass(frozen=True, slots=True)
class PromptPrices:
    """The prices of a prompt's tokens, as shares of the model's lowest price of input."""

    read: float  # from the cache
    rewrite: float  # of writing a token that would have been read, beyond reading it
    prompt: int  # tokens of the next prompt as it stands
    factor: Callable[[int], float]  # on all prices, for a prompt of so many tokens


@dataclass(slots=True)
class BreakEven:
    """The reading costs in one conversation, by the id of what is due, in tokens at input price."""

    reading_cost: dict[str, float] = field(default_factory=dict)
    surcharge: float = 0.0  # paid for the rest of the prompts, while clearing could have spared it

    def charge_reading(self, due: Sequence[DueMask], prices: PromptPrices) -> None:
        """Add one reading of all that is due, before each call, and forget what is due no more."""
        rest = prices.prompt - sum(each.saved for each in due)
        now, then = prices.factor(prices.prompt), prices.factor(rest)
        self.reading_cost = {
            each.id: self.reading_cost.get(each.id, 0.0) + now * prices.read * each.saved
            for each in due
        }
        self.surcharge = self.surcharge + (now - then) * prices.read * rest if now > then else 0.0

    def best_edit(
        self, due: Sequence[DueMask], view: View, prices: PromptPrices
    ) -> HistoryEdit | None:
        """Return the edit with the largest gain; None when nothing is due."""
        edits = self._possible_edits(due, view, prices)
        return max(edits, key=lambda edit: (edit.gain, edit.saved), default=None)

    def _possible_edits(
        self, due: Sequence[DueMask], view: View, prices: PromptPrices
    ) -> Iterator[HistoryEdit]:
        """Yield the edits that could be made: each clears all that is due from some place on."""
        places = sorted(
            ((place, each) for each in due if (place := view.position(each.seq)) is not None),
            key=lambda pair: pair[0],
        )
        after, end, saved, cost = 0, len(view.items), 0, 0.0
        for number in range(len(places) - 1, -1, -1):
            place, each = places[number]
            after += sum(item.size for item in view.items[place:end])
            end, saved = place, saved + each.saved
            cost += self.reading_cost.get(each.id, 0.0)
            if number and places[number - 1][0] == place:
                continue
            rewritten = max(0, view.scaled(after) - saved)
            then = prices.factor(prices.prompt - saved)
            spared = self.surcharge if then < prices.factor(prices.prompt) else 0.0
            gain = cost + spared - REWRITE_COST_SHARE * then * prices.rewrite * rewritten
            yield HistoryEdit(tuple(due for _, due in places[number:]), saved, rewritten, gain)
