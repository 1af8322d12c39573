"""What a server asks one agent to wait, told to all agents that share a file.

The file is empty: its time of change is the moment until which nobody asks. So there is nothing to
parse or to tear, and an agent that looks pays for one `stat`.
"""

import os
import random
import time
from contextlib import suppress
from pathlib import Path

MAX_SHARED_WAIT_S = 60.0  # a later moment, as a clock that is wrong would set it, is not believed
MAX_SPREAD = 1.25  # times the wait, so that those who have waited together do not ask at once
OTHERS_WAIT = "another agent was asked to wait"


class SharedWait:
    """The wait in a file; where the path is None nobody else is told or heard."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def left(self) -> float:
        """Return how many seconds are still to be waited, 0 for none."""
        return self._told() * random.uniform(1, MAX_SPREAD)

    def extend(self, seconds: float) -> None:
        """Have all wait for so many seconds from now on, or longer if they were told to. A file
        that cannot be made or changed tells nobody."""
        if self._path is None or self._told() >= (seconds := min(seconds, MAX_SHARED_WAIT_S)):
            return
        until = time.time() + seconds
        with suppress(OSError):
            os.close(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600))
            os.utime(self._path, (until, until))

    def _told(self) -> float:
        if self._path is None:
            return 0.0
        with suppress(OSError):
            left = self._path.stat().st_mtime - time.time()
            if 0 < left <= MAX_SHARED_WAIT_S:
                return left
        return 0.0
