"""The archive: files in the session's folder with content that left the context.

`offloaded/` contains texts too large to send. `summary.md` is the newest summary.
`session-summary-<seq>.md` is the summary of the task that began with entry <seq>. `files.md` lists
every changed file when the summary has too few rows for them. (`conversation.py` keeps the whole
conversation.)
"""

import errno
import hashlib
import os
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from ...tools.system.capture import OutputFile, spare_bytes
from ...tools.system.files import make_private_folder, replacing
from ...tools.text import strings_in
from ..errors import RecordError
from ..lazy import regex

SUMMARY_NAME = "summary.md"
TASK_SUMMARY_PREFIX = "session-summary-"  # of the newest summary of each task
FILES_NAME = "files.md"
OFFLOADED = "offloaded"  # the folder
IMAGE_NAME_CHARS = 32  # of a digest
# Limit of `offloaded/` in one session. It is exceeded only while the disk has spare space.
MAX_OFFLOADED_BYTES = 1 << 30
_CALL_CHARS = 12  # of the digest of a call's id

_folder_bytes: dict[Path, int] = {}  # only this process writes to these folders


def offload(path: Path, text: str) -> None:
    """Write a text to a new file in `offloaded/`. Raises OSError, also when the folder is full."""
    _offload(path, text.encode("utf-8", "surrogatepass"))


def offload_image(folder: Path, data: bytes, suffix: str) -> str:
    """Save an image once in `offloaded/` of the session in `folder`, named by its content. Return
    its path relative to the session's folder. Raises OSError, also when the folder is full.
    """
    name = f"{OFFLOADED}/{hashlib.sha256(data).hexdigest()[:IMAGE_NAME_CHARS]}.{suffix}"
    path = folder / name
    if path.exists() and path.stat().st_size != len(data):  # left incomplete by a killed process
        path.unlink()
    if not path.exists():
        _offload(path, data)
    return name


def _offload(path: Path, data: bytes) -> None:
    folder = path.parent
    make_private_folder(folder)
    size = _folder_bytes.get(folder, MAX_OFFLOADED_BYTES)
    if size >= MAX_OFFLOADED_BYTES:  # not counted yet, or files may have been deleted
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
    except OSError:  # a partial file would look complete
        path.unlink(missing_ok=True)
        raise
    _folder_bytes[folder] = size + len(data)


def open_partial(folder: Path, tool: str, call: str, limit: int) -> OutputFile:
    """Create the output file of a running call. `folder` is the session's folder. The file name
    contains a digest of the call's ID until the call has a result. Raises OSError.
    """
    place = folder / OFFLOADED
    make_private_folder(place)
    name = f"{datetime.now():%Y%m%d_%H%M%S}_{tool}_{os.urandom(4).hex()}{_partial_end(call)}"
    return OutputFile(place / name, limit)


def find_partial(folder: Path, call: str) -> Path | None:
    """Return the newest output file of a call without a result, or None."""
    return max((folder / OFFLOADED).glob(f"*{_partial_end(call)}"), default=None)


def _partial_end(call: str) -> str:
    digest = hashlib.sha256(call.encode("utf-8", "replace")).hexdigest()
    return f"_{digest[:_CALL_CHARS]}.partial.md"


def write_archive_file(path: Path, text: str) -> None:
    """Replace a summary file or `files.md`. Raises RecordError and leaves the old file unchanged on
    failure.

    All these files are written through the same part file. A killed process therefore leaves at
    most one part file, which the next write replaces. With a part file per task, a part file could
    remain, because the summary of a finished task is not written again.
    """
    try:
        make_private_folder(path.parent)
        with replacing(path, part_name=f"{SUMMARY_NAME}.part") as file:
            file.write(f"{text}\n".encode("utf-8", "replace"))
    except OSError as error:
        raise RecordError(
            f"cannot write {path}: {error.strerror}", hint="Free disk space, then continue."
        ) from error


SERVER = "ctxagent"  # name of our MCP server
# Key in the details of a result that gives back recorded text: the refs and files. The result is
# not moved to a file again.
RECALLED = "recalled"
_PATH_CHARS = r"[^\s'\"`;|&<>()]"
_FILE = regex(
    rf"{_PATH_CHARS}*sessions/{_PATH_CHARS}+/{OFFLOADED}(?:/{_PATH_CHARS}*)?"
    rf"|\b{OFFLOADED}/(?:\d{{8}}_\d{{6}}_\w+|result)_\d+\.md"
)
_REF = regex(r"(?:[\w.-]+(?:/agents/[\w.-]+)*)?#\d+")
_ANSWER = regex(r"\[([\w.-]+(?:/agents/[\w.-]+)*#\d+)\]\n")  # first line of an answer of `recall`
_WORD_ENDS = regex(r"[^a-z0-9]+")


def is_of_our_server(tool: str) -> bool:
    """Return True if a client's name of a tool includes the name of our server."""
    return SERVER in _WORD_ENDS.split(tool.lower())


def refs_in(tool: str, given: Mapping[str, Any]) -> list[str]:
    """Return the ref that a call of `recall` names, or the tool if it is another one of our
    server; [] for any other call.
    """
    ref, is_ours = str(given.get("ref", "")).strip(), is_of_our_server(tool)
    if ref and (is_ours or _REF.fullmatch(ref)):
        return [ref]
    return [tool] if is_ours else []


def recorded_sources(tool: str, given: Mapping[str, Any], text: str = "") -> list[str]:
    """Return the refs and files whose recorded text a call gives back; [] if it gives back none.
    `text` is its result.
    """
    files = [file for each in strings_in(given) for file in _FILE.findall(each)]
    answered = _ANSWER.match(text)
    return files or refs_in(tool, given) or ([answered[1]] if answered else [])
