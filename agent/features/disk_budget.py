"""Keep the state directory below its limits while sessions run.

A background thread measures the directory at most once an hour, and after a session has added much.
So the cost of a turn does not depend on the size of the directory. Large saved files are limited by
the room that is left (`DiskRoom`).
"""

import asyncio
import threading
import time
from math import inf
from pathlib import Path

from ..config.compaction_settings import StateSettings
from ..events import TurnFinished
from ..loop.interface import Feature
from ..loop.live_session import LiveSession
from ..session.disk_budget import (
    add_to_total,
    enforce_limits,
    limit_bytes,
    store_total,
    stored_total,
)
from ..worktree import DiskRoom

INTERVAL_S = 3_600  # between two measurements
MEASURE_AFTER_BYTES = 256 << 20  # added by this session
MAX_WAIT_S = 30.0  # at the end of a session, for a measurement that runs


class DiskBudgetFeature(Feature):
    """Measures the state directory and removes what needs no question."""

    name = "disk-budget"

    def __init__(
        self, session: LiveSession, state: Path, settings: StateSettings, room: DiskRoom
    ) -> None:
        super().__init__(session)
        self._state, self._settings, self._room = state, settings, room
        self._limit = limit_bytes(settings)
        self._thread: threading.Thread | None = None
        self._notice = ""
        self._counted = 0  # of `room.added`, the bytes in the stored total

    async def session_started(self) -> None:
        """Read the stored total, and measure if it is old."""
        if self._limit is None and self._settings.max_age_days is None:
            return
        total, measured = await asyncio.to_thread(stored_total, self._state)
        if self._limit is not None and measured:
            self._room.left = self._limit - total
        if abs(time.time() - measured) > INTERVAL_S:  # a clock may have been set back
            # Stored first: no other session measures now, and a killed measurement waits an hour.
            await asyncio.to_thread(store_total, self._state, total)
            self._measure()

    async def turn_ended(self, finished: TurnFinished) -> None:
        """Show the notice of a measurement, and measure again after much growth."""
        self._show_notice()
        if self._room.added - self._counted > MEASURE_AFTER_BYTES and self._limit is not None:
            self._measure()

    async def close(self) -> None:
        """Add the growth to the stored total."""
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, MAX_WAIT_S)
        self._show_notice()
        await asyncio.to_thread(add_to_total, self._state, self._room.added - self._counted)

    def _show_notice(self) -> None:
        if self._notice:
            self.session.warn_once(self._notice)
            self._notice = ""

    def _measure(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._enforce, name="disk", daemon=True)
            self._thread.start()

    def _enforce(self) -> None:
        added = self._room.added
        try:
            total, self._notice = enforce_limits(self._state, self._settings)
        except OSError:  # the next measurement tries again
            return
        self._counted = added
        grown = self._room.added - added
        self._room.left = inf if self._limit is None else self._limit - total - grown
