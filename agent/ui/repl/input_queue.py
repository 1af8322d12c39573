"""The ordered queue of submitted messages and commands.

The user may take out one entry at a time to edit it. The queue remembers its position and does not
serve later entries until the entry is put back or dropped.
"""

import asyncio
from collections.abc import Iterator

from ...lazy import dataclass


@dataclass(frozen=True, slots=True)
class QueuedMessage:
    """A submitted message or command that waits in the queue."""

    text: str
    mid_turn: bool = False  # may be sent during the running turn


class InputQueue:
    """A queue of messages with one consumer. The running turn takes its `mid_turn` messages."""

    def __init__(self) -> None:
        self._messages: list[QueuedMessage] = []
        self._out: int | None = None  # the position of the message taken out for editing
        self._taken = QueuedMessage("")  # the message taken out
        self._changed = asyncio.Event()
        self._served = asyncio.Event()

    def __iter__(self) -> Iterator[QueuedMessage]:
        return iter(self._messages)

    def __bool__(self) -> bool:
        return bool(self._messages)

    def add(self, text: str, *, mid_turn: bool = False) -> None:
        """Add a message at the position of the one taken out, or at the end if none is out."""
        place = len(self._messages) if self._out is None else self._out
        self._messages.insert(place, QueuedMessage(text, mid_turn))
        self._out = None
        self._served.clear()
        self._changed.set()

    def add_first(self, text: str) -> None:
        """Add a message at the front of the queue."""
        self._messages.insert(0, QueuedMessage(text))
        if self._out is not None:
            self._out += 1
        self._served.clear()
        self._changed.set()

    def earlier(self, edited: str) -> str | None:
        """Take out the newest message for editing. If a message is already out, put it back as
        `edited` and take out the one before it; return `edited` if there is none before it. Returns
        None if the queue is empty or if `edited` is new text.
        """
        if self._out is None:
            free = self._messages and not edited.strip()
            return self._take(len(self._messages) - 1) if free else None
        return edited if self._out == 0 else self._step(edited, -1)

    def later(self, edited: str) -> str | None:
        """Put the message that is out back as `edited`, and take out the next one. Returns "" after
        the newest message, None if no message is out.
        """
        return None if self._out is None else self._step(edited, 1)

    def drop(self) -> None:
        """Discard the message that is out."""
        self._out = None
        self._changed.set()

    def take_all(self) -> list[str]:
        """Empty the queue and return its texts."""
        messages, self._messages = self._messages, []
        self.drop()
        return [each.text for each in messages]

    async def next(self) -> str:
        """Wait for the next message and remove it."""
        while not self._messages or self._out == 0:
            if not self._messages:
                self._served.set()
            self._changed.clear()
            await self._changed.wait()
        return self._remove(0)

    def next_mid_turn(self) -> str | None:
        """Remove and return the next `mid_turn` message, or None. Messages after the one taken out
        are skipped.
        """
        for place, message in enumerate(self._messages[: self._out]):
            if message.mid_turn:
                return self._remove(place)
        return None

    async def idle(self) -> None:
        """Wait until the queue is empty and the consumer asks for more."""
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
            target -= 1  # later messages have moved up
        self.drop()
        return self._take(target) if target < len(self._messages) else ""

    def _take(self, place: int) -> str:
        self._out, self._taken = place, self._messages.pop(place)
        return self._taken.text

    def _remove(self, place: int) -> str:
        """Remove the message at `place`, which is before the position of the one taken out."""
        if self._out is not None:
            self._out -= 1
        return self._messages.pop(place).text
