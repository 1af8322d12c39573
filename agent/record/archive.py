"""The archive: what leaves the context stays in files of the session's folder.

`offloaded/` holds texts that were too large to send; `conversation.md` grows by the span of each
summary, before the summary is applied (S0, S4); `summary.md` is the newest summary, and `files.md`
names every file that was changed, where that has too few rows for them.
"""

import errno
import os
from pathlib import Path

from ..errors import RecordError
from .lock import make_private

SUMMARY = "summary.md"
FILES = "files.md"
MOST_OFFLOADED = 1 << 30  # bytes in one session; a single text has 2 MiB at most, by its tool


def offload(path: Path, text: str) -> None:
    """Write a text to a new file of `offloaded/`. Raises OSError, also when the session has its
    fill of such files already."""
    make_private(path.parent)
    if sum(entry.stat().st_size for entry in os.scandir(path.parent)) > MOST_OFFLOADED:
        raise OSError(errno.EDQUOT, f"the session has offloaded {MOST_OFFLOADED >> 30} GiB already")
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(text.encode("utf-8", "surrogatepass"))


def append_conversation(folder: Path, text: str) -> None:
    """Add a span to `conversation.md`. Raises RecordError: then the summary may not be applied."""
    _write(folder / "conversation.md", f"{text}\n\n", os.O_APPEND)


def write_summary(folder: Path, text: str) -> None:
    """Put `summary.md` in place. Raises RecordError."""
    _write(folder / SUMMARY, f"{text}\n", os.O_TRUNC)


def write_files(folder: Path, text: str) -> None:
    """Put `files.md` in place. Raises RecordError."""
    _write(folder / FILES, f"{text}\n", os.O_TRUNC)


def _write(path: Path, text: str, how: int) -> None:
    try:
        make_private(path.parent)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | how, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode("utf-8", "replace"))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise RecordError(
            f"cannot write {path}: {error.strerror}", hint="Free the disk, then go on."
        ) from error
