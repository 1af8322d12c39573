"""When a key alone may answer a question: once it has been seen for a moment and no key has come
for a while. What is typed under a question that pops up, a key that is held and one that is
pressed twice must not answer what nobody has read; all of that is text of the reply."""

import asyncio
import time
from collections.abc import Callable

SEEN = 0.4  # seconds that a question stands there before a key alone answers it
STILL = 0.7  # seconds without a key before that; a key that is held repeats sooner
AGAIN = 0.02  # seconds until a terminal that takes nothing is looked at again


class Readiness:
    """`busy` says whether the terminal has still to take what was painted; `changed` is called
    when keys begin to answer."""

    def __init__(self, busy: Callable[[], bool], changed: Callable[[], None]) -> None:
        self.clock = time.monotonic
        self._busy = busy
        self._changed = changed
        self._follows = False
        self._painted = False
        self._seen_at: float | None = None
        self._pressed_at = -STILL
        self._timer: asyncio.TimerHandle | None = None
        self.by_key = False  # a key alone answers

    @property
    def seen(self) -> bool:
        """Whether the question has been on the terminal, so that it can be answered at all."""
        if self._painted and self._seen_at is None and not self._busy():
            self._seen_at = self.clock()
        return self._seen_at is not None

    def ask(self, *, follows: bool) -> None:
        """A new question. One that `follows` from the person's own answer is expected: keys answer
        it as soon as it is seen."""
        self.end()
        self._follows, self._painted, self._seen_at = follows, False, None

    def end(self) -> None:
        self._painted = self.by_key = False
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def painted(self) -> None:
        """The question, and all that stands above it, has gone out to the terminal."""
        self._painted = True
        if not self.by_key and self._timer is None:
            self._look()

    def pressed(self) -> None:
        self._pressed_at = self.clock()
        if self._painted and not self._follows:
            self.by_key = False
            if self._timer is None:
                self._look()

    def _look(self) -> None:
        self._timer = None
        rest = self._rest()
        if rest > 0:
            self._timer = asyncio.get_running_loop().call_later(rest, self._look)
        else:
            self.by_key = True
            self._changed()

    def _rest(self) -> float:
        """Seconds until keys may answer, or until it is worth another look."""
        if not self.seen or self._seen_at is None:
            return AGAIN
        if self._follows:
            return 0
        return max(self._seen_at + SEEN, self._pressed_at + STILL) - self.clock()
