"""How far a long command is: one line on the standard error, where that is a terminal, and gone in
the end."""

import os
import sys
import time
from collections.abc import Mapping

from ..ui.visible import clean

WIDEST = 78  # cells
SURE = 0.03  # of the work that is done before it is said how long the rest may take
SOON = 5.0  # seconds; what is left is not worth a word then


class Progress:
    """`what` goes on, in a word. Nothing is shown before there is something to tell."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._shown = (
            sys.stderr is not None
            and sys.stderr.isatty()
            and os.environ.get("TERM") not in ("dumb", "")
        )
        self._began = time.monotonic()
        self._tried = 0

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *error: object) -> None:
        self._line("")

    def tell(self, done: int, all: int, share: float) -> None:
        """So many of so many are done, which is that share of the work."""
        self._line(f"{self._what} {done} of {all}{self._left(share)}")

    def begin(self, number: int, all: int, name: str) -> None:
        self._line(f"{self._what} {number} of {all}: {name}")

    def name(self, values: Mapping[str, str]) -> None:
        """These settings are tried now."""
        self._tried += 1
        told = ", ".join(f"{key}={value}" for key, value in values.items()) or "as it is"
        self._line(f"{self._what} {self._tried}: {told}")

    def _left(self, share: float) -> str:
        if not SURE <= share < 1:
            return ""
        seconds = (time.monotonic() - self._began) * (1 - share) / share
        return f", about {lasting(seconds)} left" if seconds >= SOON else ""

    def _line(self, text: str) -> None:
        if self._shown:
            room = min(WIDEST, os.get_terminal_size(sys.stderr.fileno()).columns - 1)
            sys.stderr.write(f"\r{clean(text)[:room]:<{room}}\r")
            sys.stderr.flush()


def lasting(seconds: float) -> str:
    """A time that is only guessed, in words."""
    return f"{round(seconds)} s" if seconds < 90 else f"{round(seconds / 60)} min"
