"""A wait that a server asks of one agent, shared with other agents through a file.

The file is empty. Its modification time is the moment until which all agents wait, so a check is
one `stat` and a write cannot be torn.
"""

import os
import random
import time
from contextlib import suppress
from pathlib import Path

MAX_SHARED_WAIT_S = 60.0  # longer waits are ignored, e.g. from a wrong clock
MAX_SPREAD = 1.25  # upper bound of a random factor, so that agents do not all retry at once
OTHERS_WAIT = "another agent was asked to wait"


class SharedWait:
    """The shared wait in a file. With the path None, nothing is shared."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def seconds_left(self) -> float:
        """Return the seconds left to wait, 0 for none."""
        return self._seconds_left() * random.uniform(1, MAX_SPREAD)

    def extend(self, seconds: float) -> None:
        """Make all agents wait this many seconds from now, unless they already wait longer. Ignore
        a file that cannot be written.
        """
        if self._path is None or self._seconds_left() >= (
            seconds := min(seconds, MAX_SHARED_WAIT_S)
        ):
            return
        until = time.time() + seconds
        with suppress(OSError):
            os.close(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600))
            os.utime(self._path, (until, until))

    def _seconds_left(self) -> float:
        if self._path is None:
            return 0.0
        with suppress(OSError):
            left = self._path.stat().st_mtime - time.time()
            if 0 < left <= MAX_SHARED_WAIT_S:
                return left
        return 0.0
