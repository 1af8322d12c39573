"""Break-even: when an edit of history pays, how far back it should reach, and what it should spare.

What may be cleared is read again with each call until it is gone. An edit saves that, and costs one
rewrite: all that stands after the first change is written to the cache again. It also costs what is
missed afterwards: the chance that a text is needed again, times the price of one more call to get
it (`need_chances`). Nobody knows how many calls are still to come. So the cost of reading each
thing is added up from its first call on, and an edit is made when that, over all that it clears,
has come to the price of the rewrite and of the misses: then it is never far from the best choice in
hindsight (as with renting or buying skis). Of all places where it could begin, the one with the
largest gain is taken, so that a small result far back does not cause the rewrite of a long context;
what is more likely to be missed than it costs to read stays.

Some models charge more for all of a prompt above a size. What the rest of a prompt costs more
so, while clearing could spare it, is one more account; it counts for an edit that brings the prompt
below that size.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Literal

from ...context.view import View
from ...lazy import dataclass
from .need_chances import MISS_PROMPTS


@dataclass(frozen=True, slots=True)
class DueMask:
    """A result or an input that may be masked now, with what that saves."""

    layer: Literal["microcompact", "truncate", "outline"]
    target: Mapping[str, Any]  # of the mask
    saved: int  # scaled tokens
    need_chance: float = 0.0  # that what it takes out is needed afterwards
    parts: tuple["DueMask", ...] = ()  # what may be masked instead, and would save less

    @property
    def id(self) -> str:
        return f"{self.layer} {self.target['tool_use_id']}"

    @property
    def ids(self) -> set[str]:
        """Its own id and those of its parts."""
        return {self.id, *(part.id for part in self.parts)}

    @property
    def saved_alone(self) -> int:
        """The tokens that it saves beyond its parts."""
        return self.saved - sum(part.saved for part in self.parts)

    @property
    def seq(self) -> int:
        return int(self.target["seq"])


@dataclass(frozen=True, slots=True)
class HistoryEdit:
    """An edit of history that could be made."""

    due: tuple[DueMask, ...]  # what it clears, oldest first
    saved: int  # scaled tokens
    rewritten: int  # scaled tokens that stand from its first change on afterwards
    gain: float  # reading cost so far, less the prices of rewrite and misses; tokens at input price

    @property
    def pays(self) -> bool:
        return self.gain >= 0


@dataclass(frozen=True, slots=True)
class PromptPrices:
    """The prices of a prompt's tokens, as shares of the model's lowest price of input."""

    read: float  # from the cache
    write: float  # into the cache
    prompt: int  # tokens of the next prompt as it stands
    factor: Callable[[int], float]  # on all prices, for a prompt of so many tokens
    is_cold: bool = False  # the cache has ended: all of the next prompt is written

    @property
    def rewrite(self) -> float:
        """The price of writing a token that would have been read, beyond reading it."""
        return self.write - self.read

    def miss(self, due: DueMask) -> float:
        """Return what it will cost, by its chance, that a masked text is needed again."""
        once_more = (self.read + MISS_PROMPTS) * self.prompt
        return due.need_chance * (once_more + self.write * due.saved)


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
            each.id: self.reading_cost.get(each.id, 0.0) + now * prices.read * each.saved_alone
            for whole in due
            for each in (whole, *whole.parts)
        }
        self.surcharge = self.surcharge + (now - then) * prices.read * rest if now > then else 0.0

    def _better(self, due: DueMask, prices: PromptPrices) -> tuple[DueMask, ...]:
        """Return a mask, or its parts where they are worth more: what is due as a whole has another
        chance to be missed."""
        worth = sum(self.worth(part, prices) for part in due.parts)
        return due.parts if due.parts and worth > self.worth(due, prices) else (due,)

    def worth(self, due: DueMask, prices: PromptPrices) -> float:
        """Return what masking this alone would gain if it caused no rewrite."""
        return sum(self.reading_cost.get(id, 0.0) for id in due.ids) - prices.miss(due)

    def best_edit(
        self, due: Sequence[DueMask], view: View, prices: PromptPrices, at_least: int = 0
    ) -> HistoryEdit | None:
        """Return the edit with the largest gain of those that save so many scaled tokens; None when
        none does."""
        chosen: list[DueMask] = []
        edits = self._possible_edits(due, view, prices, chosen)
        edits = (edit for edit in edits if edit[1] >= at_least)
        best = max(edits, key=lambda edit: edit[:2], default=None)
        if best is None:
            return None
        gain, saved, rewritten, count = best
        return HistoryEdit(tuple(reversed(chosen[:count])), saved, rewritten, gain)

    def _possible_edits(
        self, due: Sequence[DueMask], view: View, prices: PromptPrices, chosen: list[DueMask]
    ) -> Iterator[tuple[float, int, int, int]]:
        """Yield the edits that could be made: gain, tokens saved and rewritten, and how many of the
        `chosen` each clears, which are gathered from the newest back. It clears, from some place
        on, all that is due and better gone where what stands there is written again anyway."""
        places = sorted(
            (
                (place, each)
                for whole in due
                for each in self._better(whole, prices)
                if (place := view.position(each.seq)) is not None
            ),
            key=lambda pair: pair[0],
        )
        after, end, saved, worth = 0, len(view.items), 0, 0.0
        factor = prices.factor(prices.prompt)
        for place, each in reversed(places):
            its_worth = self.worth(each, prices)
            if its_worth + prices.rewrite * each.saved < 0:
                continue
            after += sum(item.size for item in view.items[place:end])
            end, saved, worth = place, saved + each.saved, worth + its_worth
            chosen.append(each)
            rewritten = max(0, view.scaled(after) - saved)
            then = prices.factor(prices.prompt - saved)
            spared = self.surcharge if then < factor else 0.0
            written = -saved if prices.is_cold else rewritten
            gain = worth + spared - then * prices.rewrite * written
            yield gain, saved, rewritten, len(chosen)
