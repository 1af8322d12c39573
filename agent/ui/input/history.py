"""The history of what was typed in a project, newest last, in a file that only its owner can read.

Parallel sessions add to the same file, one entry at a time, and none removes another's. Past a size
the oldest entries go. If the file cannot be written, the user is told so, once.
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

from ....tools.system.files import make_private_folder
from ...errors import CtxagentError
from .pasted import PastedTexts

Tell = Callable[[CtxagentError], None]

MAX_HISTORY_BYTES = 4 << 20  # a longer file is cut to half of that


class ProjectHistory(FileHistory):
    """The history file. Entries have the texts behind the marks of `pasted`, without our API keys;
    `tell` is given the error that keeps one from being written."""

    def __init__(self, path: Path, pasted: PastedTexts, tell: Tell | None = None) -> None:
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
        from ...security.redaction import redaction_for

        unfolded = self._pasted.unfold(string)
        words = redaction_for(os.environ).without_known(unfolded).encode(errors="replace")
        head = f"\n# {datetime.now(UTC):%Y-%m-%d %H:%M:%S}\n".encode()
        entry = head + b"".join(b"+%b\n" % line for line in words.split(b"\n"))
        if len(entry) > MAX_HISTORY_BYTES // 2:
            return
        try:
            self._store(entry)
        except OSError as error:
            if self._tell:
                message = f"typed lines cannot be saved: {self._path}: {error.strerror}"
                self._tell(CtxagentError(message))
            self._tell = None

    def _store(self, entry: bytes) -> None:
        """Add an entry whole, or leave the file as it was. Raises OSError."""
        make_private_folder(self._path.parent)
        file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            with suppress(OSError):  # without locks, two writers at once may lose an entry
                fcntl.flock(file, fcntl.LOCK_EX)
            size = os.fstat(file).st_size
            if size + len(entry) > MAX_HISTORY_BYTES:
                size = self._cut(file, size)
            if os.pwrite(file, entry, size) < len(entry):
                os.ftruncate(file, size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(file)

    def _cut(self, file: int, size: int) -> int:
        """Keep the newest entries, in place since other sessions may have the file open; return its
        size."""
        newest = os.pread(file, MAX_HISTORY_BYTES // 2, max(0, size - MAX_HISTORY_BYTES // 2))
        newest = newest[newest.find(b"\n# ") :]
        os.pwrite(file, newest, 0)
        os.ftruncate(file, len(newest))
        return len(newest)


class BackgroundHistory(ThreadedHistory):
    """A history that is read in the background. Once read it answers at once, so that the key Up
    right after a line was sent finds that line."""

    async def load(self) -> AsyncGenerator[str, None]:
        if self._loaded:
            for words in list(self._loaded_strings):
                yield words
            return
        async for words in super().load():
            yield words
        get_app().invalidate()  # a search may have begun without it


def open_history(path: Path | None, pasted: PastedTexts, tell: Tell) -> History:
    """Return the history in a file, read in the background; without a file, that of this run."""
    return BackgroundHistory(ProjectHistory(path, pasted, tell)) if path else InMemoryHistory()
