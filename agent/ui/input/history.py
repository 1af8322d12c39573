"""What was typed in a project, newest last, in a file that only its owner can read.

Sessions side by side add to the same file, one entry at a time, and none takes away another's. The
file stays within a bound: past it the oldest entries go. A file that cannot be written costs the
history, never the words.
"""

import fcntl
import os
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from prompt_toolkit.history import FileHistory, History, InMemoryHistory, ThreadedHistory

from .pasted import Pasted

MOST = 4 << 20  # bytes of the file past which it is cut to half of that


class ProjectHistory(FileHistory):
    """Kept is what stands behind the marks of `pasted`."""

    def __init__(self, path: Path, pasted: Pasted) -> None:
        super().__init__(str(path))
        self._path = path
        self._pasted = pasted

    def load_history_strings(self) -> Iterable[str]:
        before = ""
        with suppress(OSError):
            for words in super().load_history_strings():
                if words != before:  # also where two sessions said the same
                    yield self._pasted.fold(words)
                before = words

    def store_string(self, string: str) -> None:
        words = self._pasted.unfold(string).encode(errors="replace")
        head = f"\n# {datetime.now(UTC):%Y-%m-%d %H:%M:%S}\n".encode()
        entry = head + b"".join(b"+%b\n" % line for line in words.split(b"\n"))
        if len(entry) > MOST // 2:
            return
        with suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
                if os.fstat(file).st_size + len(entry) > MOST:
                    self._cut(file)
                os.write(file, entry)
            finally:
                os.close(file)

    def _cut(self, file: int) -> None:
        """Leave the newest entries, in the same file: others may have it open."""
        size = os.fstat(file).st_size
        newest = os.pread(file, MOST // 2, max(0, size - MOST // 2))
        os.ftruncate(file, 0)
        os.write(file, newest[newest.find(b"\n# ") :])


def history_of(path: Path | None, pasted: Pasted) -> History:
    """The history in a file, read in the background; without one, that of this run."""
    return ThreadedHistory(ProjectHistory(path, pasted)) if path else InMemoryHistory()
