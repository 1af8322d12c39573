"""Pieces: a log read for the index, line by line from either side, and the text of each line cut
into rows of it."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from ..entries import Assistant, Entry, Pin, ToolResult, User
from ..lines import backwards
from ..log import parse_line
from ..sessions import text_of

PIECE = 8_000  # characters of text in one row; neighbours share OVERLAP of them
OVERLAP = 100

_UNSPACED = re.compile(r"([\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af])")  # scripts without spaces


def lines(file: BinaryIO, first: int, done: int) -> Iterator[tuple[int, bytes]]:
    """Whole lines with their offsets: those after `done`, then those before `first`, backwards."""
    file.seek(done)
    for line in file:
        if not line.endswith(b"\n"):
            break  # torn, or still being written
        yield done, line
        done += len(line)
    yield from backwards(file, first)


def pieces(line: bytes, folder: Path) -> Iterator[tuple[int, str, str]]:
    """Rows of the index for a line: where a piece of its text starts, and the piece, either among
    what weighs more (the person's words, errors) or in the rest."""
    entry = parse_line(line)
    if entry is None:
        return
    text = searchable(entry, folder)
    weighty = isinstance(entry, Pin) or (isinstance(entry, User) and entry.source == "person")
    weighty = weighty or (isinstance(entry, ToolResult) and entry.is_error)
    for start in range(0, max(len(text) - OVERLAP, 1), PIECE - OVERLAP):
        if piece := spaced(text[start : start + PIECE]):
            yield (start, piece, "") if weighty else (start, "", piece)


def searchable(entry: Entry, folder: Path) -> str:
    """What is to be found of an entry. What Recall brought back stands elsewhere already, and so do
    replies for the engine's own use."""
    if isinstance(entry, Assistant):
        if entry.purpose != "turn":
            return ""
        entry = replace(entry, content=[b for b in entry.content if b.get("name") != "Recall"])
    details = entry.details if isinstance(entry, ToolResult) else None
    if isinstance(details, dict) and "recalled" in details:
        return ""
    try:
        return text_of(entry, folder) or ""
    except RecursionError:  # arguments nested too deep to be written out
        return ""


def spaced(text: str) -> str:
    """Text as SQLite can take it. Where words have no spaces between them, each character is one,
    and a word is a phrase of them."""
    if text.isascii():
        return text
    return _UNSPACED.sub(r" \1 ", text).encode("utf-8", "replace").decode()
