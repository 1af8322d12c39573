"""Words that wait to be served, in order.

One entry at a time may be taken out to be edited: its place is kept, and what stands behind it is
not served before it is back or dropped.
"""

import asyncio
from collections.abc import Iterator

from ...lazy import dataclass


@dataclass(frozen=True, slots=True)
class WaitingWords:
    """Words that wait."""

    text: str
    mid_turn: bool = False  # they need not wait for the end of the turn that runs


class InputQueue:
    """The queue of words, with one consumer; a turn takes those that need not wait for its end."""

    def __init__(self) -> None:
        self._words: list[WaitingWords] = []
        self._out: int | None = None  # the place of the words taken out
        self._taken = WaitingWords("")  # what was taken out
        self._changed = asyncio.Event()
        self._served = asyncio.Event()

    def __iter__(self) -> Iterator[WaitingWords]:
        return iter(self._words)

    def __bool__(self) -> bool:
        return bool(self._words)

    def add(self, text: str, *, mid_turn: bool = False) -> None:
        """Add words: in the place of those taken out, else at the end."""
        place = len(self._words) if self._out is None else self._out
        self._words.insert(place, WaitingWords(text, mid_turn))
        self._out = None
        self._served.clear()
        self._changed.set()

    def add_first(self, words: str) -> None:
        """Add words that are served before all that wait."""
        self._words.insert(0, WaitingWords(words))
        if self._out is not None:
            self._out += 1
        self._served.clear()
        self._changed.set()

    def earlier(self, edited: str) -> str | None:
        """Take out the newest words. When some are out already, put them back as edited and take
        out the words before them, if there are any. Returns None when nothing waits, and when
        `edited` was typed and not taken out."""
        if self._out is None:
            free = self._words and not edited.strip()
            return self._take(len(self._words) - 1) if free else None
        return edited if self._out == 0 else self._step(edited, -1)

    def later(self, edited: str) -> str | None:
        """Put the words that are out back, and take out those after them; "" after the newest.
        None when no words are out."""
        return None if self._out is None else self._step(edited, 1)

    def drop(self) -> None:
        """Give up the words that are out."""
        self._out = None
        self._changed.set()

    def take_back(self) -> list[str]:
        """Empty the queue, and return what was in it."""
        words, self._words = self._words, []
        self.drop()
        return [each.text for each in words]

    async def next(self) -> str:
        """Wait for the next words, and remove them."""
        while not self._words or self._out == 0:
            if not self._words:
                self._served.set()
            self._changed.clear()
            await self._changed.wait()
        return self._remove(0)

    def next_mid_turn(self) -> str | None:
        """Remove the next words that need not wait for the end of the turn; None for none."""
        for place, words in enumerate(self._words[: self._out]):
            if words.mid_turn:
                return self._remove(place)
        return None

    async def idle(self) -> None:
        """Wait until the consumer has taken everything and asks for more."""
        await self._served.wait()

    @property
    def is_idle(self) -> bool:
        return self._served.is_set()

    def _step(self, edited: str, by: int) -> str:
        place = self._out or 0
        target = place + by
        if edited.strip():
            self.add(edited, mid_turn=self._taken.mid_turn)
        elif by > 0:
            target -= 1  # those after it have moved up
        self.drop()
        return self._take(target) if target < len(self._words) else ""

    def _take(self, place: int) -> str:
        self._out, self._taken = place, self._words.pop(place)
        return self._taken.text

    def _remove(self, place: int) -> str:
        """Remove words that stand before those taken out."""
        if self._out is not None:
            self._out -= 1
        return self._words.pop(place).text
