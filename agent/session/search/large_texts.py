"""Search in texts that are too large for the index: each search reads them."""

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ....tools.system.kept_text import KeptText
from ...lazy import dataclass
from ..entries import Entry, ToolResult, User

LARGE_TEXT_BYTES = 4 << 20
_MAX_WORDS = 8  # the longest words of a query
_SHORT_WORD_CHARS = 3
_NEAR_CHARS = 500  # searched on either side of a word for the other words
_REGION_CHARS = 4_000  # returned on either side of the best place
_MAX_PLACES = 200  # of a word in one piece


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
        score, at = _densest(low, words, finders)
        if score > best_score:
            is_all = score == sum(map(len, words))
            best, best_score = _place(1 if is_all else 2, text_here, at, begin), score
            if is_all and phrase is None:
                break
        before += len(piece)
        carried = text_here[-_NEAR_CHARS:]
    return best


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


def _densest(
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
            if any(abs(other - at) <= _NEAR_CHARS for other in found)
        )
        if score > best:
            best, place = score, at
    return best, place


def _place(level: int, text: str, at: int, begin: int) -> BestPlace:
    first = max(0, at - _REGION_CHARS)
    return BestPlace(level, text[first : at + _REGION_CHARS], begin + first)
