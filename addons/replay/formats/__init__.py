"""Readers of recorded sessions. The agent that wrote a file is recognized by the content, not by
the file name.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

from ....api.base import UsageError
from ....api.recordings import ADDED_FORMATS, Recording, TranscriptBuilder
from ....api.text import JsonObject
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
_MAX_LISTED = 8  # keys or types listed for a file of unknown format
_MAX_LISTED_CHARS = 40  # of one key or type


def load_recording(path: Path, rows: int | None = None) -> Recording:
    """Return the session in a file (plain or gzip, JSON lines or one JSON object), a database or a
    folder.

    `FILE#ID` selects a session in a database; the default is the newest. `rows` limits the number
    of rows read. Invalid lines or items are counted and skipped. Raises UsageError, with a
    description of the content, if the file cannot be read or is in none of FORMATS.
    """
    file, session = stores.located(path)
    source = RecordingFile(file)
    unknown = _UnknownRows()
    in_store = stores.rows_of_store(file, session)
    for found in (chain(in_store, source.lines()), source.document()):
        for row in found:
            format = next((name for name, each in _known().items() if each.recognizes(row)), "")
            if format:
                read = islice(chain([row], found), rows)
                return _read(source, format, read, stores.name_of(file, session))
            unknown.add(row)
    why = unknown.text() or source.found
    guess = guessed_format(path)
    raise UsageError(
        f"{path} is in the folder of {guess}'s sessions, but its format is unknown: {why}"
        if guess
        else f"{path} is not a recorded session in a known format: {why}",
        hint="Give an original session file (plain or gzip) of one of these agents, not an export "
        f"to Markdown or HTML: {', '.join(FORMATS)}.",
    )


def _known() -> dict[str, Any]:
    """Return all readers by the name of the format; those of extensions come last."""
    added = {name: each for name, each in ADDED_FORMATS.items() if name not in _READERS}
    return {**_READERS, **added}


def _read(source: RecordingFile, format: str, rows: Iterable[JsonObject], name: str) -> Recording:
    read: Callable[[Iterable[JsonObject]], TranscriptBuilder] = _known()[format].read
    if format == "ctxagent":
        read = partial(ctxagent.read, folder=source.path.parent)
    transcript = read(rows)
    recording = transcript.build(name, format, source.skipped)
    if recording.steps:
        return replace(recording, bad_line=source.bad_line)
    bad = f"; line {source.bad_line} cannot be read" if source.bad_line else ""
    raise UsageError(
        f"{source.path} is a session of {format} without messages{bad}",
        hint="Give another file.",
    )


class _UnknownRows:
    """The keys and types of rows that no reader recognizes."""

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
