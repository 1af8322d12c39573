"""Files that are put in place whole: what is there is either the old content or the new one,
whenever the process is killed."""

import os
from contextlib import suppress
from pathlib import Path


def put(path: Path, data: bytes, *, lasting: bool = True) -> None:
    """Put a file in place, open to its owner alone, or leave the one that is there; `lasting` means
    that it is on the medium then. Raises OSError.

    For a folder in which one process writes: the part of a file that a kill has left behind has
    the name of the next one, so that there is never more than one.
    """
    part = path.with_name(f"{path.name}.part")
    part.unlink(missing_ok=True)
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            rest = memoryview(data)
            while rest:
                rest = rest[file.write(rest) :]
            if lasting:
                os.fsync(file.fileno())
        part.replace(path)
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
