"""Capture the output of a command: bounded in memory, shown while it comes, cleaned as a terminal
would.

Everything works on bytes until the last step, so that no character is split: a cut, wherever it
falls, is moved to the next whole character. Bytes that are not UTF-8 become U+FFFD.
"""

import asyncio
import codecs
import re
from collections.abc import Callable

KEPT_BYTES = 1 << 20  # bytes of output kept from the beginning, and as many from the end
SHOWN_BYTES = 16_384  # bytes of output shown to a person at a time
SHOW_INTERVAL_S = 0.05  # seconds between two of those


class Capture:
    """A sink that keeps `kept` bytes of the beginning and of the end, and shows all as it comes."""

    def __init__(
        self, show: Callable[[str], None] = lambda text: None, kept: int = KEPT_BYTES
    ) -> None:
        self._kept = kept
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0
        self._live = Live(show)

    @property
    def dropped(self) -> int:
        """Bytes that were heard and not kept."""
        return self._total - len(self._head) - min(len(self._tail), self._kept)

    def feed(self, data: bytes) -> None:
        self._live.feed(data)
        self._total += len(data)
        room = self._kept - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 2 * self._kept:
            del self._tail[: -self._kept]

    def close(self) -> None:
        self._live.close()

    def kept(self) -> bytes:
        """Return what was kept, as it was heard; a line says how much is missing."""
        head, tail = bytes(self._head), bytes(self._tail[-self._kept :])
        gap = f"\n[{self.dropped:,} bytes were not kept]\n".encode() if self.dropped else b""
        return head + gap + tail

    def text(self, advice: str) -> str:
        """Return what was kept, cleaned; `advice` says how to get at the rest."""
        return excerpt(bytes(self._head), bytes(self._tail[-self._kept :]), self.dropped, advice)


class Live:
    """Shows output to a person while it arrives.

    It is cleaned, in whole characters, not more often than every SHOW_INTERVAL_S, and of a flood
    only the newest. A line that is still being redrawn is held back until it is done.
    """

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._pending = bytearray()
        self._timer: asyncio.TimerHandle | None = None
        self._mid_line = False

    def feed(self, data: bytes) -> None:
        self._pending += data
        if len(self._pending) > 4 * SHOWN_BYTES:
            del self._pending[:-SHOWN_BYTES]
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SHOW_INTERVAL_S, self._flush)

    def close(self) -> None:
        if self._timer:
            self._timer.cancel()
        self._emit(len(self._pending))

    def _flush(self) -> None:
        self._timer = None
        line = self._pending.rfind(b"\n") + 1
        redrawn = any(byte in self._pending[line:] for byte in b"\r\b\x1b")
        self._emit(line if redrawn else whole(self._pending))

    def _emit(self, end: int) -> None:
        data = bytes(self._pending[:end])
        del self._pending[:end]
        text = clean(_from_whole(data[-SHOWN_BYTES:]).decode(errors="replace"))
        if self._mid_line and b"\r" in data.partition(b"\n")[0].rstrip(b"\r"):
            text = "\n" + text
        if text:
            self._mid_line = not text.endswith("\n")
            self._show(text)


def excerpt(head: bytes, tail: bytes, dropped: int, advice: str) -> str:
    """Return `head` and `tail` as clean text, with a line between them for the `dropped` bytes.

    No character is split where they were cut.
    """
    if not dropped:
        return clean((head + tail).decode(errors="replace"))
    first, last = head[: whole(head)], _from_whole(tail)
    dropped += len(head) - len(first) + len(tail) - len(last)
    return (
        f"{clean(first.decode(errors='replace')).rstrip()}\n"
        f"[{dropped:,} bytes left out here; {advice}]\n"
        f"{clean(last.decode(errors='replace'))}"
    )


def whole(data: bytes | bytearray) -> int:
    """Return how many bytes of `data` remain without a UTF-8 character cut off at its end."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(bytes(data[-4:]))
    return len(data) - len(decoder.getstate()[0])


def _from_whole(data: bytes) -> bytes:
    """Return `data` without the end of a character that began before it."""
    return data[:3].lstrip(bytes(range(0x80, 0xC0))) + data[3:]


_ESCAPE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # CSI: colours, cursor, erasing
    r"|(?:\x1b\]|\x9d)[^\x07\x1b\n\x9c]*(?:\x07|\x1b\\|\x9c)?"  # OSC: titles, links
    r"|\x1b[PX^_](?:[^\x1b]*\x1b\\|[^\x1b\n]*)"  # DCS, SOS, PM, APC
    r"|\x1b[ -/]*[0-~]?"
)
_MOVE = re.compile(r"([\r\b\0])")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def clean(text: str) -> str:
    r"""Return output as a terminal would have left it.

    Escape sequences and control characters are gone, and lines that were overwritten (`\r`,
    backspace, erase) stand in their last state.
    """
    if not _CONTROL.search(text):
        return text
    text = _ESCAPE.sub(_movement, text.replace("\0", ""))
    if _MOVE.search(text):
        text = "\n".join(_redrawn(line.rstrip("\r")) for line in text.split("\n"))
    return _CONTROL.sub("", text)


def _movement(escape: re.Match[str]) -> str:
    r"""Return what an escape does to its line, as one character.

    \r moves back to its start, NUL erases what follows.
    """
    sequence = escape[0].removeprefix("\x1b[").removeprefix("\x9b")
    if sequence in ("K", "0K"):
        return "\0"
    if sequence == "2K":
        return "\r\0"
    return "\r" if sequence in ("G", "0G", "1G") else ""


def _redrawn(line: str) -> str:
    if not _MOVE.search(line):
        return line
    cells: list[str] = []
    column = 0
    for piece in _MOVE.split(line):
        if piece == "\r":
            column = 0
        elif piece == "\b":
            column = max(0, column - 1)
        elif piece == "\0":
            del cells[column:]
        else:
            cells[column : column + len(piece)] = piece
            column += len(piece)
    return "".join(cells).rstrip(" ")
