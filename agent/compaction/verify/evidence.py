"""Evidence: the sentences and names in a text that a record of it should still have.

What a person demanded or ruled out, the exact names and numbers they gave, what was decided and
what is planned; each verbatim, at most LONGEST characters. What is pasted (code, markup, logs) says
nothing here, and of a long text both ends are read, so the cost is bounded. What was found in a
text is kept for a while: texts never change, and each summary asks for many of them again.
"""

import re
from collections.abc import Iterator
from functools import lru_cache

LONGEST = 160  # characters of a fact
SHORTEST = 12  # bytes of a sentence that can say something
MOST_READ = 3_000  # characters of a text, from either end
MOST_NAMES = 30  # that are looked for in one text
MOST_SENTENCE = 1_000  # bytes; a longer one was not written by hand
MOST_KEPT = 512  # findings in texts

_BULLET = re.compile(r"(?:[-*+•] +|\d{1,3}[.)] +|#{1,6} +|\[[ xX]\] +)*")
_PASTED = re.compile(r'[<{}|$>\]]|at \S+\(|File "|\d+[:|→]|[+-]{2,}|diff |import |from \S+ import ')
_END = re.compile(r"(?<=[.!?])[ \t]+(?=[\"'(`*\[A-Z0-9À-ß])|(?<=[。！？])")
_CLAUSE = re.compile(r"(?<=[,;:]) +| +[—–] +| +- +")

_FORBIDS = re.compile(
    r"\b(?:do not|never|must|mustn['’]t|always|under no circumstances|not allowed|forbidden"
    r"|don['’]t (?!know|think|see|understand|remember|care|worry|have|need)"
    r"|use (?:\S+ ){1,4}(?:not|instead of|rather than))\b",
    re.IGNORECASE,
)
_LIMITS = re.compile(
    r"\b(?:only|avoid|prefer|make sure|ensure|required|instead of|rather than|at most|at least"
    r"|no more than|without (?:changing|touching|breaking)|should(?: not|n['’]t)?)\b|^keep\b",
    re.IGNORECASE,
)
_DECIDED = re.compile(
    r"\b(?:decided|decision|chose|chosen|opted|settled on|going with|in favou?r of|trade-?off"
    r"|root cause|(?:we|i)(?:['’]ll| will) use)\b",
    re.IGNORECASE,
)
_REASONED = re.compile(r"\b(?:instead of|rather than|because|turns? out)\b", re.IGNORECASE)
_PLANNED = re.compile(
    r"\bnext(?: steps?| up)?[,:] |\b(?:next i|the next|now i(?:['’]ll| will)|i(?:['’]ll| will) now"
    r"|remaining|still (?:need|have|to do)|to do next|what(?:['’]s| is) left)\b",
    re.IGNORECASE,
)
_NAMES = tuple(  # the more telling first
    re.compile(pattern)
    for pattern in (
        r"https?://[^\s<>\"'`)\]]+",
        r"`([^`\n]{2,60})`",
        r"\b[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)+\b|\b[a-z]+[A-Z]\w+|\b[A-Z][a-z0-9]+[A-Z]\w*"
        r"|\b[A-Z]{2,}-?\d+\b|#[0-9a-fA-F]{3,8}\b",
        r"(?<![\w/.])[\w.~-]{1,60}(?:/[\w.-]{1,60})+",
        r"\b\d[\d,.]*(?: ?(?:%|[kKMG]i?B|ms|seconds?|minutes?|hours?|days?|tokens|px)(?!\w)"
        r"|(?<=\d{3})\b)|\bv?\d+(?:\.\d+)+\b",
        r"[\"“]([^\"“”\n]{3,40})[\"”]",
        r"(?<=[a-z,] )[A-Z][a-z]{2,}\b",
    )
)


def sentences(text: str) -> Iterator[str]:
    """The sentences of a text in order, without what marks them up as a list or a title."""
    fenced = False
    for line in _read_of(text).split("\n"):
        line = line.strip()
        if line.startswith(("```", "~~~")):
            fenced = not fenced
        elif line and not fenced and not _PASTED.match(line):
            bullet = _BULLET.match(line)
            for sentence in _END.split(line[bullet.end() if bullet else 0 :]):
                if _speaks(sentence):
                    yield sentence.strip()


def _read_of(text: str) -> str:
    """What is read of a text: of a long one its ends."""
    if len(text) <= 2 * MOST_READ:
        return text
    head, tail = text[:MOST_READ].rpartition(" ")[0], text[-MOST_READ:].partition(" ")[2]
    return f"{head}\n{tail}"


def _speaks(sentence: str) -> bool:
    size = len(sentence.encode("utf-8", "replace"))  # a character of Chinese says more
    return SHORTEST <= size <= MOST_SENTENCE and any(map(str.isalpha, sentence))


def constraints(text: str) -> list[tuple[int, str]]:
    """What these words of a person demand or rule out, the strict (0) before the others (1)."""
    return _telling(text, _FORBIDS, _LIMITS)


def decisions(text: str) -> list[tuple[int, str]]:
    """What an assistant's text says was chosen or found (0), and what it gives a reason for (1)."""
    return _telling(text, _DECIDED, _REASONED)


def plans(text: str) -> list[str]:
    """What an assistant's text says is still to be done."""
    return [fact for _, fact in _telling(text, _PLANNED)]


def names(text: str) -> list[tuple[str, str]]:
    """Exact names, addresses and numbers, each with the words that it stands in; the more telling
    kinds first."""
    return list(_named(_read_of(text)))


@lru_cache(MOST_KEPT)
def _named(text: str) -> tuple[tuple[str, str], ...]:
    found: dict[str, tuple[int, str]] = {}
    for sentence in sentences(text):
        for rank, pattern in enumerate(_NAMES):
            for match in pattern.finditer(sentence):
                name = match[match.lastindex or 0].rstrip(".,;:")
                if 1 < len(name) <= LONGEST and not any(name in other for other in found):
                    found[name] = (rank, fact(sentence, match.start()))
        if len(found) >= MOST_NAMES:
            break
    ranked = sorted(found.items(), key=lambda item: item[1][0])
    return tuple((name, words) for name, (_, words) in ranked if name in words)


def opening(text: str) -> str:
    """The first thing that a text says; "" when it says nothing."""
    return fact(next(sentences(text), ""))


def fact(text: str, at: int = 0) -> str:
    """The part of a text that is kept: one line, whole if it is short, else whole clauses from the
    one with the character `at` on, or whole words."""
    line = text if at else text.strip().partition("\n")[0].rstrip()
    line = line[: at + 4 * LONGEST]
    if len(line) <= LONGEST:
        return line.strip()
    starts = [0, *(gap.end() for gap in _CLAUSE.finditer(line))]
    start = max(place for place in starts if place <= at)
    if at >= start + LONGEST // 2:
        start = max(start, line.rfind(" ", 0, at - LONGEST // 4) + 1)
    rest = line[start:]
    if len(rest) <= LONGEST:
        return rest.strip()
    ends = [gap.start() for gap in _CLAUSE.finditer(rest, LONGEST // 2, LONGEST)]
    gap = rest.rfind(" ", 0, LONGEST + 1)
    end = ends[-1] if ends else gap if gap > 0 else LONGEST
    return rest[:end].rstrip(" ,;:—–-")


def _telling(text: str, *patterns: re.Pattern[str]) -> list[tuple[int, str]]:
    """The sentences that one of the patterns finds, each with the pattern's rank, by rank."""
    return list(_found(_read_of(text), patterns))


@lru_cache(MOST_KEPT)
def _found(text: str, patterns: tuple[re.Pattern[str], ...]) -> tuple[tuple[int, str], ...]:
    found: dict[str, int] = {}
    for sentence in sentences(text):
        for rank, pattern in enumerate(patterns):
            match = pattern.search(sentence)
            if match and not sentence.endswith(("?", ":")):
                found.setdefault(fact(sentence, match.start()), rank)
                break
    rows = ((rank, sentence) for sentence, rank in found.items())
    return tuple(sorted(rows, key=lambda row: row[0]))
