"""The archive: what leaves the context stays in files of the session's folder.

`offloaded/` holds texts that were too large to send; `conversation.md` grows by the span of each
summary, before the summary is applied (S0, S4); `summary.md` is the newest summary, and `files.md`
names every file that was changed, where that has too few rows for them.
"""

import errno
import os
from io import FileIO
from pathlib import Path

from ..errors import RecordError
from .lock import make_private
from .whole import put

SUMMARY = "summary.md"
FILES = "files.md"
MOST_OFFLOADED = 1 << 30  # bytes in one session; a single text has 2 MiB at most, by its tool

_held: dict[Path, int] = {}  # bytes in the folders of this process, which alone writes to them


def offload(path: Path, text: str) -> None:
    """Write a text to a new file of `offloaded/`. Raises OSError, also when the session has its
    fill of such files already."""
    folder, data = path.parent, text.encode("utf-8", "surrogatepass")
    make_private(folder)
    held = _held.get(folder, MOST_OFFLOADED)
    if held >= MOST_OFFLOADED:  # not counted yet, or somebody may have made room
        held = sum(entry.stat().st_size for entry in os.scandir(folder))
    if held > MOST_OFFLOADED:
        raise OSError(errno.EDQUOT, f"the session has offloaded {MOST_OFFLOADED >> 30} GiB already")
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
    except OSError:  # a part of it would pass for the whole
        path.unlink(missing_ok=True)
        raise
    _held[folder] = held + len(data)


def append_conversation(folder: Path, text: str) -> None:
    """Add a span to `conversation.md`. Raises RecordError: then the summary may not be applied."""
    path = folder / "conversation.md"
    try:
        make_private(folder)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            size = os.fstat(descriptor).st_size
            try:
                _written(file, f"{text}\n\n")
            except OSError:
                file.truncate(size)
                raise
    except OSError as error:
        raise _unwritable(path, error) from error


def write_summary(folder: Path, text: str) -> None:
    """Put `summary.md` in place. Raises RecordError."""
    _replace(folder / SUMMARY, f"{text}\n")


def write_files(folder: Path, text: str) -> None:
    """Put `files.md` in place. Raises RecordError."""
    _replace(folder / FILES, f"{text}\n")


def _replace(path: Path, text: str) -> None:
    """Put a file in place whole, or leave the one that is there."""
    try:
        make_private(path.parent)
        put(path, text.encode("utf-8", "replace"))
    except OSError as error:
        raise _unwritable(path, error) from error


def _written(file: FileIO, text: str) -> None:
    """Write all of a text, down to the medium. Raises OSError."""
    rest = memoryview(text.encode("utf-8", "replace"))
    while rest:
        rest = rest[file.write(rest) :]
    os.fsync(file.fileno())


def _unwritable(path: Path, error: OSError) -> RecordError:
    return RecordError(f"cannot write {path}: {error.strerror}", hint="Free the disk, then go on.")
