"""What was typed in a project, newest last, in a file that only its owner can read.

Sessions side by side add to the same file, one entry at a time, and none takes away another's. The
file stays within a bound: past it the oldest entries go. A file that cannot be written costs the
history, never the words; that is told once.
"""

import errno
import fcntl
import os
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from prompt_toolkit.application.current import get_app
from prompt_toolkit.history import FileHistory, History, InMemoryHistory, ThreadedHistory

from ...errors import CtxagentError
from ...record.lock import make_private
from .pasted import Pasted

MOST = 4 << 20  # bytes of the file past which it is cut to half of that


class ProjectHistory(FileHistory):
    """Kept is what stands behind the marks of `pasted`, without our keys. `tell` is given what
    keeps it from being kept."""

    def __init__(
        self, path: Path, pasted: Pasted, tell: Callable[[CtxagentError], None] | None = None
    ) -> None:
        super().__init__(str(path))
        self._path = path
        self._pasted = pasted
        self._tell = tell

    def load_history_strings(self) -> Iterable[str]:
        before = ""
        with suppress(OSError):
            for words in super().load_history_strings():
                if words != before:  # also where two sessions said the same
                    yield self._pasted.fold(words)
                before = words

    def store_string(self, string: str) -> None:
        from ...redaction import of

        words = of(os.environ).known_in(self._pasted.unfold(string)).encode(errors="replace")
        head = f"\n# {datetime.now(UTC):%Y-%m-%d %H:%M:%S}\n".encode()
        entry = head + b"".join(b"+%b\n" % line for line in words.split(b"\n"))
        if len(entry) > MOST // 2:
            return
        try:
            self._store(entry)
        except OSError as error:
            if self._tell:
                told = f"what is typed is not kept for later: {self._path}: {error.strerror}"
                self._tell(CtxagentError(told))
            self._tell = None

    def _store(self, entry: bytes) -> None:
        """Add an entry whole, or leave the file as it was. Raises OSError."""
        make_private(self._path.parent)
        file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            with suppress(OSError):  # where there are no locks, two at once may lose one
                fcntl.flock(file, fcntl.LOCK_EX)
            size = os.fstat(file).st_size
            if size + len(entry) > MOST:
                size = self._cut(file, size)
            if os.pwrite(file, entry, size) < len(entry):
                os.ftruncate(file, size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(file)

    def _cut(self, file: int, size: int) -> int:
        """Leave the newest entries, in the same file: others may have it open. They take the place
        of the oldest before anything goes, so that no room is needed. How long it is then."""
        newest = os.pread(file, MOST // 2, max(0, size - MOST // 2))
        newest = newest[newest.find(b"\n# ") :]
        os.pwrite(file, newest, 0)
        os.ftruncate(file, len(newest))
        return len(newest)


class ReadOnce(ThreadedHistory):
    """Read in the background, and from then on there at once: a key that comes right after a line
    was sent finds that line."""

    async def load(self) -> AsyncGenerator[str, None]:
        if self._loaded:
            for words in list(self._loaded_strings):
                yield words
            return
        async for words in super().load():
            yield words
        get_app().invalidate()  # a search may have begun without it


def history_of(path: Path | None, pasted: Pasted, tell: Callable[[CtxagentError], None]) -> History:
    """The history in a file, read in the background; without one, that of this run."""
    return ReadOnce(ProjectHistory(path, pasted, tell)) if path else InMemoryHistory()
