"""Finds the sentences and names in a text that a record of it should still have.

That is what a person demanded or ruled out, the exact names and numbers they gave, what was decided
and what is planned; each verbatim, in at most MAX_FACT_CHARS. What is pasted (code, markup, logs)
does not count, and of a long text both ends are read, so that the cost is bounded. Findings are
cached: texts never change, and each summary asks for many of them again.
"""

import re
from collections.abc import Iterator
from functools import lru_cache

MAX_FACT_CHARS = 160
MIN_SENTENCE_BYTES = 12  # of a sentence that can say something; one Chinese character says more
MAX_SENTENCE_BYTES = 1_000  # a longer one was not written by hand
MAX_READ_CHARS = 3_000  # of a text, from either end
MAX_NAMES = 30  # that are looked for in one text
MAX_CACHED_TEXTS = 512

_BULLET = re.compile(r"(?:[-*+•] +|\d{1,3}[.)] +|#{1,6} +|\[[ xX]\] +)*")
_PASTED = re.compile(r'[<{}|$>\]]|at \S+\(|File "|\d+[:|→]|[+-]{2,}|diff |import |from \S+ import ')
_END = re.compile(r"(?<=[.!?])[ \t]+(?=[\"'(`*\[A-Z0-9À-ßΑ-ΩА-ЯЁ¿¡])|(?<=[。！？।])")
_CLAUSE = re.compile(r"(?<=[,;:]) +| +[—–] +| +- +")

FORBIDS = re.compile(
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
    """Yield the sentences of a text in order, without the marks of lists and titles."""
    fenced = False
    for line in _read_part(text).split("\n"):
        line = line.strip()
        if line.startswith(("```", "~~~")):
            fenced = not fenced
        elif line and not fenced and not _PASTED.match(line):
            bullet = _BULLET.match(line)
            for sentence in _END.split(line[bullet.end() if bullet else 0 :]):
                if _is_meaningful(sentence):
                    yield sentence.strip()


def _read_part(text: str) -> str:
    """Return what is read of a text: all of it, or both ends of a long one."""
    if len(text) <= 2 * MAX_READ_CHARS:
        return text
    head, tail = text[:MAX_READ_CHARS].rpartition(" ")[0], text[-MAX_READ_CHARS:].partition(" ")[2]
    return f"{head}\n{tail}"


def _is_meaningful(sentence: str) -> bool:
    size = len(sentence.encode("utf-8", "replace"))
    return MIN_SENTENCE_BYTES <= size <= MAX_SENTENCE_BYTES and any(map(str.isalpha, sentence))


def wishes(text: str) -> list[str]:
    """Return what a person's words limit or ask for, short of a rule."""
    return [fact for rank, fact in _ranked_facts(text, FORBIDS, _LIMITS) if rank]


def decisions(text: str) -> list[tuple[int, str]]:
    """Return what an assistant's text says was decided or found (0), then what it reasons (1)."""
    return _ranked_facts(text, _DECIDED, _REASONED)


def plans(text: str) -> list[str]:
    """Return what an assistant's text says is still to be done."""
    return [fact for _, fact in _ranked_facts(text, _PLANNED)]


def names(text: str) -> list[tuple[str, str]]:
    """Return exact names, addresses and numbers, each with the words that it stands in. The more
    telling kinds come first."""
    return list(_named(_read_part(text)))


@lru_cache(MAX_CACHED_TEXTS)
def _named(text: str) -> tuple[tuple[str, str], ...]:
    found: dict[str, tuple[int, str]] = {}
    for sentence in sentences(text):
        for rank, pattern in enumerate(_NAMES):
            for match in pattern.finditer(sentence):
                name = match[match.lastindex or 0].rstrip(".,;:")
                if 1 < len(name) <= MAX_FACT_CHARS and not any(name in other for other in found):
                    found[name] = (rank, fact_at(sentence, match.start()))
        if len(found) >= MAX_NAMES:
            break
    ranked = sorted(found.items(), key=lambda item: item[1][0])
    return tuple((name, words) for name, (_, words) in ranked if name in words)


def first_fact(text: str) -> str:
    """Return the first thing that a text says, "" when it says nothing."""
    return fact_at(next(sentences(text), ""))


def fact_at(text: str, at: int = 0) -> str:
    """Return the part of a text that is kept as a fact, in one line. A short line is kept whole; of
    a long one whole clauses, or whole words, from the clause with the character `at` on."""
    line = text if at else text.strip().partition("\n")[0].rstrip()
    line = line[: at + 4 * MAX_FACT_CHARS]
    if len(line) <= MAX_FACT_CHARS:
        return line.strip()
    starts = [0, *(gap.end() for gap in _CLAUSE.finditer(line))]
    start = max(place for place in starts if place <= at)
    if at >= start + MAX_FACT_CHARS // 2:
        start = max(start, line.rfind(" ", 0, at - MAX_FACT_CHARS // 4) + 1)
    rest = line[start:]
    if len(rest) <= MAX_FACT_CHARS:
        return rest.strip()
    ends = [gap.start() for gap in _CLAUSE.finditer(rest, MAX_FACT_CHARS // 2, MAX_FACT_CHARS)]
    gap = rest.rfind(" ", 0, MAX_FACT_CHARS + 1)
    end = ends[-1] if ends else gap if gap > 0 else MAX_FACT_CHARS
    return rest[:end].rstrip(" ,;:—–-")


def _ranked_facts(text: str, *patterns: re.Pattern[str]) -> list[tuple[int, str]]:
    """Return the sentences that a pattern finds, each with the pattern's rank, by rank."""
    return list(_found(_read_part(text), patterns))


@lru_cache(MAX_CACHED_TEXTS)
def _found(text: str, patterns: tuple[re.Pattern[str], ...]) -> tuple[tuple[int, str], ...]:
    found: dict[str, int] = {}
    for sentence in sentences(text):
        for rank, pattern in enumerate(patterns):
            match = pattern.search(sentence)
            if match and not sentence.endswith(("?", ":")):
                found.setdefault(fact_at(sentence, match.start()), rank)
                break
    rows = ((rank, sentence) for sentence, rank in found.items())
    return tuple(sorted(rows, key=lambda row: row[0]))


def whole_words(text: str) -> re.Pattern[str]:
    """Return the pattern that finds a text, never as a part of a longer word or number."""
    before = r"(?<!\w)(?<!\d[.,])" if text[0].isalnum() else ""
    after = r"(?!\w|[.,]\d)" if text[-1].isalnum() else ""
    return re.compile(f"{before}{re.escape(text)}{after}")
