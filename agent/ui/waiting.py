"""Words that wait to be served, in order; and whether all that were given have been."""

import asyncio
from collections import deque
from collections.abc import Iterator


class Waiting:
    """A queue with one taker. `idle` ends once the taker asks for more than there is."""

    def __init__(self) -> None:
        self._words: deque[str] = deque()
        self._arrived = asyncio.Event()
        self._served = asyncio.Event()

    def __iter__(self) -> Iterator[str]:
        return iter(self._words)

    def __bool__(self) -> bool:
        return bool(self._words)

    def add(self, words: str) -> None:
        self._words.append(words)
        self._served.clear()
        self._arrived.set()

    def take_back(self) -> str:
        """All that wait, as one text; "" when none do."""
        words = "\n".join(self._words)
        self._words.clear()
        return words

    async def next(self) -> str:
        while not self._words:
            self._served.set()
            self._arrived.clear()
            await self._arrived.wait()
        return self._words.popleft()

    async def idle(self) -> None:
        await self._served.wait()

    @property
    def is_idle(self) -> bool:
        return self._served.is_set()
