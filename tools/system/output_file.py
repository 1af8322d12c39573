"""A file that receives a command's output while the command runs.

The file grows up to a limit and leaves the last DISK_RESERVE_BYTES of the disk free. Further output
is counted, and its end is written after a line with the number of missing bytes. A full disk never
makes the command fail.
"""

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...agent.lazy import dataclass
from .text_bytes import drop_partial_start, whole_length

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
