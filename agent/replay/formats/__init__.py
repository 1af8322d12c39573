"""Readers of recorded sessions. The agent that wrote a file is recognized by the content, not by
the name.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

from ...errors import UsageError
from ..recording import Recording
from . import (
    claude,
    codex,
    copilot,
    ctxagent,
    cursor,
    droid,
    gemini,
    grok,
    hermes,
    kimi,
    opencode,
    pi,
    qwen,
    stores,
    sweagent,
    vibe,
)
from .builder import TranscriptBuilder
from .fields import JsonObject
from .foreign import ForeignFormat
from .places import guessed_format
from .reader import RecordingFile

# No two of these recognize the same row.
_READERS: dict[str, Any] = {
    "claude-code": claude,
    "codex": codex,
    "pi": pi,
    "opencode": opencode,
    "gemini-cli": gemini,
    "qwen-code": qwen,
    "kimi": kimi,
    "vibe": vibe,
    "cursor": cursor,
    "droid": droid,
    "grok": grok,
    "hermes": hermes,
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


def load_recording(path: Path, rows: int | None = None) -> Recording:
    """Read the session in a file, plain or gzip, of JSON lines or one JSON object, in a database or
    in a folder. `FILE#ID` names one of several in a database; the newest is read without. With
    `rows` only so many rows are read.

    A bad line or item is counted and skipped. Raises UsageError, which says what was found instead,
    for a file that cannot be read or is none of FORMATS.
    """
    file, session = stores.located(path)
    source = RecordingFile(file)
    unknown = _UnknownRows()
    in_store = stores.rows_of_store(file, session)
    for found in (chain(in_store, source.lines()), source.document()):
        for row in found:
            format = next((name for name, each in _READERS.items() if each.recognizes(row)), "")
            if format:
                read = islice(chain([row], found), rows)
                return _read(source, format, read, stores.name_of(file, session))
            unknown.add(row)
    why = unknown.text() or source.found
    guess = guessed_format(path)
    raise UsageError(
        f"{path} lies where {guess} keeps its sessions, but no reader knows it: {why}"
        if guess
        else f"{path} is no recorded session that is known here: {why}",
        hint=f"Give a file that one of these agents wrote itself, plain or gzip, and no export to "
        f"Markdown or HTML: {', '.join(FORMATS)}.",
    )


def _read(source: RecordingFile, format: str, rows: Iterable[JsonObject], name: str) -> Recording:
    read: Callable[[Iterable[JsonObject]], TranscriptBuilder] = _READERS[format].read
    if format == "ctxagent":
        read = partial(ctxagent.read, folder=source.path.parent)
    transcript = read(rows)
    recording = transcript.build(name, format, source.skipped)
    if recording.steps:
        return replace(recording, bad_line=source.bad_line)
    bad = f"; line {source.bad_line} cannot be read" if source.bad_line else ""
    raise UsageError(
        f"{source.path} is a session of {format} without a message in it{bad}",
        hint="There is nothing to continue; name another file.",
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
