"""Read the raw lines of a log, and recover entries from damaged lines.

A damaged line may still contain an entry: between NUL bytes, with some invalid UTF-8, cut off after
its first fields, or inside another line. Recovered values are never guessed: each field is complete
or left out.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...api.base import SessionError, dataclass, regex
from ...api.context import THINKING
from ...api.files import open_kept
from ...api.record import VERSION, Assistant, Entry, decode, encode_line, parse_entry

_HEAD = regex(r'\{"v": ?\d{1,9}, ?"seq": ?\d{1,18},')
_PLAIN = regex(rb'\{"v": (\d{1,9}), "seq": \d{1,18},')
# The field that gives the origin of an entry. Without it, the default could be wrong.
_OWNER_FIELDS = {"user": "source", "assistant": "purpose"}
# Defaults for fields that a recovered reply may lack.
_REPLACEABLE: dict[str, Any] = {"usage": {}, "stop_reason": None, "model": ""}


@dataclass(frozen=True, slots=True)
class RawLine:
    """One raw line of a log on disk."""

    number: int
    offset: int
    raw: bytes
    entries: tuple[Entry, ...]  # its entry, or the recovered entries
    reason: str = ""  # why the line is damaged, "" if it is not
    canonical: bool = True  # False if the log writes it differently: text searches may miss it
    version: int = VERSION


def read_lines(path: Path) -> Iterator[RawLine]:
    """Yield the lines of a log. Raises SessionError if it cannot be read."""
    offset = 0
    try:
        with open_kept(path) as file:
            for number, raw in enumerate(file, 1):
                yield _line(number, offset, raw)
                offset += len(raw)
    except OSError as error:
        raise SessionError(f"cannot read the log {path}: {error.strerror}") from error


def _line(number: int, offset: int, raw: bytes) -> RawLine:
    try:
        entry = parse_entry(raw)
    except ValueError as error:
        return RawLine(number, offset, raw, _salvaged(raw), _reason(raw, error))
    if not raw.endswith(b"\n"):
        reason = "only its line end is missing"
        return RawLine(number, offset, raw, (entry,), reason)
    head = _PLAIN.match(raw)
    version = int(head[1]) if head else VERSION
    return RawLine(number, offset, raw, (entry,), "", head is not None, version)


def _reason(raw: bytes, error: ValueError) -> str:
    """Return the reason why a line is not an entry, for display."""
    if nuls := raw.count(b"\0"):
        return f"{nuls:,} NUL bytes in it, probably after a power loss"
    if not raw.strip():
        return "it is empty"
    if not raw.endswith(b"\n"):
        return f"cut off after {len(raw):,} bytes"
    if isinstance(error, UnicodeDecodeError):
        return f"invalid UTF-8 from byte {error.start:,} on"
    if isinstance(error, json.JSONDecodeError):
        return f"not JSON: {error.msg} at character {error.pos:,} of {len(raw):,}"
    return f"not an entry: {error}"


def _salvaged(raw: bytes) -> tuple[Entry, ...]:
    """Return the entries recovered from a damaged line. A changed entry loses its thinking, because
    a server accepts only the exact bytes.
    """
    text = raw.decode("utf-8", "replace").replace("\0", "")
    starts = [found.start() for found in _HEAD.finditer(text)] or [0]
    pieces = (text[a:b] for a, b in zip(starts, [*starts[1:], len(text)], strict=True))
    entries = (_entry(_fields(piece)) for piece in pieces)
    return tuple(
        entry if is_written(entry, raw) else without_thinking(entry) for entry in entries if entry
    )


def is_written(entry: Entry, raw: bytes) -> bool:
    """Return True if some bytes contain an entry exactly as the log writes it."""
    return encode_line(entry).strip() in raw


def without_thinking(entry: Entry) -> Entry:
    if not isinstance(entry, Assistant):
        return entry
    kept = [block for block in entry.content if block.get("type") not in THINKING]
    return replace(entry, content=kept)


def has_thinking(entry: Entry) -> bool:
    return isinstance(entry, Assistant) and without_thinking(entry) != entry


def _fields(text: str) -> dict[str, Any]:
    """Return the complete fields of a JSON object's text, up to the first incomplete one."""
    decoder = json.JSONDecoder()
    found: dict[str, Any] = {}
    place = text.find("{") + 1
    try:
        while place:
            name, place = decoder.raw_decode(text, _skip(text, place, " \t\r\n"))
            place = _skip(text, place, " \t\r\n:")
            value, place = decoder.raw_decode(text, place)
            if not isinstance(name, str) or (place == len(text) and isinstance(value, float | int)):
                break  # a number at the end of the text may be cut off
            found[name] = value
            place = _skip(text, place, " \t\r\n,")
    except (ValueError, RecursionError):
        pass
    return found


def _skip(text: str, place: int, characters: str) -> int:
    while place < len(text) and text[place] in characters:
        place += 1
    return place


def _entry(fields: dict[str, Any]) -> Entry | None:
    """Return the entry of these fields, without one invalid field if necessary. Return None if that
    fails or if the entry could be mistaken for a different one.
    """
    kind = fields.get("kind")
    if not isinstance(kind, str) or _OWNER_FIELDS.get(kind, "kind") not in fields:
        return None
    defaults = _REPLACEABLE if kind == Assistant.kind else {}
    for name in ("", *fields):
        try:
            return decode({**defaults, **{k: v for k, v in fields.items() if k != name}})
        except (ValueError, RecursionError):
            continue
    return None
