"""Marks of files that the agent wrote after text from outside had entered the context, such as a
web page.

`outside.jsonl` in the state folder has one row for each mark, newest last: the path, the SHA-256 of
the content, and the source of the text. A row without a source removes the mark. A mark counts for
its path, and for its content at any path: a file can be renamed, copied, linked or checked out
elsewhere before an agent reads it as instructions.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from ...tools.system.files import make_private_folder, open_kept, private_opener, replace_file

MARKS_FILE, LOCK_FILE = "outside.jsonl", "outside.lock"
MAX_MARKS_BYTES = 4_000_000  # beyond, the oldest half of the rows is removed
MAX_SOURCE_CHARS = 300
MAX_HASHED_BYTES = 10_000_000  # the mark of a larger file counts for its path alone
MIN_MARKED_BYTES = 8  # a shorter content says nothing, and many files have it


def mark_outside(path: Path, source: str, state_dir: Path, data: bytes | None = None) -> None:
    """Mark a file as written after text from `source` was read. `data` is its content, by default
    what the file has now. Raises OSError.
    """
    _append([_row(path, source[:MAX_SOURCE_CHARS], data)], state_dir)


def outside_mark(path: Path, state_dir: Path) -> str:
    """Return a short description of the mark of a file or its content, or "" if it has none."""
    marks = _marks(state_dir)
    if not marks:
        return ""
    row = _row(path, "", None)
    keys = (row["path"], str(path.resolve()), row["sha256"])
    source = next(filter(None, map(marks.get, filter(None, keys))), "")
    return f"the agent wrote it after it had read {source}" if source else ""


def marked_files(state_dir: Path) -> list[Path]:
    """Return the files that have a mark, in all projects."""
    marks = _marks(state_dir)
    return [Path(key) for key, source in marks.items() if source and key[:1] == "/"]


def remove_mark(path: Path, state_dir: Path, data: bytes | None = None) -> None:
    """Remove the mark of a file, and that of its accepted content. Raises OSError."""
    marks, row = _marks(state_dir), _row(path, "", data or b"")
    if any(marks.get(row[kind]) for kind in ("path", "sha256")):
        _append([row], state_dir)


def _row(path: Path, source: str, data: bytes | None) -> dict[str, str]:
    digest = ""
    if data is None:
        with suppress(OSError), open_kept(path.resolve()) as file:
            if MIN_MARKED_BYTES <= os.fstat(file.fileno()).st_size <= MAX_HASHED_BYTES:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
    elif len(data) >= MIN_MARKED_BYTES:
        digest = hashlib.sha256(data).hexdigest()
    return {"path": str(path.parent.resolve() / path.name), "sha256": digest, "source": source}


def _append(rows: Iterable[Mapping[str, str]], state_dir: Path) -> None:
    make_private_folder(state_dir)
    with open(state_dir / LOCK_FILE, "wb", opener=private_opener) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with open(state_dir / MARKS_FILE, "ab", opener=private_opener) as file:
            file.write(b"".join(json.dumps(row).encode() + b"\n" for row in rows))
            size = file.tell()
        if size > MAX_MARKS_BYTES:
            lines = (state_dir / MARKS_FILE).read_bytes().splitlines(keepends=True)
            replace_file(state_dir / MARKS_FILE, b"".join(lines[len(lines) // 2 :]))


def _marks(state_dir: Path) -> Mapping[str, str]:
    """Return the sources by path and by digest, "" for removed marks."""
    try:
        found = (state_dir / MARKS_FILE).stat()
    except OSError:
        return {}
    return _marks_of(state_dir / MARKS_FILE, (found.st_ino, found.st_size, found.st_mtime_ns))


@lru_cache(maxsize=4)
def _marks_of(path: Path, stamp: tuple[int, ...]) -> Mapping[str, str]:
    marks = dict[str, str]()
    for line in path.read_bytes().splitlines():
        with suppress(ValueError, KeyError, TypeError):  # a line that a kill cut off
            row = json.loads(line)
            marks |= {str(row[kind]): str(row["source"]) for kind in ("path", "sha256")}
    marks.pop("", None)
    return marks
