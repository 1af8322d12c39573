"""Hits: a query put to the index in steps, and what matches it read again from the logs."""

import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ..entries import Assistant, Entry, ToolResult
from ..lines import backwards
from ..log import NAME as LOG
from ..log import parse_line
from .pieces import PIECE, searchable, spaced

EXCERPT = 300  # characters at most

_MOST_WORDS = 32  # of a query
_WEIGHT = 3.0  # of the person's words and of errors, relative to any other text
_CANDIDATES = 30  # entries at least of which the newest of the best are taken
_PIECES = 1_000  # looked at for them: a long text has many
_BACK = 64  # lines before a result in which its call is looked for
_NEAR = 200  # characters within which words stand together
_MATCHES = 2_000  # looked at in one piece


@dataclass(frozen=True, slots=True)
class Hit:
    """An entry that was found.

    `session` is the id of its session, or `ID/agents/ID` for a subagent's; `tool` the tool whose
    result it is, or those that a reply calls. `excerpt` are the lines around the match as they
    stand; `offset` is where they begin in the entry's whole text, in characters.
    """

    session: str
    seq: int
    kind: str
    tool: str
    at: str
    excerpt: str
    offset: int = 0
    is_error: bool = False


def words_of(query: str) -> list[str]:
    """The words of a query that can be looked for: those with a letter or a digit in them."""
    return [word for word in query.split() if any(map(str.isalnum, word))][:_MOST_WORDS]


def hits(
    db: sqlite3.Connection, folder: Path, words: Sequence[str], logs: Mapping[int, str], limit: int
) -> list[Hit]:
    """Entries of these logs (names by id; `folder` holds them), the best first."""
    found: dict[tuple[object, ...], Hit] = {}  # a copied session has the same entries again
    looked: set[tuple[int, int]] = set()
    for match in _queries(words):
        for log, offset, start in _ranked(db, match, logs, limit):
            if len(found) == limit:
                return list(found.values())
            if (log, offset) not in looked:
                looked.add((log, offset))
                hit = _hit(folder, logs[log], offset, start, words)
                if hit is not None:
                    found.setdefault((hit.seq, hit.at, hit.kind, hit.excerpt), hit)
    if not found:
        parts = dict.fromkeys(part for word in words for part in re.findall(r"\w+", word))
        last = " OR ".join(f"{_quoted(part)} *" for part in [*parts][:_MOST_WORDS])
        places = _ranked(db, last, logs, limit)[:limit] if last else []
        read = (_hit(folder, logs[log], offset, start, words) for log, offset, start in places)
        return [hit for hit in read if hit is not None]
    return list(found.values())


def _queries(words: Sequence[str]) -> Iterator[str]:
    """What to ask FTS5 for, the strictest first."""
    quoted = [_quoted(word) for word in dict.fromkeys(words)]
    if len(words) > 1:
        yield _quoted(" ".join(words))
        yield " AND ".join(quoted)
    yield " OR ".join(quoted)


def _quoted(words: str) -> str:
    """A phrase: in quotes nothing is syntax."""
    return '"' + re.sub(r'["\0]', " ", spaced(words)) + '"'


def _ranked(
    db: sqlite3.Connection, match: str, logs: Mapping[int, str], limit: int
) -> list[tuple[int, int, int]]:
    """The log, the offset of the line and the start of the piece of what matches, the best first.
    Among those that are nearly as good the newest: ids of sessions sort by time."""
    rows = db.execute(
        f"""SELECT words.rowid, bm25(words, {_WEIGHT}, 1.0) AS score FROM words
        WHERE words MATCH ? AND (words.rowid >> 32) IN ({", ".join(map(str, logs))})
        ORDER BY score LIMIT {_PIECES}""",
        (match,),
    ).fetchall()
    best = rows[0][1] if rows else 0
    places: dict[tuple[int, int], int] = {}
    order = []
    for row, score in rows:
        log = row >> 32
        offset, start = db.execute(
            "SELECT offset, start FROM pieces WHERE id = ?", (row,)
        ).fetchone()
        if places.setdefault((log, offset), start) == start:
            order.append((round(10 * score / best), logs[log], offset, start, log))
        if len(places) >= max(_CANDIDATES, 2 * limit):
            break
    order.sort(reverse=True)
    return [(log, offset, start) for _, _, offset, start, log in order]


def _hit(folder: Path, session: str, offset: int, start: int, words: Sequence[str]) -> Hit | None:
    """What stands at an offset of a log, read again; None when it cannot be."""
    try:
        with (folder / session / LOG).open("rb") as file:
            file.seek(offset)
            entry = parse_line(file.readline())
            if entry is None:
                return None
            tool = _tool(file, offset, entry)
    except OSError:
        return None
    piece = searchable(entry, folder / session)[start : start + PIECE]
    excerpt, at = _excerpt(piece, words)
    failed = isinstance(entry, ToolResult) and entry.is_error
    return Hit(session, entry.seq, entry.kind, tool, entry.at, excerpt, start + at, failed)


def _tool(file: BinaryIO, offset: int, entry: Entry) -> str:
    """The tool whose result an entry is, or the tools that it calls."""
    if isinstance(entry, Assistant):
        return ", ".join(str(b.get("name")) for b in entry.content if b.get("type") == "tool_use")
    if not isinstance(entry, ToolResult):
        return ""
    for _, (_, line) in zip(range(_BACK), backwards(file, offset), strict=False):
        call = parse_line(line) if b'"tool_use"' in line else None
        for block in call.content if isinstance(call, Assistant) else ():
            if block.get("id") == entry.tool_use_id:
                return str(block.get("name"))
    return ""


def _excerpt(text: str, words: Sequence[str]) -> tuple[str, int]:
    """The lines in which the words stand closest together, and where they begin."""
    start, end = _densest(text, words)
    left = max(text.rfind("\n", 0, start) + 1, start - (EXCERPT - _NEAR) // 2)
    right = _line_end(text, end)
    if right - left > EXCERPT:
        return text[left : left + EXCERPT], left
    before = text.rfind("\n", 0, max(left - 1, 0)) + 1
    if text[left - 1 : left] == "\n" and right - before <= EXCERPT:
        left = before
    while right < len(text) and _line_end(text, right + 1) - left <= EXCERPT:
        right = _line_end(text, right + 1)
    return text[left:right], left


def _line_end(text: str, at: int) -> int:
    found = text.find("\n", at)
    return len(text) if found < 0 else found


def _densest(text: str, words: Sequence[str]) -> tuple[int, int]:
    """Where as many as possible of the words stand together, longer ones counting for more."""
    wanted = {part for word in words for part in (word, *re.findall(r"\w+", word))}
    one = re.compile("|".join(map(re.escape, sorted(wanted, key=len, reverse=True))), re.IGNORECASE)
    found = zip(range(_MATCHES), one.finditer(text), strict=False)
    places = [(match.start(), match.end(), match[0].lower()) for _, match in found]
    best, span = 0, (0, 0)
    most = sum(map(len, {word for _, _, word in places}))
    for number, (start, end, _) in enumerate(places):
        if best == most:
            break
        together: dict[str, int] = {}
        for _, stop, word in places[number : number + _NEAR]:
            if stop - start > _NEAR and together:
                break
            together[word], end = len(word), stop
        if sum(together.values()) > best:
            best, span = sum(together.values()), (start, min(end, start + _NEAR))
    return span
