"""The modes of the terminal's line discipline: as they were found, as the input needs them, and
given back. Nothing happens where there is no terminal behind the descriptor."""

import termios
from typing import Any


class Modes:
    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._found = self._now()
        self._needed: list[Any] | None = None

    def keep(self) -> None:
        """What is set now is what `mend` sets again."""
        self._needed = self._now()

    def mend(self) -> bool:
        """Undo what another program has changed; whether there was anything."""
        changed = self._needed is not None and self._now() not in (self._needed, None)
        if changed:
            self._set(self._needed)
        return changed

    def release(self) -> None:
        """As they were found."""
        self._set(self._found)

    def _now(self) -> list[Any] | None:
        try:
            return termios.tcgetattr(self._fd)
        except termios.error:  # no terminal, or it has gone
            return None

    def _set(self, modes: list[Any] | None) -> None:
        if modes is not None and self._now() is not None:
            termios.tcsetattr(self._fd, termios.TCSANOW, modes)
