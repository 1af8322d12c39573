"""Run a query: ask the index in steps, read the matching entries from the logs, and search texts
that are too large for the index.
"""

import heapq
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from ....tools.base import TextPart
from ....tools.system.files import open_kept
from ....tools.system.kept_text import KeptText
from ...lazy import dataclass, regex
from ..archive import RECALLED
from ..entries import Assistant, Entry, Pin, ToolResult, User
from ..log import LOG_NAME as LOG
from ..log import lines_backwards, try_parse_entry
from ..store import entry_kept_text, entry_text

LARGE_TEXT_BYTES = 4 << 20
_MAX_WORDS = 8  # the longest words of a query
_SHORT_WORD_CHARS = 3
_TEXT_NEAR_CHARS = 500  # searched on either side of a word for the other words
_REGION_CHARS = 4_000  # returned on either side of the best place
_MAX_PLACES = 200  # of a word in one piece
_PART_CHARS = 800  # of a part of a text that matches


@dataclass(frozen=True, slots=True)
class BestPlace:
    """The place in a text that matches the words of a query best."""

    level: int  # 0: as a phrase, 1: all of them near each other, 2: some of them
    region: str  # the surrounding text
    offset: int  # start of the region in characters


def is_large(entry: Entry, folder: Path) -> bool:
    """Return True if the text of an entry is in a file that is too large for the index."""
    if not isinstance(entry, ToolResult | User) or not entry.offloaded:
        return False
    try:
        return (folder / entry.offloaded).lstat().st_size > LARGE_TEXT_BYTES
    except (OSError, ValueError):
        return False


def best_place(text: KeptText, query: Sequence[str]) -> BestPlace | None:
    """Return the place that matches the words of a query best, or None without any match."""
    words = _words(query)
    phrase = _finder(" ".join(query).lower()) if len(query) > 1 else None
    finders = [_finder(word) for word in words]
    best, best_score, before, carried = None, 0, 0, ""
    for piece in text.pieces():
        text_here = carried + piece
        low = _lower(text_here)
        begin = before - len(carried)
        if phrase and (at := next(phrase(low), -1)) >= 0:
            return _place(0, text_here, at, begin)
        score, at = _densest_part(low, words, finders)
        if score > best_score:
            is_all = score == sum(map(len, words))
            best, best_score = _place(1 if is_all else 2, text_here, at, begin), score
            if is_all and phrase is None:
                break
        before += len(piece)
        carried = text_here[-_TEXT_NEAR_CHARS:]
    return best


def best_parts(text: KeptText, query: Sequence[str], limit: int) -> list[TextPart]:
    """Return the parts of a text that have the most words of a query, in the order of the text."""
    words = _words(query)
    finders = [_finder(word) for word in words]
    found = list[tuple[int, TextPart]]()
    for part in _parts_of(text):
        low = _lower(part.text)
        score = sum(
            len(word) for word, find in zip(words, finders, strict=True) if next(find(low), -1) >= 0
        )
        if score:
            found.append((score, part))
    best = heapq.nlargest(limit, found, key=lambda each: each[0])
    return sorted((part for _, part in best), key=lambda part: part.offset)


def _parts_of(text: KeptText) -> Iterator[TextPart]:
    """Yield a text in parts of about _PART_CHARS, which end with a line if possible."""
    rest, offset = "", 0
    for piece in text.pieces():
        rest += piece
        while len(rest) > _PART_CHARS:
            end = rest.rfind("\n", _PART_CHARS // 2, _PART_CHARS) + 1 or _PART_CHARS
            yield TextPart(offset, rest[:end])
            rest, offset = rest[end:], offset + end
    if rest:
        yield TextPart(offset, rest)


def _words(query: Sequence[str]) -> list[str]:
    """Return the words to search for: the longest ones, without punctuation at their ends."""
    stripped = (re.sub(r"^\W+|\W+$", "", word.lower()) for word in query)
    words = sorted(dict.fromkeys(filter(None, stripped)), key=len, reverse=True)
    long = [word for word in words if len(word) > _SHORT_WORD_CHARS]
    return (long or words)[:_MAX_WORDS]


def _lower(text: str) -> str:
    low = text.lower()
    return low if len(low) == len(text) else text  # some letters become two and move all offsets


def _finder(word: str) -> Callable[[str], Iterator[int]]:
    """Return a function that yields the places of a word in a text, except inside other words."""
    if len(word) <= _SHORT_WORD_CHARS:  # part of many other words
        pattern = re.compile(rf"(?<!\w){re.escape(word)}(?!\w)")
        return lambda text: (match.start() for match in pattern.finditer(text))

    def find(text: str) -> Iterator[int]:
        at = text.find(word)
        while at >= 0:
            end = at + len(word)
            begins = not word[0].isalnum() or not text[at - 1 : at].isalnum()
            if begins and not (word[-1].isalnum() and text[end : end + 1].isalnum()):
                yield at
            at = text.find(word, at + 1)

    return find


def _densest_part(
    text: str, words: Sequence[str], finders: Sequence[Callable[[str], Iterator[int]]]
) -> tuple[int, int]:
    """Return a score and the best place: the score is the total length of the words found
    near it.
    """
    places = [[at for _, at in zip(range(_MAX_PLACES), find(text), strict=False)]
              for find in finders]  # fmt: skip
    rarest = min((found for found in places if found), key=len, default=[])
    best, place = 0, -1
    for at in rarest:
        score = sum(
            len(word)
            for word, found in zip(words, places, strict=True)
            if any(abs(other - at) <= _TEXT_NEAR_CHARS for other in found)
        )
        if score > best:
            best, place = score, at
    return best, place


def _place(level: int, text: str, at: int, begin: int) -> BestPlace:
    first = max(0, at - _REGION_CHARS)
    return BestPlace(level, text[first : at + _REGION_CHARS], begin + first)


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


MAX_EXCERPT_CHARS = 300

_MAX_QUERY_WORDS = 32
_QUOTATION_MARKS = '"“”„'
_SAID_WEIGHT = 3.0  # of user messages and errors, relative to other text
_MIN_CANDIDATES = 30  # entries that are ranked by score and age
_MAX_PIECES = 1_000  # read to find these entries: a long text has many pieces
_MAX_LINES_TO_CALL = 64  # lines before a result that are searched for its call
_NEAR_CHARS = 200  # maximum span of words that count as close together
_MAX_MATCHES = 2_000  # used in one piece


@dataclass(frozen=True, slots=True)
class Hit:
    """A matching entry."""

    session: str  # its ID, or `ID/agents/ID` for a subagent
    seq: int
    kind: str
    tool: str  # the tool of a result, or the tools that a reply calls
    at: str
    excerpt: str  # the lines around the match, verbatim
    offset: int = 0  # characters of the entry's whole text before the excerpt
    is_error: bool = False


def query_words(query: str) -> list[str]:
    """Return the searchable words of a query: those with a letter or a digit, without quotation
    marks.
    """
    words = (word.strip(_QUOTATION_MARKS) for word in query.split())
    return [word for word in words if any(map(str.isalnum, word))][:_MAX_QUERY_WORDS]


def find_hits(
    db: sqlite3.Connection, folder: Path, words: Sequence[str], logs: Mapping[int, str], limit: int
) -> list[Hit]:
    """Return entries of these logs that match the words, best first. `logs` maps log IDs to names
    relative to `folder`.
    """
    found: dict[tuple[object, ...], Hit] = {}  # a copied session has the same entries again
    looked: set[tuple[int, int]] = set()
    large: dict[int, list[Hit]] | None = None
    for level, match in _fts_queries(words):
        for log, offset, start in _ranked(db, match, logs, limit):
            if len(found) == limit:
                return list(found.values())
            if (log, offset) not in looked:
                looked.add((log, offset))
                hit = _hit(folder, logs[log], offset, start, words)
                if hit is not None:
                    found.setdefault(_key(hit), hit)
        if len(found) < limit:
            large = _large_hits(db, folder, words, logs) if large is None else large
            for hit in large.get(level, ())[: limit - len(found)]:
                found.setdefault(_key(hit), hit)
    if not found:
        parts = dict.fromkeys(part for word in words for part in re.findall(r"\w+", word))
        last = " OR ".join(f"{_quoted(part)} *" for part in [*parts][:_MAX_QUERY_WORDS])
        places = _ranked(db, last, logs, limit)[:limit] if last else []
        read = (_hit(folder, logs[log], offset, start, words) for log, offset, start in places)
        return [hit for hit in read if hit is not None]
    return list(found.values())


def _key(hit: Hit) -> tuple[object, ...]:
    return hit.seq, hit.at, hit.kind, hit.excerpt


def _large_hits(
    db: sqlite3.Connection, folder: Path, words: Sequence[str], logs: Mapping[int, str]
) -> dict[int, list[Hit]]:
    """Return the hits in texts too large for the index, newest first, by match level."""
    rows = db.execute("SELECT id >> 32, offset FROM pieces WHERE start = ?", (LARGE,)).fetchall()
    places = sorted(((logs[log], offset) for log, offset in rows if log in logs), reverse=True)
    found: dict[int, list[Hit]] = {}
    for session, offset in places:
        read = _entry_at(folder, session, offset)
        text = entry_kept_text(read[0], folder / session) if read else None
        place = best_place(text, words) if text else None
        if read and place:
            entry, tool = read
            excerpt, at = _excerpt(place.region, words)
            hit = _new_hit(session, entry, tool, excerpt, place.offset + at)
            found.setdefault(place.level, []).append(hit)
    return found


def _fts_queries(words: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield (match level, FTS5 query), strictest first."""
    quoted = [_quoted(word) for word in dict.fromkeys(words)]
    if len(words) > 1:
        yield 0, _quoted(" ".join(words))
        yield 1, " AND ".join(quoted)
    yield 2 if len(words) > 1 else 1, " OR ".join(quoted)


def _quoted(words: str) -> str:
    """Return a phrase for FTS5 in quotes, which disable the query syntax."""
    return '"' + re.sub(r'["\0]', " ", for_tokenizer(words)) + '"'


def _ranked(
    db: sqlite3.Connection, match: str, logs: Mapping[int, str], limit: int
) -> list[tuple[int, int, int]]:
    """Return (log, line offset, start of the piece) of each match, best first. Among nearly equal
    matches the newest come first, since session IDs sort by time.
    """
    rows = db.execute(
        f"""SELECT words.rowid, bm25(words, {_SAID_WEIGHT}, 1.0) AS score FROM words
        WHERE words MATCH ? AND (words.rowid >> 32) IN ({", ".join(map(str, logs))})
        ORDER BY score LIMIT {_MAX_PIECES}""",
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
        if len(places) >= max(_MIN_CANDIDATES, 2 * limit):
            break
    order.sort(reverse=True)
    return [(log, offset, start) for _, _, offset, start, log in order]


def _hit(folder: Path, session: str, offset: int, start: int, words: Sequence[str]) -> Hit | None:
    """Return the hit for the entry at an offset of a log, or None if it cannot be read."""
    read = _entry_at(folder, session, offset)
    if read is None:
        return None
    entry, tool = read
    piece = searchable_text(entry, folder / session)[start : start + PIECE_CHARS]
    excerpt, at = _excerpt(piece, words)
    return _new_hit(session, entry, tool, excerpt, start + at)


def _new_hit(session: str, entry: Entry, tool: str, excerpt: str, offset: int) -> Hit:
    failed = isinstance(entry, ToolResult) and entry.is_error
    return Hit(session, entry.seq, entry.kind, tool, entry.at, excerpt, offset, failed)


def _entry_at(folder: Path, session: str, offset: int) -> tuple[Entry, str] | None:
    """Return the entry at an offset of a log and its tool, or None if it cannot be read."""
    try:
        with open_kept(folder / session / LOG) as file:
            file.seek(offset)
            entry = try_parse_entry(file.readline())
            return None if entry is None else (entry, _tool(file, offset, entry))
    except OSError:
        return None


def _tool(file: BinaryIO, offset: int, entry: Entry) -> str:
    """Return the tool that produced a result, or the tools that a reply calls."""
    if isinstance(entry, Assistant):
        return ", ".join(str(b.get("name")) for b in entry.content if b.get("type") == "tool_use")
    if not isinstance(entry, ToolResult):
        return ""
    for _, (_, line) in zip(range(_MAX_LINES_TO_CALL), lines_backwards(file, offset), strict=False):
        call = try_parse_entry(line) if b'"tool_use"' in line else None
        for block in call.content if isinstance(call, Assistant) else ():
            if block.get("id") == entry.tool_use_id:
                return str(block.get("name"))
    return ""


def _excerpt(text: str, words: Sequence[str]) -> tuple[str, int]:
    """Return the lines in which the words are closest together, and their offset."""
    start, end = _densest(text, words)
    left = max(text.rfind("\n", 0, start) + 1, start - (MAX_EXCERPT_CHARS - _NEAR_CHARS) // 2)
    right = _line_end(text, end)
    if right - left > MAX_EXCERPT_CHARS:
        return text[left : left + MAX_EXCERPT_CHARS], left
    before = text.rfind("\n", 0, max(left - 1, 0)) + 1
    if text[left - 1 : left] == "\n" and right - before <= MAX_EXCERPT_CHARS:
        left = before
    while right < len(text) and _line_end(text, right + 1) - left <= MAX_EXCERPT_CHARS:
        right = _line_end(text, right + 1)
    return text[left:right], left


def _line_end(text: str, at: int) -> int:
    found = text.find("\n", at)
    return len(text) if found < 0 else found


def _densest(text: str, words: Sequence[str]) -> tuple[int, int]:
    """Return the span that contains most of the words, weighted by their length."""
    wanted = {part for word in words for part in (word, *re.findall(r"\w+", word))}
    longest_first = sorted(wanted, key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, longest_first)), re.IGNORECASE)
    found = zip(range(_MAX_MATCHES), pattern.finditer(text), strict=False)
    places = [(match.start(), match.end(), match[0].lower()) for _, match in found]
    best, span = 0, (0, 0)
    most = sum(map(len, {word for _, _, word in places}))
    for number, (start, end, _) in enumerate(places):
        if best == most:
            break
        together: dict[str, int] = {}
        for _, stop, word in places[number : number + _NEAR_CHARS]:
            if stop - start > _NEAR_CHARS and together:
                break
            together[word], end = len(word), stop
        if sum(together.values()) > best:
            best, span = sum(together.values()), (start, min(end, start + _NEAR_CHARS))
    return span
