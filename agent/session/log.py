"""The log: the append-only file of a session's entries, from which all other state is computed.

One process writes, under a lock that the kernel frees when the process ends; any process may read.
When `append` returns, the entry is in the kernel; `sync` flushes it to the storage device. Opening
cuts off an incomplete last line left by a killed process. Readers skip any other line that is not
an entry, with a warning.

The writer knows the length of the file. If another program has written to the file, or the file is
missing, nothing is appended. This also protects a log on a file system without locks.
"""

import json
import os
from collections.abc import Callable, Collection, Iterator, Reversible
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import field, replace
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol, TypeVar

from ...tools.system.files import open_kept, sync_file
from ..errors import RecordError, SessionError
from ..lazy import dataclass, regex
from .conversation import ConversationFile, conversation_text
from .copies import LogScan, check_copies
from .entries import VERSION, Entry, decode, encode
from .lock import LOCK_NAME, acquire_lock, unwritable

READ_ONLY_REFUSAL = (
    "this session is read-only here: another process has it",
    "/fork continues in a copy. /resume with its ID takes it over once it is free.",
)
CLOSED_REFUSAL = ("this session is closed here", "Continue it with /resume and its ID.")
GONE_HINT = "This session cannot continue. Start a new one with /clear or `ctxagent`."
CHANGED_HINT = "This session cannot continue until it is opened again: /resume with its ID, or \
`ctxagent --resume`."


class FileState(NamedTuple):
    """The stat of a file, used to detect changes."""

    inode: int
    size: int
    changed: int  # nanoseconds since the epoch
    altered: int  # same unit; also changes with the file's metadata

    @classmethod
    def of(cls, stat: os.stat_result) -> "FileState":
        return cls(stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)


class LogFile:
    """The file at `path`, created on the first write. A read-only log needs no lock."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self._fd: int | None = None
        self._lock: int | None = None
        self.path = path
        self._size = 0  # expected size in bytes
        self._torn_size: int | None = None  # size in bytes while the file ends with a partial line
        self._refusal = READ_ONLY_REFUSAL if read_only else ("", "")
        self._last_state: FileState | None = None  # after the newest line
        self._was_touched = False  # another program has changed the file, even if only in place

    def __del__(self) -> None:
        """Free the lock of a log without references."""
        self._release()

    @property
    def refusal(self) -> str:
        """The reason why writes are refused, or "" while they are allowed."""
        return self._refusal[0]

    @property
    def is_locked(self) -> bool:
        return self._fd is not None

    def check_writable(self) -> None:
        """Raise RecordError if writes are refused."""
        if self.refusal:
            raise RecordError(self.refusal, hint=self._refusal[1])

    def lock(self) -> list[str]:
        """Lock the log, open or create its file, and return warnings for the user. Raises
        SessionBusy if another process has the log, and RecordError on other failures.
        """
        self.check_writable()
        warnings: list[str] = []
        self._lock = acquire_lock(self.path, warnings)
        try:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
            self._fd = os.open(self.path, flags, 0o600)
        except OSError as error:
            self._release()
            raise unwritable(self.path, error) from error
        return warnings

    def truncate(self, size: int) -> None:
        """Truncate the file to `size` bytes. Raises RecordError."""
        assert self._fd is not None
        self._size = size
        try:
            if os.fstat(self._fd).st_size > size:
                os.ftruncate(self._fd, size)
            self._last_state = FileState.of(os.fstat(self._fd))
        except OSError as error:
            raise unwritable(self.path, error) from error

    @property
    def unchanged_state(self) -> FileState | None:
        """The state of the file, or None if another program has changed it since it was opened."""
        try:
            state = FileState.of(self.path.stat())
        except OSError:
            return None
        return state if state == self._last_state and not self._was_touched else None

    def write_line(self, line: bytes) -> None:
        """Write a line. Raises RecordError and leaves the file unchanged on failure. If another
        program has changed the file, the lock is freed, so that the session can be opened again.
        """
        self.check_writable()
        assert self._fd is not None
        self._cut_torn_line()
        state = self._checked_state(self._fd)
        self._was_touched = self._was_touched or self._last_state not in (None, state)
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except OSError as error:
            self._torn_size = self._size + len(line) - len(rest)
            self._cut_torn_line()
            if not self._size:
                self._remove_session()
            raise unwritable(self.path, error) from error
        self._size += len(line)
        self._last_state = self._checked_state(self._fd)

    def sync(self) -> None:
        """Flush everything written to the storage device. Raises RecordError on failure."""
        if self._fd is not None:
            try:
                sync_file(self._fd)
            except OSError as error:
                raise unwritable(self.path, error) from error

    def close(self) -> None:
        """Release the log permanently: later writes are refused."""
        self._release()
        self._refusal = self._refusal if self.refusal else CLOSED_REFUSAL

    def release(self) -> None:
        """Let other processes write until the next line is written here. That line is refused if
        another process has written.
        """
        self._release()

    def _release(self) -> None:
        for fd in (self._fd, self._lock):
            if fd is not None:
                os.close(fd)
        self._fd = self._lock = None

    def _cut_torn_line(self) -> None:
        """Cut off a partly written line, unless another program has written since."""
        assert self._fd is not None
        with suppress(OSError):  # retried before the next line
            if os.fstat(self._fd).st_size == self._torn_size:
                os.ftruncate(self._fd, self._size)
                self._torn_size = None

    def _remove_session(self) -> None:
        """Remove a session whose first entry could not be written."""
        with suppress(OSError):
            for path in (self.path, self.path.with_name(LOCK_NAME)):
                path.unlink(missing_ok=True)
            self.path.parent.rmdir()
        self._release()
        self._torn_size = None

    def _checked_state(self, fd: int) -> FileState:
        """Return the state of the file. Raises RecordError if another program has changed it."""
        stat = os.fstat(fd)
        try:
            is_there = os.path.samestat(stat, self.path.stat())
        except OSError:
            is_there = False
        if not is_there:
            self._refuse(f"the log is missing: {self.path}", GONE_HINT)
        elif stat.st_size != self._size:
            found = f"{stat.st_size:,} bytes found, {self._size:,} written"
            self._refuse(f"another program has changed the log: {self.path}: {found}", CHANGED_HINT)
        return FileState.of(stat)

    def _refuse(self, why: str, hint: str) -> None:
        self._release()
        self._refusal = (why, hint)
        self.check_writable()


LOG_NAME = "log.jsonl"
_FIRST_BLOCK_BYTES = 1 << 15  # first block read from the end; doubled up to _MAX_BLOCK_BYTES
_MAX_BLOCK_BYTES = 1 << 20
_MAX_SCAN_BYTES = 32 * 1024  # a range of this size is read linearly
_LINE_HEAD_BYTES = 64  # enough for a line's seq
_LINE_HEAD = regex(rb'\{"v": \d{1,9}, "seq": (\d{1,18}),')

E = TypeVar("E", bound=Entry)


def lines_backwards(file: BinaryIO, end: int) -> Iterator[tuple[int, bytes]]:
    """Yield (offset, line) for the lines before `end`, last line first. `end` is the start of a
    line.
    """
    size = _FIRST_BLOCK_BYTES
    while end > 0:
        begin = max(0, end - size)
        file.seek(begin)
        data = file.read(end - begin)
        cut = data.find(b"\n") + 1 if begin else 0
        if begin and not 0 < cut < len(data):
            size *= 2  # no line begins in this block
            continue
        for line in reversed(data[cut:].removesuffix(b"\n").split(b"\n")):
            end -= len(line) + 1
            yield end, line + b"\n"
        size = min(2 * size, _MAX_BLOCK_BYTES)


def end_of_whole_lines(file: BinaryIO, size: int) -> int:
    """Return the offset after the last whole line of a file of `size` bytes."""
    block = _FIRST_BLOCK_BYTES
    while size > 0:
        begin = max(0, size - block)
        file.seek(begin)
        if found := file.read(size - begin).rfind(b"\n") + 1:
            return begin + found
        size, block = begin, min(2 * block, _MAX_BLOCK_BYTES)
    return 0


@dataclass(slots=True)
class LogContents:
    """The entries of a log, and a warning for each skipped line."""

    entries: list[Entry] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def read_log(path: Path) -> LogContents:
    """Read a whole log into memory. Raises SessionError if it cannot be read."""
    warnings: list[str] = []
    return LogContents(list(Entries(path, warnings)), warnings)


@dataclass(frozen=True, slots=True)
class Entries:
    """The entries of a log, read from disk one at a time on each iteration, because a log may be
    larger than memory. Iteration raises SessionError if the log cannot be read.
    """

    path: Path
    warnings: list[str] | None = None  # receives a warning for each skipped line
    upto: float = inf  # entries with a higher seq are left out

    def __iter__(self) -> Iterator[Entry]:
        with _opened(self.path) as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    break
                try:
                    entry = parse_entry(line)
                    if entry.seq <= self.upto:
                        yield entry
                except ValueError as error:
                    if self.warnings is not None:
                        self.warnings.append(skipped_line_warning(self.path, number, str(error)))

    def __reversed__(self) -> Iterator[Entry]:
        with _opened(self.path) as file:
            end = end_of_whole_lines(file, file.seek(0, os.SEEK_END))
            for _, line in lines_backwards(file, end):
                if (entry := try_parse_entry(line)) and entry.seq <= self.upto:
                    yield entry


def skipped_line_warning(path: Path, number: int, why: str) -> str:
    """Return the warning for a line that is not an entry."""
    return f"{path}:{number}: skipped, {why}"


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        with open_kept(path) as file:
            yield file
    except OSError as error:
        raise SessionError(f"cannot read the log {path}: {error.strerror}") from error


def scan_log(path: Path) -> LogScan:
    """Read a whole log."""
    warnings: list[str] = []
    count, highest, size, in_order = 0, 0, 0, True
    for entry in Entries(path, warnings):
        count += 1
        size += len(conversation_text(entry))
        in_order = in_order and entry.seq > highest
        highest = max(highest, entry.seq)
    return LogScan(count, highest, warnings, size, in_order)


def find_entry(path: Path, seq: int) -> Entry | None:
    """Return the entry with this seq, or None if the log has none. Seqs rise, so a binary search
    finds it. If a damaged log misleads the search, all lines are read.
    """
    begins = f'{{"v": {VERSION}, "seq": {seq},'.encode()
    try:
        with open_kept(path) as file:
            for start in dict.fromkeys((_offset_near(file, seq), 0)):
                file.seek(start)
                for line in file:
                    if line.startswith(begins) and line.endswith(b"\n"):
                        return try_parse_entry(line)
                    if start and seq_of_line(line) > seq:
                        break
    except OSError:
        return None
    return None


def find_entries(path: Path, seqs: Collection[int]) -> dict[int, Entry]:
    """Return the entries with these seqs that exist, by seq. They should be close together: one
    pass reads from the first to the last.
    """
    found: dict[int, Entry] = {}
    wanted, last = set(seqs), max(seqs, default=0)
    with suppress(OSError), open_kept(path) as file:
        file.seek(_offset_near(file, min(seqs, default=0)))
        for line in file:
            seq = seq_of_line(line)
            if seq in wanted and line.endswith(b"\n") and (entry := try_parse_entry(line)):
                found.setdefault(seq, entry)
            if seq >= last:
                break
    for seq in wanted - found.keys():
        if entry := find_entry(path, seq):
            found[seq] = entry
    return found


def parse_entry(line: bytes) -> Entry:
    """Return the entry of a line. Raises ValueError with the reason if the line is not an entry."""
    try:
        data = json.loads(line)
    except RecursionError as error:
        raise ValueError(str(error)) from error
    if not isinstance(data, dict):
        raise ValueError("not an object")
    return decode(data)


def try_parse_entry(line: bytes) -> Entry | None:
    """Return the entry of a line, or None if the line is not an entry."""
    try:
        return parse_entry(line)
    except ValueError:
        return None


def _offset_near(file: BinaryIO, seq: int) -> int:
    """Return the start of a line at or shortly before the line with this seq."""
    low, high = 0, file.seek(0, os.SEEK_END)
    while high - low > _MAX_SCAN_BYTES:
        middle = (low + high) // 2
        file.seek(middle)
        file.readline()
        start = file.tell()
        found = seq_of_line(file.readline(_LINE_HEAD_BYTES)) if start < high else seq
        if 0 < found < seq:
            low = start
        else:
            high = middle
    return low


def seq_of_line(line: bytes) -> int:
    """Return the seq at the beginning of a log line, or 0 for any other line."""
    found = _LINE_HEAD.match(line)
    return int(found[1]) if found else 0


class Redact(Protocol):
    """A function that removes secrets from an entry."""

    def __call__(self, entry: E, /) -> E: ...


def without_redaction(entry: E) -> E:
    return entry


class Log(LogFile):
    """A log open for appending. A new log is created on disk with its first entry."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        super().__init__(path, read_only=read_only)
        self.warnings: list[str] = []
        self.warn: Callable[[str], None] | None = None  # receives warnings, else `warnings` does
        self.redact: Redact = without_redaction
        self.last_seq = 0
        # The texts that `conversation.md` lacks at its end, None if not known.
        self._missing: list[bytes] | None = None
        self.conversation: ConversationFile | None = (
            None  # None unless `keep_conversation` was called
        )

    @classmethod
    def open(
        cls,
        path: Path,
        read: "Callable[[Log], LogScan] | None" = None,
        *,
        read_only: bool = False,
    ) -> "Log":
        """Open an existing log, lock it and cut off an incomplete last line.

        `read` runs under the lock; by default the whole log is scanned. With `read_only`, nothing
        is locked, cut off or appended, because another process may have the log. Raises
        SessionError for a missing log, SessionBusy if another process has it, and LogDamaged if a
        copy has more than the log.
        """
        log = cls(path, read_only=read_only)
        if not path.is_file():
            raise SessionError(
                f"no log at {path}", hint="`ctxagent sessions list` lists the sessions."
            )
        if not read_only:
            log.warnings += log.lock()
        with log.closed_on_error():
            with _opened(path) as file:
                size = file.seek(0, os.SEEK_END)
                end = end_of_whole_lines(file, size)
            scan = read(log) if read else scan_log(path)
            log.last_seq = scan.highest
            log.warnings += scan.warnings
            if not read_only:
                log._missing = check_copies(path, Entries(path), scan, is_torn=end < size)
                log.truncate(end)
        if end < size and not read_only:
            cut = f"{path}: cut off an incomplete last line of {size - end} bytes"
            log.warnings.append(cut)
        return log

    def append(self, entry: Entry) -> Entry:
        """Write an entry and return it as a reader of the file will see it. Raises RecordError and
        leaves the file unchanged on failure.
        """
        if not self.is_locked:
            for warning in self.lock():
                (self.warn or self.warnings.append)(warning)
        line = encode_line(replace(self.redact(entry), seq=self.last_seq + 1, at=timestamp()))
        self.write_line(line)
        self.last_seq += 1
        recorded = decode(json.loads(line))
        if self.conversation is not None:
            self.conversation.add(recorded)
        return recorded

    def entries(self) -> Reversible[Entry]:
        """Return everything appended so far, read from disk on each iteration."""
        return Entries(self.path) if self.last_seq else ()

    def keep_conversation(self, size: int) -> None:
        """Start to maintain `conversation.md` next to the log. `size` is the size in bytes of the
        texts of all entries so far.
        """
        self.conversation = ConversationFile(
            self.path.parent, Entries(self.path), size, self._missing
        )

    def sync_all(self) -> None:
        """Flush the log and the conversation to the storage device. Raises RecordError."""
        self.sync()
        if self.conversation is not None:
            self.conversation.sync()

    @contextmanager
    def closed_on_error(self) -> Iterator[None]:
        """Close the log if the block raises anything."""
        with ExitStack() as undo:
            undo.callback(self.close)
            yield
            undo.pop_all()


def timestamp(at: float | None = None) -> str:
    """Return a time in seconds since 1970 (default: now) in the format of entries: UTC with
    milliseconds.
    """
    time = datetime.now(UTC) if at is None else datetime.fromtimestamp(at, UTC)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def encode_line(entry: Entry) -> bytes:
    """Return the line of an entry, with its newline."""
    data = encode(entry)
    try:
        return json.dumps(data, ensure_ascii=False, default=str).encode() + b"\n"
    except UnicodeEncodeError:  # lone surrogates have no UTF-8, but JSON can escape them
        return json.dumps(data, default=str).encode() + b"\n"
