"""The modes of the terminal's line discipline: remembered, fixed and restored."""

import fcntl
import struct
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def bytes_waiting(fd: int) -> int:
    """Return how many bytes a terminal holds that nobody has read; 0 where it has gone."""
    try:
        (count,) = struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, bytes(4)))
    except OSError:
        return 0
    return int(count)


@contextmanager
def without_echo(fd: int) -> Iterator[None]:
    """Have a terminal not show what is typed, as long as the block runs."""
    modes = TtyModes(fd)
    modes.hide()
    try:
        yield
    finally:
        modes.release()


class TtyModes:
    """The modes of one terminal. Nothing happens where the descriptor is no terminal."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._found = self._now()
        self._needed: list[Any] | None = None

    def keep(self) -> None:
        """Remember the modes set now as those that the input needs."""
        self._needed = self._now()

    def hide(self) -> None:
        """Show nothing of what is typed from now on."""
        if modes := self._now():
            modes[3] &= ~termios.ECHO
            self._set(modes)

    def mend(self) -> bool:
        """Undo what another program has changed; return whether it had changed anything."""
        changed = self._needed is not None and self._now() not in (self._needed, None)
        if changed:
            self._set(self._needed)
        return changed

    def release(self) -> None:
        """Set the modes as they were found."""
        self._set(self._found)

    def _now(self) -> list[Any] | None:
        try:
            return termios.tcgetattr(self._fd)
        except termios.error:  # no terminal, or it has gone
            return None

    def _set(self, modes: list[Any] | None) -> None:
        if modes is not None and self._now() is not None:
            termios.tcsetattr(self._fd, termios.TCSANOW, modes)
