"""The log: an append-only file of entries, the truth of a session.

One process writes, under a lock that dies with it; anybody reads. An entry is on disk (handed to
the kernel) when `append` returns; `sync` puts it on the medium. A torn last line, left by a kill
in mid-write, is cut off on opening; any other line that is no entry is skipped, and said so.
"""

import json
import os
import re
from collections.abc import Callable, Iterator, Reversible
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import BinaryIO, Protocol, TypeVar

from ..errors import SessionError
from .entries import VERSION, Entry, decode, encode
from .lines import backwards, whole
from .tail import State, Tail

NAME = "log.jsonl"
_NEAR = 32 * 1024  # bytes worth reading through
_HEAD = 64  # bytes that hold a line's number
_NUMBERED = re.compile(rb'\{"v": \d{1,9}, "seq": (\d{1,18}),')

E = TypeVar("E", bound=Entry)


@dataclass(slots=True)
class Reading:
    """What a log holds: its entries, and a warning for each line skipped."""

    entries: list[Entry] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def read(path: Path) -> Reading:
    """All of a log, for one that is short or cannot be told in one pass. Raises SessionError when
    there is none or it cannot be read."""
    warnings: list[str] = []
    return Reading(list(Entries(path, warnings)), warnings)


@dataclass(frozen=True, slots=True)
class Entries:
    """The entries of a log, read from disk each time they are gone through, one at a time: a log
    may be larger than the memory. Those after number `upto` are left out. Going through them adds
    a warning for each line skipped, and raises SessionError when the log cannot be read."""

    path: Path
    warnings: list[str] | None = None
    upto: float = inf

    def __iter__(self) -> Iterator[Entry]:
        with _opened(self.path) as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    break
                try:
                    entry = parse(line)
                    if entry.seq <= self.upto:
                        yield entry
                except ValueError as error:
                    if self.warnings is not None:
                        self.warnings.append(skipped(self.path, number, str(error)))

    def __reversed__(self) -> Iterator[Entry]:
        with _opened(self.path) as file:
            for _, line in backwards(file, whole(file, file.seek(0, os.SEEK_END))):
                if (entry := parse_line(line)) and entry.seq <= self.upto:
                    yield entry


def skipped(path: Path, number: int, why: str) -> str:
    """The warning for a line that is no entry."""
    return f"{path}:{number}: skipped, {why}"


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise SessionError(f"cannot read the log {path}: {error.strerror}") from error


def through(path: Path) -> tuple[int, list[str]]:
    """The highest number in a log and its warnings, from going through all of it."""
    warnings: list[str] = []
    return max((entry.seq for entry in Entries(path, warnings)), default=0), warnings


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
                    if start and number(line) > seq:
                        break
    except OSError:
        return None
    return None


def parse(line: bytes) -> Entry:
    """The entry of a line. Raises ValueError, saying why, for a line that is none."""
    try:
        data = json.loads(line)
    except RecursionError as error:
        raise ValueError(str(error)) from error
    if not isinstance(data, dict):
        raise ValueError("not an object")
    return decode(data)


def parse_line(line: bytes) -> Entry | None:
    """The entry of a line; None for a line that is none."""
    try:
        return parse(line)
    except ValueError:
        return None


def _near(file: BinaryIO, seq: int) -> int:
    """The start of a line that is not far before the one with this number."""
    low, high = 0, file.seek(0, os.SEEK_END)
    while high - low > _NEAR:
        middle = (low + high) // 2
        file.seek(middle)
        file.readline()
        start = file.tell()
        found = number(file.readline(_HEAD)) if start < high else seq
        if 0 < found < seq:
            low = start
        else:
            high = middle
    return low


def number(line: bytes) -> int:
    """The number that a line of ours begins with; 0 for any other."""
    found = _NUMBERED.match(line)
    return int(found[1]) if found else 0


class Redact(Protocol):
    """Takes out of an entry what must not be kept."""

    def __call__(self, entry: E, /) -> E: ...


def as_it_is(entry: E) -> E:
    return entry


class Log:
    """A log open for appending. Nothing is on disk before the first entry of a new one; `tell` is
    given what there is to say when it is made; `redact` takes out of each what must not be kept."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = path
        self.warnings: list[str] = []
        self.tell: Callable[[str], None] | None = None
        self.redact: Redact = as_it_is
        self.last_seq = 0
        self._tail = Tail(path, read_only=read_only)

    @classmethod
    def create(cls, path: Path) -> "Log":
        """A new log at `path`; folder and file come with the first entry."""
        return cls(path)

    @classmethod
    def open(
        cls,
        path: Path,
        read: "Callable[[Log], tuple[int, list[str]]] | None" = None,
        *,
        read_only: bool = False,
    ) -> "Log":
        """An existing log, locked, its torn tail cut off. Under the lock `read` gives the highest
        number in it and warnings; without one all of it is gone through for them. With `read_only`
        nothing is locked, cut off or ever appended: another process may have it.

        Raises SessionError when there is none, SessionBusy when another process has it.
        """
        log = cls(path, read_only=read_only)
        if not path.is_file():
            raise SessionError(
                f"no log at {path}", hint="`ctxagent sessions list` shows which exist."
            )
        if not read_only:
            log.warnings += log._tail.hold()
        with log.kept_if_well():
            cut = [] if read_only else log._cut()
            log.last_seq, warnings = read(log) if read else through(path)
        log.warnings += [*warnings, *cut]
        return log

    def _cut(self) -> list[str]:
        """Cut off what follows the last whole line; a warning if there was something."""
        with _opened(self.path) as file:
            size = file.seek(0, os.SEEK_END)
            end = whole(file, size)
        self._tail.end_at(end)
        if end == size:
            return []
        return [f"{self.path}: a torn last line of {size - end} bytes was cut off"]

    @property
    def refusal(self) -> str:
        """Why nothing is appended any more; "" as long as it is."""
        return self._tail.refusal

    def check(self) -> None:
        """Raises RecordError when nothing is appended any more."""
        self._tail.check()

    def append(self, entry: Entry) -> Entry:
        """Write one entry; the answer is the entry as a reader of the file will see it.

        Raises RecordError, with the file as it was, when it cannot be written.
        """
        if not self._tail.is_held:
            for warning in self._tail.hold():
                (self.tell or self.warnings.append)(warning)
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = line_of(replace(self.redact(entry), seq=self.last_seq + 1, at=now))
        self._tail.add(line)
        self.last_seq += 1
        return decode(json.loads(line))

    def sync(self) -> None:
        """Put everything appended on the medium. Raises RecordError when that fails."""
        self._tail.sync()

    def left(self) -> State | None:
        """What the file is like after the newest entry; None where something else has changed it
        since it was opened."""
        return self._tail.left

    def entries(self) -> Reversible[Entry]:
        """Everything appended so far, read again from disk each time it is gone through."""
        return Entries(self.path) if self.last_seq else ()

    def close(self) -> None:
        """Let go of it: nothing is appended here any more."""
        self._tail.close()

    @contextmanager
    def kept_if_well(self) -> Iterator[None]:
        """Closes the log if what follows its opening fails, however it does."""
        with ExitStack() as undo:
            undo.callback(self.close)
            yield
            undo.pop_all()


def line_of(entry: Entry) -> bytes:
    """An entry as its line, with its end."""
    data = encode(entry)
    try:
        return json.dumps(data, ensure_ascii=False, default=str).encode() + b"\n"
    except UnicodeEncodeError:  # lone surrogates have no UTF-8, but JSON can escape them
        return json.dumps(data, default=str).encode() + b"\n"
