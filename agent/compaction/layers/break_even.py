"""Break-even: decide when clearing pays, where the edit begins, and which texts it spares.

Every call reads the texts that may be cleared, until they are cleared. Clearing costs one rewrite:
everything after the first change is written to the cache again. It also costs the expected misses:
the chance that a cleared text is needed again, times the price of one more call to get it
(`need_chances`).

The number of future calls is unknown, so the engine uses a break-even rule (the ski-rental
problem). It adds up the cost of reading each due text. An edit is made once this sum, over all
texts that it clears, reaches the policy's margin times the price of the rewrite plus the price of
the misses. So the total is never far from the best choice in hindsight. Of all possible beginnings,
the one with the largest gain is chosen. So a small result far back does not cause the rewrite of a
long context. A text stays if its expected miss costs more than reading it.

Some models charge higher prices for a whole prompt above a size. While clearing could avoid that,
the surcharge on the rest of the prompt is added up separately. It counts for an edit that brings
the prompt below that size.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from ...context.view import View
from ...lazy import dataclass

# From a user's return to the next pause that outlasts the cache. In recorded sessions, the median
# is 11 and the mean 32.
CALLS_AFTER_PAUSE = 15


@dataclass(frozen=True, slots=True)
class DueMask:
    """A mask that may be applied now, of a result, an input or an exchange."""

    layer: str  # its name
    target: Mapping[str, Any]  # of the mask
    saved: int  # scaled tokens
    need_chance: float = 0.0  # the chance that the masked text is needed again
    parts: tuple["DueMask", ...] = ()  # smaller masks that may be applied instead
    argument: str = ""  # the only argument that the mask shortens; "" for all
    price: float = 0.0  # of the mask in addition to the rewrite, in input tokens

    @property
    def id(self) -> str:
        return f"{self.layer} {self.target['tool_use_id']} {self.argument}".rstrip()

    @property
    def all(self) -> tuple["DueMask", ...]:
        """This mask, its parts and their parts."""
        return (self, *(each for part in self.parts for each in part.all))

    @property
    def ids(self) -> set[str]:
        """The IDs of this mask and of its parts."""
        return {each.id for each in self.all}

    @property
    def saved_alone(self) -> int:
        """The tokens that this mask saves in addition to its parts."""
        return self.saved - sum(part.saved for part in self.parts)

    @property
    def seq(self) -> int:
        return int(self.target["seq"])


@dataclass(frozen=True, slots=True)
class HistoryEdit:
    """A possible edit of the history."""

    due: tuple[DueMask, ...]  # the masks to apply, oldest first
    saved: int  # scaled tokens
    rewritten: int  # scaled tokens of the edited prompt from the first change on
    gain: float  # reading cost so far minus the price of rewrite and misses, in input tokens

    @property
    def pays(self) -> bool:
        return self.gain >= 0


@dataclass(frozen=True, slots=True)
class PromptPrices:
    """The prices of a prompt's tokens, as multiples of the model's lowest input price."""

    read: float  # from the cache
    write: float  # into the cache
    prompt: int  # tokens of the next prompt without an edit
    extra_call: float  # of a call to restore a text, without its prompt; see `MISS_TOKENS`
    factor: Callable[[int], float]  # factor of all prices, by tokens of the prompt
    margin: float  # the policy's `edit_margin`, while the cache is valid
    is_cold: bool = False  # the cache has expired: the whole next prompt is written
    new: int = 0  # tokens at its end that are written anyway, if they count in the decision

    @property
    def rewrite(self) -> float:
        """The extra price of writing a token to the cache instead of reading it."""
        return self.write - self.read

    def miss(self, due: DueMask) -> float:
        """Return the expected cost of needing a masked text again."""
        once_more = self.read * self.prompt + self.extra_call
        return due.need_chance * (once_more + self.write * due.saved)

    def pays_after_pause(self, saved: int, misses: float) -> bool:
        """Return True if a summary from the ledger pays after the prompt cache has expired.

        The next request writes the whole context, and those after it read it. A summary that saves
        `saved` tokens of that costs only its expected misses, in input tokens.
        """
        return (self.write + CALLS_AFTER_PAUSE * self.read) * saved > misses


@dataclass(slots=True)
class BreakEven:
    """The reading costs of one conversation so far, by mask ID, in input tokens."""

    reading_cost: dict[str, float] = field(default_factory=dict)
    surcharge: float = 0.0  # paid on the rest of the prompts while clearing could avoid it

    def charge_reading(self, due: Sequence[DueMask], prices: PromptPrices) -> None:
        """Add the cost of reading all due texts once, before a call. Drop the costs of texts that
        are no longer due.
        """
        rest = prices.prompt - sum(each.saved for each in due)
        now, then = prices.factor(prices.prompt), prices.factor(rest)
        self.reading_cost = {
            each.id: self.reading_cost.get(each.id, 0.0) + now * prices.read * each.saved_alone
            for whole in due
            for each in whole.all
        }
        self.surcharge = self.surcharge + (now - then) * prices.read * rest if now > then else 0.0

    def read_for(self, due: DueMask) -> float:
        """Return the cost of reading a text since it became due."""
        return sum(self.reading_cost.get(id, 0.0) for id in due.ids)

    def _better(self, due: DueMask, prices: PromptPrices) -> tuple[DueMask, ...]:
        """Return a mask, or its parts if they are worth more. The whole and its parts have
        different chances of a miss.
        """
        parts = tuple(each for part in due.parts for each in self._better(part, prices))
        worth = sum(self.worth(part, prices) for part in parts)
        return parts if parts and worth > self.worth(due, prices) else (due,)

    def worth(self, due: DueMask, prices: PromptPrices) -> float:
        """Return the gain of applying only this mask, without the price of a rewrite."""
        return self.read_for(due) - prices.miss(due) - due.price

    def best_edit(
        self, due: Sequence[DueMask], view: View, prices: PromptPrices, at_least: int = 0
    ) -> HistoryEdit | None:
        """Return the edit with the largest gain that saves at least `at_least` scaled tokens; None
        if there is none.
        """
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
        """Yield the possible edits as (gain, tokens saved, tokens rewritten, number of masks).

        The masks are collected in `chosen`, newest first; an edit has the first `number of masks`
        of them. A mask is left out if it loses more than the rewrite of its text costs.
        """
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
            rewritten = max(0, view.scaled(after) - saved - prices.new)
            then = prices.factor(prices.prompt - saved)
            spared = self.surcharge if then < factor else 0.0
            written = -saved if prices.is_cold else prices.margin * rewritten
            gain = worth + spared - then * prices.rewrite * written
            yield gain, saved, rewritten, len(chosen)
