"""The log: an append-only file of entries, the truth of a session.

One process writes, under a lock that dies with it; anybody reads. An entry is on disk (handed to
the kernel) when `append` returns; `sync` puts it on the medium. A torn last line, left by a kill
in mid-write, is cut off on opening; any other line that is no entry is skipped, and said so.
"""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from ..errors import SessionError
from .entries import VERSION, Entry, decode, encode
from .lock import acquire, unwritable

NAME = "log.jsonl"
_NEAR = 32 * 1024  # bytes worth reading through
_HEAD = 64  # bytes that hold a line's number
_NUMBERED = re.compile(rb'\{"v": \d{1,9}, "seq": (\d{1,18}),')


@dataclass(slots=True)
class Reading:
    """What a log holds: its entries, a warning for each line skipped, and the length in bytes of
    its whole lines (what follows is a torn tail)."""

    entries: list[Entry] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    whole: int = 0


def read(path: Path) -> Reading:
    """Read a log. Raises SessionError when there is none or it cannot be read."""
    reading = Reading()
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    break
                reading.whole += len(line)
                try:
                    data = json.loads(line)
                    if not isinstance(data, dict):
                        raise ValueError("not an object")
                    reading.entries.append(decode(data))
                except (ValueError, RecursionError) as error:
                    reading.warnings.append(f"{path}:{number}: skipped, {error}")
    except OSError as error:
        raise SessionError(f"cannot read the log {path}: {error.strerror}") from error
    return reading


def find(path: Path, seq: int) -> Entry | None:
    """One entry of a log, by its number; None when it is not there.

    Numbers rise, so halving the file finds it at a cost that hardly grows with the log; where a
    garbled log misleads that, every line is looked at.
    """
    begins = f'{{"v": {VERSION}, "seq": {seq},'.encode()
    try:
        with path.open("rb") as file:
            for start in dict.fromkeys((_near(file, seq), 0)):
                file.seek(start)
                for line in file:
                    if line.startswith(begins) and line.endswith(b"\n"):
                        return parse_line(line)
                    if start and _number(line) > seq:
                        break
    except OSError:
        return None
    return None


def parse_line(line: bytes) -> Entry | None:
    """The entry of a line; None for a line that is none."""
    try:
        data = json.loads(line)
        return decode(data) if isinstance(data, dict) else None
    except (ValueError, RecursionError):
        return None


def _near(file: BinaryIO, seq: int) -> int:
    """The start of a line that is not far before the one with this number."""
    low, high = 0, file.seek(0, os.SEEK_END)
    while high - low > _NEAR:
        middle = (low + high) // 2
        file.seek(middle)
        file.readline()
        start = file.tell()
        number = _number(file.readline(_HEAD)) if start < high else seq
        if 0 < number < seq:
            low = start
        else:
            high = middle
    return low


def _number(line: bytes) -> int:
    """The number that a line of ours begins with; 0 for any other."""
    found = _NUMBERED.match(line)
    return int(found[1]) if found else 0


class Log:
    """A log open for appending. Nothing is on disk before the first entry of a new one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.warnings: list[str] = []
        self.last_seq = 0
        self._fd: int | None = None
        self._lock: int | None = None

    @classmethod
    def create(cls, path: Path) -> "Log":
        """A new log at `path`; folder and file come with the first entry."""
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> tuple["Log", list[Entry]]:
        """An existing log, locked and repaired, with the entries it holds.

        Raises SessionError when there is none, or another process has it.
        """
        log = cls(path)
        if not path.is_file():
            raise SessionError(
                f"no log at {path}", hint="`ctxagent sessions list` shows which exist."
            )
        log._lock = acquire(path, log.warnings)
        reading = read(path)
        log.warnings += reading.warnings
        log.last_seq = max((e.seq for e in reading.entries), default=0)
        log._attach()
        torn = path.stat().st_size - reading.whole
        if torn and log._fd is not None:
            os.ftruncate(log._fd, reading.whole)
            log.warnings.append(f"{path}: a torn last line of {torn} bytes was cut off")
        return log, reading.entries

    def append(self, entry: Entry) -> Entry:
        """Write one entry; the answer is the entry as a reader of the file will see it.

        Raises RecordError, with the file as it was, when it cannot be written.
        """
        if self._fd is None:
            self._lock = acquire(self.path, self.warnings)
            self._attach()
        assert self._fd is not None
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = _line(replace(entry, seq=self.last_seq + 1, at=now))
        size = os.fstat(self._fd).st_size
        try:
            rest = memoryview(line)
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except OSError as error:
            os.ftruncate(self._fd, size)
            raise unwritable(self.path, error) from error
        self.last_seq += 1
        return decode(json.loads(line))

    def sync(self) -> None:
        """Put everything appended on the medium. Raises RecordError when that fails."""
        if self._fd is not None:
            try:
                os.fsync(self._fd)
            except OSError as error:
                raise unwritable(self.path, error) from error

    def entries(self) -> Iterator[Entry]:
        """Everything appended so far, read again from disk."""
        return iter(read(self.path).entries if self.last_seq else ())

    def close(self) -> None:
        for fd in (self._fd, self._lock):
            if fd is not None:
                os.close(fd)
        self._fd = self._lock = None

    def _attach(self) -> None:
        try:
            self._fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        except OSError as error:
            raise unwritable(self.path, error) from error


def _line(entry: Entry) -> bytes:
    data = encode(entry)
    try:
        return json.dumps(data, ensure_ascii=False, default=str).encode() + b"\n"
    except UnicodeEncodeError:  # lone surrogates have no UTF-8, but JSON can escape them
        return json.dumps(data, default=str).encode() + b"\n"
