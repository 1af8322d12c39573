"""The modes of the terminal's line discipline: saved, repaired and restored."""

import fcntl
import struct
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def bytes_waiting(fd: int) -> int:
    """Return the number of unread input bytes of a terminal; 0 if it has gone."""
    try:
        (count,) = struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, bytes(4)))
    except OSError:
        return 0
    return int(count)


@contextmanager
def without_echo(fd: int) -> Iterator[None]:
    """Hide typed text while the block runs."""
    modes = TtyModes(fd)
    modes.hide()
    try:
        yield
    finally:
        modes.release()


class TtyModes:
    """The modes of one terminal. Does nothing if the descriptor is not a terminal."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._found = self._now()
        self._needed: list[Any] | None = None

    def keep(self) -> None:
        """Save the current modes as the ones that the input needs."""
        self._needed = self._now()

    def hide(self) -> None:
        """Hide typed text from now on."""
        if modes := self._now():
            modes[3] &= ~termios.ECHO
            self._set(modes)

    def repair(self) -> bool:
        """Restore the needed modes if another program changed them; return True if so."""
        changed = self._needed is not None and self._now() not in (self._needed, None)
        if changed:
            self._set(self._needed)
        return changed

    def release(self) -> None:
        """Restore the modes from before the program."""
        self._set(self._found)

    def _now(self) -> list[Any] | None:
        try:
            return termios.tcgetattr(self._fd)
        except termios.error:  # not a terminal, or it has gone
            return None

    def _set(self, modes: list[Any] | None) -> None:
        if modes is not None and self._now() is not None:
            termios.tcsetattr(self._fd, termios.TCSANOW, modes)
