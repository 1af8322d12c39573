"""Writing to a terminal or a pipe without waiting for its reader.

A paused terminal (a slow line, or selected text) accepts no output, and a normal write would block
everything. So the file behind the stream is opened a second time in non-blocking mode, and
unaccepted output is sent later, in order. Where that is impossible (a file on disk, a socket, a
terminal of another user), writes block.
"""

import asyncio
import contextlib
import os
import select
import stat
import time
import weakref
from typing import TextIO

from ..signals import ignore_lost_terminal

DRAIN_TIMEOUT_S = 2.0  # limit without progress


class NonBlockingWriter:
    """A writer for `stream`, which nothing else may write to at the same time. Writes to a terminal
    that has gone fail silently, so that the rest of the work still ends.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._fd = _reopened(stream)
        self._unsent = bytearray()
        self._stuck = False
        self._loop: asyncio.AbstractEventLoop | None = None  # calls `_send` when there is room
        if self._fd is not None:
            weakref.finalize(self, os.close, self._fd)

    @property
    def busy(self) -> bool:
        """Whether there is unsent output."""
        return bool(self._unsent)

    def write(self, text: str) -> None:
        """Write a text. Raises OSError if the reader of a pipe or file has gone."""
        encoding = self._stream.encoding or "utf-8"
        if self._fd is None:
            with ignore_lost_terminal():
                self._stream.write(text.encode(encoding, "replace").decode(encoding))
                self._stream.flush()
            return
        self._unsent += text.encode(encoding, "replace")
        if self._loop is None:
            self._send()

    def drain(self) -> None:
        """Wait until all output is sent, as long as there is progress. Do not wait if the previous
        call timed out.
        """
        until = time.monotonic() + (0.0 if self._stuck else DRAIN_TIMEOUT_S)
        while self._fd is not None and self._unsent and time.monotonic() < until:
            if select.select([], [self._fd], [], 0.05)[1]:
                before = len(self._unsent)
                self._send()
                if len(self._unsent) < before:
                    until = time.monotonic() + DRAIN_TIMEOUT_S
        self._stuck = self.busy

    def _send(self) -> None:
        assert self._fd is not None
        try:
            with ignore_lost_terminal():
                while self._unsent:
                    sent = os.write(self._fd, self._unsent)
                    del self._unsent[:sent]
            self._unsent.clear()
        except BlockingIOError:
            pass
        except OSError:
            self._unsent.clear()
            self._wait_for_room(False)
            raise
        self._wait_for_room(bool(self._unsent))

    def _wait_for_room(self, wanted: bool) -> None:
        assert self._fd is not None
        if self._loop is not None and not wanted:
            self._loop.remove_writer(self._fd)
            self._loop = None
        elif self._loop is None and wanted:
            with contextlib.suppress(RuntimeError):  # no running loop: `drain` sends it
                self._loop = asyncio.get_running_loop()
                self._loop.add_writer(self._fd, self._send)


def _reopened(stream: TextIO) -> int | None:
    """Return a separate file descriptor with its own modes; None if that is impossible."""
    try:
        fd = stream.fileno()
        if os.isatty(fd):
            path = os.ttyname(fd)
        elif stat.S_ISFIFO(os.fstat(fd).st_mode):
            path = f"/dev/fd/{fd}"
        else:
            return None
        stream.flush()
        return os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:  # no file behind it, or no permission
        return None
