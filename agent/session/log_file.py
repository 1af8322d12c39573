"""The log file of a session, open for writing.

It is written under the lock of the session, and its length is known: where anything else has
written to it, or it is gone, nothing is added. That holds also on a file system without locks.
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
    "/fork goes on in a copy of it; /resume with its id takes it over once it is free.",
)
CLOSED_REFUSAL = ("this session is closed here", "/resume with its id goes on with it.")
GONE_HINT = "Nothing more is done in it. Start a fresh one: /clear, or `ctxagent`."
CHANGED_HINT = "Nothing more is done in it before it is opened again as it is now: /resume with \
its id, or `ctxagent --resume`."


class FileState(NamedTuple):
    """The stat of a file, which differs as soon as the file was changed."""

    inode: int
    size: int
    changed: int  # nanoseconds since the epoch
    altered: int  # the same; also set when something but the content was changed

    @classmethod
    def of(cls, stat: os.stat_result) -> "FileState":
        return cls(stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)


class LogFile:
    """The file at `path`, which is made when it is first written. A read-only one needs no lock."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self._fd: int | None = None
        self._lock: int | None = None
        self.path = path
        self._size = 0  # bytes that are known
        self._torn_size: int | None = None  # bytes of the file while it ends with a part of a line
        self._refusal = READ_ONLY_REFUSAL if read_only else ("", "")
        self._last_state: FileState | None = None  # of the file after the newest line
        self._was_touched = False  # whether something else has changed it, if only in place

    def __del__(self) -> None:
        """Free the lock of a log that nobody has any more."""
        self._release()

    @property
    def refusal(self) -> str:
        """Why nothing is written any more; "" as long as lines are written."""
        return self._refusal[0]

    @property
    def is_held(self) -> bool:
        return self._fd is not None

    def check_writable(self) -> None:
        """Raise RecordError when nothing is written any more."""
        if self.refusal:
            raise RecordError(self.refusal, hint=self._refusal[1])

    def hold(self) -> list[str]:
        """Lock the log, open its file or make it, and return warnings for the user. Raises
        SessionBusy when another process has it, RecordError when that cannot be done."""
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
        """Cut off what follows the first `size` bytes. Raises RecordError."""
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
        """The state of the file; None when something else has changed it since it was opened."""
        try:
            state = FileState.of(self.path.stat())
        except OSError:
            return None
        return state if state == self._last_state and not self._was_touched else None

    def write_line(self, line: bytes) -> None:
        """Write a line. Raises RecordError, with the file as it was, when it cannot be written.
        When something else has changed the file, it is released, so that it can be opened again."""
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
        """Put everything written on the medium. Raises RecordError when that fails."""
        if self._fd is not None:
            try:
                sync_file(self._fd)
            except OSError as error:
                raise unwritable(self.path, error) from error

    def close(self) -> None:
        """Release the log for good: nothing is written here any more."""
        self._release()
        self._refusal = self._refusal if self.refusal else CLOSED_REFUSAL

    def release(self) -> None:
        """Let other processes write until the next line is written here. Where one has, that line
        is refused."""
        self._release()

    def _release(self) -> None:
        for fd in (self._fd, self._lock):
            if fd is not None:
                os.close(fd)
        self._fd = self._lock = None

    def _cut_torn_line(self) -> None:
        """Cut off the part of a line that failed, unless something else has written since."""
        assert self._fd is not None
        with suppress(OSError):  # then it is done before the next line
            if os.fstat(self._fd).st_size == self._torn_size:
                os.ftruncate(self._fd, self._size)
                self._torn_size = None

    def _remove_session(self) -> None:
        """Leave nothing of a session whose first entry failed: there is nothing to go on with."""
        with suppress(OSError):
            for path in (self.path, self.path.with_name(LOCK_NAME)):
                path.unlink(missing_ok=True)
            self.path.parent.rmdir()
        self._release()
        self._torn_size = None

    def _checked_state(self, fd: int) -> FileState:
        """Return the state of the file. Raises RecordError when something else has changed it."""
        stat = os.fstat(fd)
        try:
            is_there = os.path.samestat(stat, self.path.stat())
        except OSError:
            is_there = False
        if not is_there:
            self._refuse(f"the log is not there any more: {self.path}", GONE_HINT)
        elif stat.st_size != self._size:
            found = f"{stat.st_size:,} bytes where {self._size:,} were written"
            self._refuse(f"something else has changed the log: {self.path}: {found}", CHANGED_HINT)
        return FileState.of(stat)

    def _refuse(self, why: str, hint: str) -> None:
        self._release()
        self._refusal = (why, hint)
        self.check_writable()
