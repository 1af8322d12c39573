"""Capture the output of a command: clean it as a terminal would, show it live, and write long
output to a file to bound memory.

Every cut is moved to the next whole character, so no character is split. Bytes that are not UTF-8
become U+FFFD.

The file receives the output while the command runs. It grows up to a limit and leaves the last
DISK_RESERVE_BYTES of the disk free. Further output is counted, and its end is written after a line
with the number of missing bytes. A full disk never makes the command fail.
"""

import codecs
import os
import re
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ...agent.lazy import dataclass, regex
from .unicode import drop_partial_start, whole_length

if TYPE_CHECKING:
    import asyncio

MAX_OUTPUT_BYTES = 256 << 20
DISK_RESERVE_BYTES = 1 << 30
UNRESERVED_BYTES = 1 << 20  # part of each file that may use the reserve
_END_BYTES = 65_536  # kept of the end of an output that does not fit
_CHECK_BYTES = 4 << 20  # written between two checks of the free space
_GAP_BYTES = 300  # longer than a line about missing output

OVER_LIMIT = "tools.max_output_bytes is {limit:,}"
DISK_NEARLY_FULL = "less than 1 GB of the disk is free"


@dataclass(frozen=True, slots=True)
class OutputCut:
    """The size of the kept part of an output, and the reason for the cut."""

    printed: int  # bytes
    kept: int  # bytes
    why: str

    def __str__(self) -> str:
        return f"printed {self.printed:,} bytes, {self.kept:,} of them are kept: {self.why}"

    def details(self) -> dict[str, Any]:
        """Return the fields of a result's details."""
        return {"printed_bytes": self.printed, "kept_bytes": self.kept, "cut_by": self.why}


class OutputFile:
    """A sink that writes to a new file, which only its owner can read."""

    def __init__(self, path: Path, limit: int = MAX_OUTPUT_BYTES) -> None:
        """Create the file. Raises OSError, FileExistsError if the path exists."""
        self.path = path
        self.cut: OutputCut | None = None  # known once the file is closed
        self.closed_at: float | None = None
        self._limit = limit
        self._end_bytes = min(_END_BYTES, limit // 4)
        self._printed = 0
        self._size = 0  # bytes in the file
        self._checked_to = UNRESERVED_BYTES  # the size up to which the disk has room
        self._stopped = ""  # why nothing more is written
        self._end = bytearray()  # the end of the unwritten output
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._fd = os.open(path, flags, 0o600)

    @property
    def cut_so_far(self) -> OutputCut | None:
        """The part that is missing so far; None if the whole output is in the file."""
        missing = self._printed - self._size
        if self.closed_at is not None or not missing:
            return self.cut
        return OutputCut(self._printed, self._size, self._stopped)

    def feed(self, data: bytes) -> None:
        self._printed += len(data)
        written = 0 if self._stopped else self._write(data)
        if written < len(data):
            self._end += data[written:]
            if len(self._end) > 2 * self._end_bytes:
                del self._end[: len(self._end) - self._end_bytes]

    def close(self) -> None:
        """Write the end of an output that did not fit, and close the file."""
        if self.closed_at is not None:
            return
        self.closed_at = time.monotonic()
        if self._printed > self._size:
            self._write_end()
        os.close(self._fd)

    def move(self, path: Path) -> None:
        """Rename the file on the same disk. Raises OSError."""
        self.path.rename(path)
        self.path = path

    def remove(self) -> None:
        """Close and delete the file."""
        self.close()
        with suppress(OSError):
            self.path.unlink()

    def add_note(self, text: str) -> None:
        """Append the agent's notes to the closed file, in place of trailing white space. "" only
        strips the white space. A full disk is ignored.
        """
        with suppress(OSError):
            fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                size = os.fstat(fd).st_size
                end = os.pread(fd, _GAP_BYTES, max(0, size - _GAP_BYTES))
                os.ftruncate(fd, size - len(end) + len(end.rstrip()))
                os.write(fd, f"\n{text}".encode("utf-8", "replace") if text else b"")
            finally:
                os.close(fd)

    def _write(self, data: bytes) -> int:
        """Write the bytes that fit. Return their number."""
        fits = min(len(data), self._limit - self._end_bytes - self._size)
        why = OVER_LIMIT.format(limit=self._limit) if fits < len(data) else ""
        if self._size + fits > self._checked_to:
            spare = min(spare_bytes(self._fd), _CHECK_BYTES)
            self._checked_to = max(self._checked_to, self._size + spare)
            if self._size + fits > self._checked_to:
                fits, why = max(0, self._checked_to - self._size), DISK_NEARLY_FULL
        before = self._size
        try:
            self._write_all(data[:fits])
        except OSError as error:
            why = error.strerror or str(error)
        self._stopped = why
        return self._size - before

    def _write_all(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            written = os.write(self._fd, rest)
            self._size += written
            rest = rest[written:]

    def _write_end(self) -> None:
        """Write the end of the output after a line about the missing bytes. On a full disk,
        overwrite the bytes before it.
        """
        end = drop_partial_start(bytes(self._end[-self._end_bytes :])) if self._end_bytes else b""
        if self._printed - self._size == len(self._end) <= self._end_bytes:
            end = bytes(self._end)
        written = self._size
        for room in (0, len(end) + _GAP_BYTES):
            size = self._whole_size(max(0, written - room))
            self.cut = self._cut(size + len(end))
            data = (_gap(self.cut) if self.cut else b"") + end
            try:
                os.ftruncate(self._fd, size)
                os.lseek(self._fd, size, os.SEEK_SET)
                self._write_all(data)
                return
            except OSError:
                with suppress(OSError):
                    os.ftruncate(self._fd, size)
        self.cut = self._cut(size)

    def _cut(self, kept: int) -> OutputCut | None:
        return OutputCut(self._printed, kept, self._stopped) if kept < self._printed else None

    def _whole_size(self, size: int) -> int:
        """Return the size without an incomplete character at the end."""
        first = max(0, size - 4)
        return first + whole_length(os.pread(self._fd, size - first, first))


def spare_bytes(place: int | Path) -> int:
    """Return the free bytes of a disk beyond the reserve; 0 if there are none. Raises OSError."""
    stat = os.statvfs(place)
    return max(0, stat.f_bavail * stat.f_frsize - DISK_RESERVE_BYTES)


def _gap(cut: OutputCut) -> bytes:
    return f"\n[{cut.printed - cut.kept:,} bytes are missing here: the command {cut}]\n".encode()


KEPT_BYTES = 1 << 19  # bytes of output in memory, at the beginning and the end each
FILED_BYTES = 1 << 16  # longer output goes to a file at once
MAX_HELD_CHARS = 1 << 16  # limit of an incomplete line or terminal string
MAX_ESCAPE_CHARS = 4_096
SHOWN_BYTES = 16_384  # bytes of output shown to the user at a time
SHOW_INTERVAL_S = 0.05  # interval between two updates

NOT_RECORDED = "this session is not recorded"
_NO_CONTINUATION = bytes(sorted({*range(256)} - {*range(0x80, 0xC0)}))


class Sink(Protocol):
    """A target for output. `close` is called once, after the last `feed`."""

    def feed(self, data: bytes) -> None: ...

    def close(self) -> None: ...


class Capture:
    """A sink that keeps output as clean text in `output` and shows it live.

    `kept` bytes of the beginning and of the end stay in memory. An output of more than FILED_BYTES
    goes to the file from `open_file`. `sieve` wraps a sink in a filter for secrets. The filter
    comes after cleaning, which may join the parts of a secret.
    """

    def __init__(
        self,
        show: Callable[[str], None] = lambda text: None,
        kept: int = KEPT_BYTES,
        *,
        open_file: Callable[[], OutputFile] | None = None,
        sieve: Callable[[Sink], Sink] = lambda sink: sink,
    ) -> None:
        self._live = Live(show)
        self.output = KeptOutput(kept, open_file)
        self._cleaner = _Cleaner(sieve(self.output))

    def feed(self, data: bytes) -> None:
        self._live.feed(data)
        self._cleaner.feed(data)

    def close(self) -> None:
        self._live.close()
        self._cleaner.close()


class KeptOutput:
    """A sink for clean text: its beginning and end stay in memory, the whole goes to a file."""

    def __init__(self, kept: int, open_file: Callable[[], OutputFile] | None) -> None:
        # The file with all output; None for short output, or if no file can be created.
        self.file: OutputFile | None = None
        self.keeps_file_open = False  # the file stays open for a new owner
        self.characters = 0
        self._breaks = 0
        self._kept = kept
        self._open_file = open_file
        self._no_file = NOT_RECORDED  # why there is no file
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    @property
    def dropped(self) -> int:
        """Bytes of the text that are not in memory."""
        return self._total - len(self._head) - min(len(self._tail), self._kept)

    @property
    def lines(self) -> int:
        newest = self._tail or self._head
        return self._breaks + (not newest.endswith(b"\n") and bool(newest))

    @property
    def cut(self) -> OutputCut | None:
        """The lost part of the output; None if nothing is lost."""
        if self.file is not None:
            return self.file.cut_so_far
        kept = self._total - self.dropped
        return OutputCut(self._total, kept, self._no_file) if self.dropped else None

    def feed(self, data: bytes) -> None:
        self._total += len(data)
        self._breaks += data.count(b"\n")
        self.characters += len(data)
        if not data.isascii():
            self.characters -= len(data.translate(None, _NO_CONTINUATION))
        if self._open_file is not None and self._total > min(FILED_BYTES, self._kept):
            self._begin_file(self._open_file)
        if self.file is not None:
            self.file.feed(data)
        room = self._kept - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 2 * self._kept:
            del self._tail[: -self._kept]

    def close(self) -> None:
        if self.file is not None and not self.keeps_file_open:
            self.file.close()

    def _begin_file(self, open_file: Callable[[], OutputFile]) -> None:
        self._open_file = None
        try:
            self.file = open_file()
        except OSError as error:
            self._no_file = error.strerror or str(error)
            return
        self.file.feed(bytes(self._head))
        self.file.feed(bytes(self._tail))

    def kept(self) -> bytes:
        """Return the text in memory, with a line that gives the number of missing bytes."""
        head, tail = self._ends()
        gap = f"\n[{self.dropped:,} bytes were not kept]\n".encode() if self.dropped else b""
        return head + gap + tail

    def text(self, advice: str) -> str:
        """Return the text in memory. `advice` tells how to get the rest."""
        return excerpt(*self._ends(), self.dropped, advice)

    def _ends(self) -> tuple[bytes, bytes]:
        return bytes(self._head), bytes(self._tail[-self._kept :])


class _Cleaner:
    """A sink that passes on its input as a terminal would show it, line by line."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self._mid_line = False  # a part of the current line was already passed on

    def feed(self, data: bytes) -> None:
        self._held += self._decoder.decode(data).replace("\0", "")
        self._pass_on(_end_of_lines(self._held))
        if len(self._held) > MAX_HELD_CHARS:
            self._shorten()

    def close(self) -> None:
        self._held += self._decoder.decode(b"", final=True)
        self._pass_on(len(self._held))
        self._sink.close()

    def _pass_on(self, end: int) -> None:
        if not end:
            return
        text, self._held = self._held[:end], self._held[end:]
        redraws = self._mid_line and "\r" in text.partition("\n")[0].rstrip("\r")
        self._mid_line = False
        if cleaned := clean(text):
            self._sink.feed((f"\n{cleaned}" if redraws else cleaned).encode())

    def _shorten(self) -> None:
        """Replace a long line by its visible state, or pass the state on if it is long, too."""
        end = max(self._held.rfind(c, -MAX_ESCAPE_CHARS) for c in "\x1b\x9b\x9d")
        end = end if end >= 0 else len(self._held)
        line, rest = self._held[:end], self._held[end:]
        text, column = _drawn(_without_escapes(line))
        if len(text) > MAX_HELD_CHARS // 2:
            self._held = text
            self._pass_on(len(text))
            self._mid_line, self._held = True, rest
        else:
            self._held = f"{text}\r{text[:column]}{rest}"


def _end_of_lines(text: str) -> int:
    """Return the offset after the last whole line that is not in an unfinished terminal string."""
    end = text.rfind("\n") + 1
    while end:
        begin, after = text.rfind("\x1b", 0, end), text.find("\x1b", end)
        may_end = after < 0 or text[after + 1 : after + 2] in ("", "\\")
        is_open = begin >= 0 and text[begin + 1 : begin + 2] in ("P", "X", "^", "_") and may_end
        if not is_open or len(text) - begin > MAX_HELD_CHARS:
            break
        end = text.rfind("\n", 0, begin) + 1
    return end


class Live:
    """Shows output to the user while it arrives.

    The text is clean and made of whole characters. It is shown at most once per SHOW_INTERVAL_S; of
    a large output only the newest part is shown. A line that is still being redrawn is held back.
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
            import asyncio  # commands without an event loop import this module too

            self._timer = asyncio.get_running_loop().call_later(SHOW_INTERVAL_S, self._flush)

    def close(self) -> None:
        if self._timer:
            self._timer.cancel()
        self._emit(len(self._pending))

    def _flush(self) -> None:
        self._timer = None
        line = self._pending.rfind(b"\n") + 1
        redrawn = any(byte in self._pending[line:] for byte in b"\r\b\x1b")
        self._emit(line if redrawn else whole_length(self._pending))

    def _emit(self, end: int) -> None:
        data = bytes(self._pending[:end])
        del self._pending[:end]
        text = clean(drop_partial_start(data[-SHOWN_BYTES:]).decode(errors="replace"))
        if self._mid_line and b"\r" in data.partition(b"\n")[0].rstrip(b"\r"):
            text = "\n" + text
        if text:
            self._mid_line = not text.endswith("\n")
            self._show(text)


def excerpt(head: bytes, tail: bytes, dropped: int, advice: str) -> str:
    """Return `head` and `tail` as clean text, with a line between them for the `dropped` bytes.

    No character is split at the cuts.
    """
    if not dropped:
        return clean((head + tail).decode(errors="replace"))
    first, last = head[: whole_length(head)], drop_partial_start(tail)
    dropped += len(head) - len(first) + len(tail) - len(last)
    return (
        f"{clean(first.decode(errors='replace')).rstrip()}\n"
        f"[{dropped:,} bytes left out here; {advice}]\n"
        f"{clean(last.decode(errors='replace'))}"
    )


_ESCAPE = regex(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # CSI: colours, cursor, erasing
    r"|(?:\x1b\]|\x9d)[^\x07\x1b\n\x9c]*(?:\x07|\x1b\\|\x9c)?"  # OSC: titles, links
    r"|\x1b[PX^_](?:[^\x1b]*\x1b\\|[^\x1b\n]*)"  # DCS, SOS, PM, APC
    r"|\x1b[ -/]*[0-~]?"
)
_ESCAPING = regex(r"[\x1b\x9b\x9d]")
_MOVING = regex(r"(?:\x1b\[|\x9b)[012]?[KG]")
_MOVE = regex(r"([\r\b\0])")
_CONTROL = regex(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def clean(text: str) -> str:
    r"""Return output as a terminal would show it.

    Escape sequences and control characters are removed. Overwritten lines (`\r`, backspace, erase)
    are in their last state.
    """
    if not _CONTROL.search(text):
        return text
    text = _without_escapes(text.replace("\r\n", "\n"))
    if _MOVE.search(text):
        text = "\n".join(_redrawn(line.rstrip("\r")) for line in text.split("\n"))
    return _CONTROL.sub("", text)


def _without_escapes(text: str) -> str:
    """Replace escape sequences by their movements within the line."""
    text = text.replace("\0", "")
    if not _ESCAPING.search(text):
        return text
    return _ESCAPE.sub(_movement if _MOVING.search(text) else "", text)


def _movement(escape: re.Match[str]) -> str:
    r"""Return the effect of an escape sequence on its line, as one character.

    \r moves to the start of the line, NUL erases the rest.
    """
    sequence = escape[0].removeprefix("\x1b[").removeprefix("\x9b")
    if sequence in ("K", "0K"):
        return "\0"
    if sequence == "2K":
        return "\r\0"
    return "\r" if sequence in ("G", "0G", "1G") else ""


def _redrawn(line: str) -> str:
    return _drawn(line)[0].rstrip(" ") if _MOVE.search(line) else line


def _drawn(line: str) -> tuple[str, int]:
    """Return the visible text of a line, and the cursor's column."""
    line = line[line.rfind("\r\0") + 2 :] if "\r\0" in line else line  # erased as a whole
    if "\b" in line or "\0" in line:
        return _drawn_by_cells(line)
    if "\r" not in line:
        return line, len(line)
    *before, text = line.split("\r")
    column = len(text)
    for piece in reversed(before):
        if len(piece) > len(text):
            text += piece[len(text) :]
    return text, column


def _drawn_by_cells(line: str) -> tuple[str, int]:
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
    return "".join(cells), column
