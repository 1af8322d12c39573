"""The log file of a session, open for writing.

The file is written under the session's lock, and its length is known. If another program has
written to the file, or the file is missing, nothing is appended. This also protects a log on a file
system without locks.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ...tools.system.files import sync_file
from ..errors import RecordError
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
