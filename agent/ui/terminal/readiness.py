"""The delay before a single key can answer a question.

The question must have been visible for a while, and no key pressed for a while. This prevents
answers by type-ahead, by a held key or by a double press. Such keys become text of the reply.
"""

import asyncio
import time
from collections.abc import Callable

MIN_SEEN_S = 0.4  # minimum time a question is visible before keys answer
MIN_QUIET_S = 0.7  # minimum time without a key before keys answer; longer than key repeat
RECHECK_S = 0.02  # interval to check a busy terminal again


class Readiness:
    """Whether single keys answer the open question. `busy` returns True while the terminal has not
    accepted all output. `changed` is called when keys start to answer.
    """

    def __init__(self, busy: Callable[[], bool], changed: Callable[[], None]) -> None:
        self.clock = time.monotonic
        self._busy = busy
        self._changed = changed
        self._follows = False
        self._painted = False
        self._seen_at: float | None = None
        self._pressed_at = -MIN_QUIET_S
        self._timer: asyncio.TimerHandle | None = None
        self.accepts_keys = False  # whether single keys answer

    @property
    def seen(self) -> bool:
        """Whether the question has reached the terminal, so that it can be answered at all."""
        if self._painted and self._seen_at is None and not self._busy():
            self._seen_at = self.clock()
        return self._seen_at is not None

    def ask(self, *, follows: bool) -> None:
        """Start with a new question. If it `follows` the user's own answer, it is expected, and
        keys answer it as soon as it is visible.
        """
        self.end()
        self._follows, self._painted, self._seen_at = follows, False, None

    def end(self) -> None:
        self._painted = self.accepts_keys = False
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def painted(self) -> None:
        """Record that the question and everything above it was written to the terminal."""
        self._painted = True
        if not self.accepts_keys and self._timer is None:
            self._check()

    def pressed(self) -> None:
        self._pressed_at = self.clock()
        if self._painted and not self._follows:
            self.accepts_keys = False
            if self._timer is None:
                self._check()

    def _check(self) -> None:
        self._timer = None
        delay = self._delay()
        if delay > 0:
            self._timer = asyncio.get_running_loop().call_later(delay, self._check)
        else:
            self.accepts_keys = True
            self._changed()

    def _delay(self) -> float:
        """Return the seconds until keys may answer, or until the next check."""
        if not self.seen or self._seen_at is None:
            return RECHECK_S
        if self._follows:
            return 0
        return max(self._seen_at + MIN_SEEN_S, self._pressed_at + MIN_QUIET_S) - self.clock()
