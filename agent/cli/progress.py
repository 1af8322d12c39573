"""The progress of a long command, as a line on stderr if stderr is a terminal."""

import os
import sys
import time
from collections.abc import Mapping

from ...tools.system.unicode import clean

MAX_LINE_CELLS = 78
MIN_SHARE_FOR_ESTIMATE = 0.03  # share of the work done before the remaining time is estimated
MIN_REMAINING_S = 5.0  # shorter times are not shown


class Progress:
    """A progress line that starts with `what`, a word such as "reading"."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._visible = (
            sys.stderr is not None
            and sys.stderr.isatty()
            and os.environ.get("TERM") not in ("dumb", "")
        )
        self._started = time.monotonic()
        self._attempts = 0

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *error: object) -> None:
        self.clear()

    @property
    def is_visible(self) -> bool:
        """Whether there is a terminal for the line."""
        return self._visible

    def clear(self) -> None:
        """Clear the line, so that other output can follow."""
        self._show("")

    def show(self, text: str) -> None:
        """Show a text after the first word."""
        self._show(f"{self._what} {text}")

    def show_count(self, done: int, all: int, share: float) -> None:
        """Show that `done` of `all` items are finished. `share` is the finished share of the work,
        from which the remaining time is estimated.
        """
        self._show(f"{self._what} {done} of {all}{self._remaining(share)}")

    def show_trial(self, values: Mapping[str, str]) -> None:
        """Show the settings that are being tried."""
        self._attempts += 1
        settings = ", ".join(f"{key}={value}" for key, value in values.items()) or "as now"
        self._show(f"{self._what} {self._attempts}: {settings}")

    def _remaining(self, share: float) -> str:
        if not MIN_SHARE_FOR_ESTIMATE <= share < 1:
            return ""
        seconds = (time.monotonic() - self._started) * (1 - share) / share
        return f", about {duration_text(seconds)} left" if seconds >= MIN_REMAINING_S else ""

    def _show(self, text: str) -> None:
        if self._visible:
            room = min(MAX_LINE_CELLS, os.get_terminal_size(sys.stderr.fileno()).columns - 1)
            sys.stderr.write(f"\r{clean(text)[:room]:<{room}}\r")
            sys.stderr.flush()


def duration_text(seconds: float) -> str:
    """Return an estimated duration such as "40 s" or "3 min"."""
    return f"{round(seconds)} s" if seconds < 90 else f"{round(seconds / 60)} min"
