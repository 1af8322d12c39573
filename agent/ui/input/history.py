"""The input history of a project, newest last, in a file that only its owner can read.

Parallel sessions append to the same file, one entry at a time, and never remove each other's
entries. Above a size limit, the oldest entries are removed. A write error is reported once.
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

ReportError = Callable[[CtxagentError], None]

MAX_HISTORY_BYTES = 4 << 20  # a longer file is cut to half this size


class ProjectHistory(FileHistory):
    """The history file. Entries contain the full texts of pasted marks, with API keys removed.
    `report_error` gets the first write error.
    """

    def __init__(
        self, path: Path, pasted: PastedTexts, report_error: ReportError | None = None
    ) -> None:
        super().__init__(str(path))
        self._path = path
        self._pasted = pasted
        self._report_error = report_error

    def load_history_strings(self) -> Iterable[str]:
        before = ""
        with suppress(OSError):
            for message in super().load_history_strings():
                if message != before:  # drop repeated entries, also from two sessions
                    yield self._pasted.fold(message)
                before = message

    def store_string(self, string: str) -> None:
        from ...security.redaction import redaction_for

        unfolded = self._pasted.unfold(string)
        content = redaction_for(os.environ).without_known(unfolded).encode(errors="replace")
        head = f"\n# {datetime.now(UTC):%Y-%m-%d %H:%M:%S}\n".encode()
        entry = head + b"".join(b"+%b\n" % line for line in content.split(b"\n"))
        if len(entry) > MAX_HISTORY_BYTES // 2:
            return
        try:
            self._store(entry)
        except OSError as error:
            if self._report_error:
                message = f"the input history cannot be saved: {self._path}: {error.strerror}"
                self._report_error(
                    CtxagentError(message, hint="Check the permissions of the file.")
                )
            self._report_error = None

    def _store(self, entry: bytes) -> None:
        """Append a whole entry, or leave the file unchanged. Raises OSError."""
        make_private_folder(self._path.parent)
        file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            with suppress(OSError):  # without file locks, two writers may lose an entry
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
        """Keep only the newest entries, and return the new size. The file is changed in place,
        because other sessions may have it open.
        """
        newest = os.pread(file, MAX_HISTORY_BYTES // 2, max(0, size - MAX_HISTORY_BYTES // 2))
        newest = newest[newest.find(b"\n# ") :]
        os.pwrite(file, newest, 0)
        os.ftruncate(file, len(newest))
        return len(newest)


class BackgroundHistory(ThreadedHistory):
    """A history that is loaded in the background. Once loaded, it returns its entries at once, so
    that pressing Up directly after sending shows the sent line.
    """

    async def load(self) -> AsyncGenerator[str, None]:
        if self._loaded:
            for message in list(self._loaded_strings):
                yield message
            return
        async for message in super().load():
            yield message
        get_app().invalidate()  # a history search may have started before the load ended


def open_history(path: Path | None, pasted: PastedTexts, report_error: ReportError) -> History:
    """Return the history in a file, read in the background, or else an in-memory history."""
    return (
        BackgroundHistory(ProjectHistory(path, pasted, report_error)) if path else InMemoryHistory()
    )
