"""The end of a log, where it is written. It is held under the lock, and how long the file is, is
known: where anything else has written to it, or it is not there any more, nothing is added. That
holds also where the file system has no locks.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ..errors import RecordError
from .lock import NAME as LOCK
from .lock import acquire, unwritable

READ_ONLY = (
    "this session is read-only here: another process has it",
    "/fork goes on in a copy of it; /resume with its id takes it over once it is free.",
)
CLOSED = ("this session is closed here", "/resume with its id goes on with it.")
GONE = "Nothing more is done in it. Start a fresh one: /clear, or `ctxagent`."
CHANGED = "Nothing more is done in it before it is opened again as it is now: /resume with its id, \
or `ctxagent --resume`."


class State(NamedTuple):
    """What tells one state of a file from another without reading it."""

    inode: int
    size: int
    changed: int  # nanoseconds since the epoch
    altered: int  # also when something but its content was

    @classmethod
    def of(cls, stat: os.stat_result) -> "State":
        return cls(stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)


class Tail:
    """Of the log at `path`. With `read_only` nothing is ever written, and no lock is needed."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = path
        self.size = 0  # bytes that are known
        self._fd: int | None = None
        self._lock: int | None = None
        self._torn: int | None = None  # bytes with a part of a line that stands behind them
        self._refusal = READ_ONLY if read_only else ("", "")
        self._left: State | None = None  # the file after the newest line
        self._touched = False  # whether something else has changed it, if only in the same length

    @property
    def refusal(self) -> str:
        """Why nothing is written any more; "" as long as it is."""
        return self._refusal[0]

    @property
    def is_held(self) -> bool:
        return self._fd is not None

    def check(self) -> None:
        """Raises RecordError when nothing is written any more."""
        if self.refusal:
            raise RecordError(self.refusal, hint=self._refusal[1])

    def hold(self) -> list[str]:
        """Lock the log and open its file, which is made where there is none; what a person is to
        be told. Raises SessionBusy when another process has it, RecordError when it cannot be."""
        self.check()
        warnings: list[str] = []
        self._lock = acquire(self.path, warnings)
        try:
            self._fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        except OSError as error:
            self._let_go()
            raise unwritable(self.path, error) from error
        return warnings

    def end_at(self, size: int) -> None:
        """The file has so many bytes, and loses what follows them. Raises RecordError."""
        assert self._fd is not None
        self.size = size
        try:
            if os.fstat(self._fd).st_size > size:
                os.ftruncate(self._fd, size)
            self._left = State.of(os.fstat(self._fd))
        except OSError as error:
            raise unwritable(self.path, error) from error

    @property
    def left(self) -> State | None:
        """The file as it was left here; None where something else has changed it meanwhile."""
        try:
            there = State.of(self.path.stat())
        except OSError:
            return None
        return there if there == self._left and not self._touched else None

    def add(self, line: bytes) -> None:
        """Write a line. Raises RecordError, with the file as it was when it cannot be written; when
        it is not as it was left, this lets go of it, so that it can be opened as it is."""
        self.check()
        assert self._fd is not None
        self._mend()
        here = self._look(self._fd)
        self._touched = self._touched or self._left not in (None, here)
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except OSError as error:
            self._torn = self.size + len(line) - len(rest)
            self._mend()
            if not self.size:
                self._withdraw()
            raise unwritable(self.path, error) from error
        self.size += len(line)
        self._left = self._look(self._fd)

    def sync(self) -> None:
        """Put everything written on the medium. Raises RecordError when that fails."""
        if self._fd is not None:
            try:
                os.fsync(self._fd)
            except OSError as error:
                raise unwritable(self.path, error) from error

    def close(self) -> None:
        """Let go of the log for good."""
        self._let_go()
        self._refusal = self._refusal if self.refusal else CLOSED

    def _let_go(self) -> None:
        for fd in (self._fd, self._lock):
            if fd is not None:
                os.close(fd)
        self._fd = self._lock = None

    def _mend(self) -> None:
        """Take away what a line that failed has left, unless something else has written since."""
        assert self._fd is not None
        with suppress(OSError):  # then it is done before the next line
            if os.fstat(self._fd).st_size == self._torn:
                os.ftruncate(self._fd, self.size)
                self._torn = None

    def _withdraw(self) -> None:
        """Leave nothing of a session whose first entry failed: there is nothing to go on with."""
        with suppress(OSError):
            for path in (self.path, self.path.with_name(LOCK)):
                path.unlink(missing_ok=True)
            self.path.parent.rmdir()
        self._let_go()
        self._torn = None

    def _look(self, fd: int) -> State:
        """The file now. Raises RecordError where it is not as this process has left it."""
        here = os.fstat(fd)
        try:
            is_there = os.path.samestat(here, self.path.stat())
        except OSError:
            is_there = False
        if not is_there:
            self._refuse(f"the log is not there any more: {self.path}", GONE)
        elif here.st_size != self.size:
            found = f"{here.st_size:,} bytes where {self.size:,} were written"
            self._refuse(f"something else has changed the log: {self.path}: {found}", CHANGED)
        return State.of(here)

    def _refuse(self, why: str, hint: str) -> None:
        self._let_go()
        self._refusal = (why, hint)
        self.check()
