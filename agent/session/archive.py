"""The archive: what leaves the context stays in files of the session's folder.

`offloaded/` holds texts that were too large to send; `summary.md` is the newest summary,
`session-summary-<seq>.md` that of the task that began with the entry <seq>, and `files.md` names
every file that was changed when the summary has too few rows for them. (`conversation.py` keeps the
whole conversation.)
"""

import errno
import hashlib
import os
from datetime import datetime
from pathlib import Path

from ...tools.system.files import make_private_folder, replacing
from ...tools.system.output_file import OutputFile, spare_bytes
from ..errors import RecordError

SUMMARY_NAME = "summary.md"
TASK_SUMMARY_PREFIX = "session-summary-"  # of the newest summary of each task, S2's name for it
FILES_NAME = "files.md"
OFFLOADED = "offloaded"  # the folder
IMAGE_NAME_CHARS = 32  # of a digest
# Of one session. More is kept only where the disk has a reserve.
MAX_OFFLOADED_BYTES = 1 << 30
_CALL_CHARS = 12  # of the digest of a call's id

_folder_bytes: dict[Path, int] = {}  # in the folders of this process, which alone writes to them


def offload(path: Path, text: str) -> None:
    """Write a text to a new file of `offloaded/`. Raises OSError, also when the folder is full."""
    _offload(path, text.encode("utf-8", "surrogatepass"))


def offload_image(folder: Path, data: bytes, suffix: str) -> str:
    """Keep an image in `offloaded/` of the session in `folder`, once, named by its content; return
    the path of its file in the session's folder. Raises OSError, also when the folder is full."""
    name = f"{OFFLOADED}/{hashlib.sha256(data).hexdigest()[:IMAGE_NAME_CHARS]}.{suffix}"
    path = folder / name
    if path.exists() and path.stat().st_size != len(data):  # a killed process left a part of it
        path.unlink()
    if not path.exists():
        _offload(path, data)
    return name


def _offload(path: Path, data: bytes) -> None:
    folder = path.parent
    make_private_folder(folder)
    size = _folder_bytes.get(folder, MAX_OFFLOADED_BYTES)
    if size >= MAX_OFFLOADED_BYTES:  # not counted yet, or somebody may have made room
        size = sum(entry.stat().st_size for entry in os.scandir(folder))
    if size > MAX_OFFLOADED_BYTES and not spare_bytes(folder):
        raise OSError(
            errno.EDQUOT,
            f"the session has offloaded {MAX_OFFLOADED_BYTES >> 30} GiB already, and less than "
            "1 GB of the disk is free",
        )
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
    except OSError:  # a part of it would pass for the whole
        path.unlink(missing_ok=True)
        raise
    _folder_bytes[folder] = size + len(data)


def open_partial(folder: Path, tool: str, call: str, limit: int) -> OutputFile:
    """Make the file of a call's output, which bears the name of the call until that has a result.
    `folder` is the session's. Raises OSError."""
    place = folder / OFFLOADED
    make_private_folder(place)
    name = f"{datetime.now():%Y%m%d_%H%M%S}_{tool}_{os.urandom(4).hex()}{_partial_end(call)}"
    return OutputFile(place / name, limit)


def find_partial(folder: Path, call: str) -> Path | None:
    """Return the newest file of the output of a call that has no result; None for none."""
    return max((folder / OFFLOADED).glob(f"*{_partial_end(call)}"), default=None)


def _partial_end(call: str) -> str:
    digest = hashlib.sha256(call.encode("utf-8", "replace")).hexdigest()
    return f"_{digest[:_CALL_CHARS]}.partial.md"


def write_archive_file(path: Path, text: str) -> None:
    """Put a summary or FILES_NAME in place. Raises RecordError, with the old file as it was. All of
    them are written through one part file, so that a kill leaves one at most, for the next one to
    write over: the summary of a task that has ended is never written again."""
    try:
        make_private_folder(path.parent)
        with replacing(path, part_name=f"{SUMMARY_NAME}.part") as file:
            file.write(f"{text}\n".encode("utf-8", "replace"))
    except OSError as error:
        raise RecordError(
            f"cannot write {path}: {error.strerror}", hint="Free the disk, then go on."
        ) from error
