"""Read the file of a recorded session as rows. Gzip is unpacked. JSON lines are read one by one, so
that a large file needs little memory; a JSON object that spans lines is one row.
"""

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

from ....api.base import UsageError
from ....api.text import JsonObject, parse_json

_GZIP, _BOM = b"\x1f\x8b", b"\xef\xbb\xbf"
_NO_OBJECT = "its JSON is of type {}, not an object"
_HEAD_BYTES = 8_192  # bytes of a file that are checked for binary content


class RecordingFile:
    """An unpacked file. Its methods raise UsageError if it cannot be read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.skipped = 0  # lines that are not rows
        self.bad_line = 0  # number of the first skipped line, 0 for none
        self.found = "it is empty"  # why the file has no rows, if it has none
        self._may_be_document: bool | None = None  # the first line begins a multi-line JSON value

    def lines(self) -> Iterator[JsonObject]:
        """Yield the rows of JSON lines. An invalid last line without a newline is not counted as
        skipped, because it may have been cut off.
        """
        with self._opened() as file:
            if b"\0" in file.peek(_HEAD_BYTES)[:_HEAD_BYTES]:
                self.found = "it is not text"
                return
            for number, line in enumerate(file, 1):
                if not (text := _text(line)):
                    continue
                try:
                    row = parse_json(text)
                except ValueError as error:
                    if self._may_be_document is None:
                        self._may_be_document = text[0] in "{["
                    why = getattr(error, "msg", error)  # without the column
                    self._skip(number, line, f"it is not JSON (line {number}: {why})")
                    continue
                self._may_be_document = bool(self._may_be_document)
                if isinstance(row, dict):
                    yield row
                else:
                    self._skip(number, line, _NO_OBJECT.format(type(row).__name__))

    def document(self) -> Iterator[JsonObject]:
        """Yield the whole file as one JSON object, if `lines` found that it may be one."""
        if not self._may_be_document:
            return
        with self._opened() as file:
            text = _text(file.read())
        try:
            row = parse_json(text)
        except ValueError as error:
            self.found = f"it is not JSON ({error})"
            return
        self.skipped = self.bad_line = 0
        if isinstance(row, dict):
            yield row
        else:
            self.found = _NO_OBJECT.format(type(row).__name__)

    def _skip(self, number: int, line: bytes, why: str) -> None:
        self.found = why
        if line.endswith(b"\n"):  # else it may be cut off
            self.skipped += 1
            self.bad_line = self.bad_line or number

    @contextmanager
    def _opened(self) -> Iterator[BufferedReader | gzip.GzipFile]:
        try:
            if self.path.exists() and not self.path.is_file():
                raise _unreadable(self.path, "it is a folder or a special file")
            with self.path.open("rb") as raw:
                packed = raw.peek(2).startswith(_GZIP)
                yield gzip.GzipFile(fileobj=raw) if packed else raw
        except (OSError, EOFError, zlib.error) as error:
            raise _unreadable(self.path, getattr(error, "strerror", None) or str(error)) from error


def _unreadable(path: Path, why: str) -> UsageError:
    return UsageError(
        f"{path} cannot be read: {why}",
        hint="Give a session file; if it is cut off or damaged, give a complete copy.",
    )


def _text(data: bytes) -> str:
    return data.removeprefix(_BOM).decode("utf-8", "replace").strip()


def newest_branch(rows: list[JsonObject], id: str, parent: str) -> list[JsonObject]:
    """Return the rows from the root to the last row; `id` and `parent` are names of fields. Parents
    come before their children. If a parent is not named or missing, the previous row is used.
    """
    place = {row[id]: at for at, row in enumerate(rows) if isinstance(row.get(id), str)}
    at, branch = len(rows) - 1, []
    while at >= 0:
        branch.append(rows[at])
        named = rows[at].get(parent, "")
        if named is None:
            break
        before = place.get(named, at - 1) if isinstance(named, str) else at - 1
        at = before if before < at else at - 1
    return branch[::-1]
