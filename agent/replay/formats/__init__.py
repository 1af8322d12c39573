"""Readers of recorded sessions. The agent that wrote a file is recognized by the content, not by
the name.
"""

from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from ...errors import UsageError
from ...session.log import LOG_NAME
from ..recording import Recording
from . import claude, codex, copilot, ctxagent, gemini, opencode, pi, sweagent
from .builder import TranscriptBuilder
from .fields import JsonObject
from .foreign import ForeignFormat
from .reader import RecordingFile

# No two of these recognize the same row.
_READERS: dict[str, Any] = {
    "claude-code": claude,
    "codex": codex,
    "pi": pi,
    "opencode": opencode,
    "gemini-cli": gemini,
    "copilot": copilot,
    "swe-agent": sweagent,
    "ctxagent": ctxagent,
}
FORMATS = tuple(_READERS)
_MAX_LISTED = 8  # keys or kinds of a file that is none of these
_MAX_LISTED_CHARS = 40  # of one of them


def add_format(name: str, reader: Any) -> None:
    """Add a format of an extension. `reader` has the functions `recognizes` and `read`, as `pi` in
    this package."""
    _READERS.setdefault(name, ForeignFormat(name, reader))


def load_recording(path: Path) -> Recording:
    """Read the session in a file, plain or gzip, of JSON lines or one JSON object.

    A bad line or item is counted and skipped. Raises UsageError, which says what was found instead,
    for a file that cannot be read or is none of FORMATS.
    """
    source = RecordingFile(path)
    unknown = _UnknownRows()
    for rows in (source.lines(), source.document()):
        for row in rows:
            format = next((name for name, each in _READERS.items() if each.recognizes(row)), "")
            if format:
                return _read(source, format, chain([row], rows))
            unknown.add(row)
    raise UsageError(
        f"{path} is no recorded session that is known here: {unknown.text() or source.found}",
        hint=f"Give a file that one of these agents wrote itself, plain or gzip, and no export to "
        f"Markdown or HTML: {', '.join(FORMATS)}.",
    )


def _read(source: RecordingFile, format: str, rows: Iterable[JsonObject]) -> Recording:
    read: Callable[[Iterable[JsonObject]], TranscriptBuilder] = _READERS[format].read
    if format == "ctxagent":
        read = partial(ctxagent.read, folder=source.path.parent)
    transcript = read(rows)
    # All our logs have the same file name; their folder is named after the session.
    is_ours = source.path.name == LOG_NAME
    name = source.path.absolute().parent.name if is_ours else source.path.name
    recording = transcript.build(name, format, source.skipped)
    if recording.steps:
        return recording
    raise UsageError(
        f"{source.path} is a session of {format} without a message in it",
        hint="There is nothing to replay; leave it out.",
    )


class _UnknownRows:
    """The keys and kinds of rows that no reader recognizes."""

    def __init__(self) -> None:
        self._kinds: dict[str, None] = {}
        self._keys: dict[str, None] = {}

    def add(self, row: JsonObject) -> None:
        if isinstance(kind := row.get("type"), str) and len(self._kinds) < _MAX_LISTED:
            self._kinds.setdefault(kind[:_MAX_LISTED_CHARS])
        for key in list(row)[: _MAX_LISTED - len(self._keys)]:
            self._keys.setdefault(key[:_MAX_LISTED_CHARS])

    def text(self) -> str:
        kinds, keys = (", ".join(map(repr, names)) for names in (self._kinds, self._keys))
        if not keys:
            return ""
        return f"JSON with the keys {keys}" + (f", of type {kinds}" if kinds else "")
