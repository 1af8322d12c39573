"""Rows of the index: log lines, read from either end, with their text split into pieces."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from ...lazy import regex
from ..entries import Assistant, Entry, Pin, ToolResult, User
from ..given_back import RECALLED
from ..log import lines_backwards, try_parse_entry
from ..store import entry_text
from .large_texts import is_large

PIECE_CHARS = 8_000  # characters of text in one row
OVERLAP_CHARS = 100  # characters that neighbouring rows share
LARGE = -1  # start in the single row of a text that is too large for the index

_UNSPACED = regex(r"([\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af])")  # scripts without spaces


def unindexed_lines(file: BinaryIO, first: int, done: int) -> Iterator[tuple[int, bytes]]:
    """Yield whole lines with their offsets: first those from `done` on, then those before `first`,
    backwards.
    """
    file.seek(done)
    for line in file:
        if not line.endswith(b"\n"):
            break  # torn, or still being written
        yield done, line
        done += len(line)
    yield from lines_backwards(file, first)


def index_pieces(line: bytes, folder: Path) -> Iterator[tuple[int, str, str]]:
    """Yield the rows of a line as (start of the piece, first column, second column).

    The piece is in one of the columns. The first column has the higher weight: it contains the
    user's messages, pins and errors. A text that is too large gives one row that starts at LARGE.
    """
    entry = try_parse_entry(line)
    if entry is None:
        return
    if is_large(entry, folder):
        yield LARGE, "", ""
        return
    text = searchable_text(entry, folder)
    weighty = isinstance(entry, Pin) or (isinstance(entry, User) and entry.source == "person")
    weighty = weighty or (isinstance(entry, ToolResult) and entry.is_error)
    for start in range(0, max(len(text) - OVERLAP_CHARS, 1), PIECE_CHARS - OVERLAP_CHARS):
        if piece := for_tokenizer(text[start : start + PIECE_CHARS]):
            yield (start, piece, "") if weighty else (start, "", piece)


def searchable_text(entry: Entry, folder: Path) -> str:
    """Return the text to index for an entry. Recall's results and the engine's internal replies are
    left out.
    """
    if isinstance(entry, Assistant):
        if entry.purpose != "turn":
            return ""
        entry = replace(entry, content=[b for b in entry.content if b.get("name") != "Recall"])
    details = entry.details if isinstance(entry, ToolResult) else None
    if isinstance(details, dict) and RECALLED in details:
        return ""
    try:
        return entry_text(entry, folder) or ""
    except RecursionError:  # arguments nested too deep to be written out
        return ""


def for_tokenizer(text: str) -> str:
    """Return a text in a form for SQLite's tokenizer. In scripts without spaces, each character
    becomes a word, so a word becomes a phrase.
    """
    if text.isascii():
        return text
    return _UNSPACED.sub(r" \1 ", text).encode("utf-8", "replace").decode()
