"""Recorded sessions, read: which agent wrote a file is told from what it holds, not from its name.

`load` gives the `Recording` of a file, plain or gzip, of JSON lines or one JSON object, or raises
UsageError. A file that can be read at all never fails for one bad line or item: those are counted.
"""

from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain
from pathlib import Path
from types import ModuleType

from ...errors import UsageError
from ...record.log import NAME
from ..recording import Recording
from . import claude, codex, copilot, ctxagent, gemini, opencode, pi, sweagent
from .parts import Row
from .source import Source
from .transcript import Transcript

# A row is asked for in this order; no two of these recognise the same one.
_READERS: dict[str, ModuleType] = {
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
_MOST_NAMED = 8  # keys or kinds of a file that is none of these
_MOST_SHOWN = 40  # characters of one of them


def load(path: Path) -> Recording:
    """The session that a file holds. Raises UsageError, saying what was found instead, for a file
    that cannot be read or is none of FORMATS."""
    source = Source(path)
    others = _Others()
    for rows in (source.lines(), source.document()):
        for row in rows:
            if format := _format(row):
                return _read(source, format, chain([row], rows))
            others.add(row)
    raise UsageError(
        f"{path} is no recorded session that is known here: {others.told() or source.found}",
        hint=f"Those of {', '.join(FORMATS[:-1])} and {FORMATS[-1]} can be read: the file that the "
        "agent itself wrote, plain or gzip, no export to Markdown or HTML.",
    )


def _format(row: Row) -> str:
    """The format whose reader takes a row, "" for none."""
    return next((format for format, reader in _READERS.items() if reader.recognises(row)), "")


def _read(source: Source, format: str, rows: Iterable[Row]) -> Recording:
    read: Callable[[Iterable[Row]], Transcript] = _READERS[format].read
    if format == "ctxagent":
        read = partial(ctxagent.read, folder=source.path.parent)
    transcript = read(rows)
    ours = source.path.name == NAME  # the name of all of them; the folder's is the session's
    name = source.path.absolute().parent.name if ours else source.path.name
    recording = transcript.recording(name, format, source.skipped)
    if recording.steps:
        return recording
    raise UsageError(
        f"{source.path} is a session of {format} without a message in it",
        hint="There is nothing to replay; leave it out.",
    )


class _Others:
    """Rows that nobody recognises: their keys and kinds."""

    def __init__(self) -> None:
        self._kinds: dict[str, None] = {}
        self._keys: dict[str, None] = {}

    def add(self, row: Row) -> None:
        if isinstance(kind := row.get("type"), str) and len(self._kinds) < _MOST_NAMED:
            self._kinds.setdefault(kind[:_MOST_SHOWN])
        for key in list(row)[: _MOST_NAMED - len(self._keys)]:
            self._keys.setdefault(key[:_MOST_SHOWN])

    def told(self) -> str:
        kinds, keys = (", ".join(map(repr, names)) for names in (self._kinds, self._keys))
        if not keys:
            return ""
        return f"JSON with the keys {keys}" + (f", of type {kinds}" if kinds else "")
