"""Explain why a text was not found in a file, so that the model's next Edit succeeds.

There are four causes: the text contains Read's line numbers, differs only in characters that look
the same, differs only in whitespace, or differs in a few words. The cost is bounded for any file.
"""

from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher

from ..agent.lazy import regex
from . import text as texts
from .look_alikes import LookAlike

MAX_PLACES = 3
MAX_LINES_SHOWN = 20  # lines of the file in one message
MAX_COMPARED_LINES = 4_000  # lines of the file passed to difflib
MAX_COMPARED_CHARS = 2_000  # characters of one text passed to difflib
MIN_LIKENESS = 0.6

_NUMBERED = regex(r"^ *\d+\t")


def explain(name: str, text: str, old: str, like: Sequence[LookAlike] = ()) -> str:
    """Return a message for the model that explains why `old` is not in `text`. `like` has the texts
    that look the same.

    Both texts have LF line ends.
    """
    lost = f"old_string is not in {name}."
    lines = texts.split(text)
    if _numbered(old):
        bare = "\n".join(_NUMBERED.sub("", line, count=1) for line in old.split("\n"))
        there = " Without them it is there." if bare in text else ""
        return (
            f"{lost} It holds the line numbers that Read shows (`12<tab>`).{there} Leave the "
            "numbers and the tab out."
        )
    if like:
        where = [texts.line_at(text, each.start) for each in like]
        shown = _quote(lines, [*dict.fromkeys(where)], old)
        return f"{lost} It is there with other characters: {like[0].named}. {shown}"
    places = _same_words(lines, old)
    if places:
        return f"{lost} It is there with other whitespace. {_quote(lines, places, old)}"
    place = _most_similar(lines, old)
    if place:
        return f"{lost} Most like it: {_quote(lines, [place], old)}"
    return f"{lost} Nothing in the file is like it: Read it, or Grep for a word of it."


def _numbered(old: str) -> bool:
    lines = [line for line in old.split("\n") if line]
    return bool(lines) and all(_NUMBERED.match(line) for line in lines)


def _same_words(lines: list[str], old: str) -> list[int]:
    """Return the line numbers where `old` begins if each run of whitespace counts as one blank."""
    wanted = "\n".join(map(_folded, old.strip("\n").split("\n")))
    if not wanted.strip():
        return []
    folded = "\n".join(map(_folded, lines))
    places: list[int] = []
    place = folded.find(wanted)
    while place >= 0 and len(places) < MAX_PLACES:
        places.append(texts.line_at(folded, place))
        place = folded.find(wanted, place + len(wanted))
    return places


def _folded(line: str) -> str:
    return " ".join(line.split())


def _most_similar(lines: list[str], old: str) -> int | None:
    """Return the line number of the text most similar to `old`; None if nothing is similar."""
    wanted = old.strip("\n").split("\n")
    whole = _stripped(wanted)
    for search in (_aligned, _near_longest_line):
        best, likeness = None, MIN_LIKENESS
        for start in search(lines, wanted):
            there = _stripped(lines[start : start + len(wanted)])
            ratio = SequenceMatcher(None, whole, there, autojunk=False).ratio()
            if ratio > likeness:
                best, likeness = start + 1, ratio
        if best:
            return best
    return None


def _stripped(lines: list[str]) -> str:
    return "\n".join(map(str.strip, lines))[:MAX_COMPARED_CHARS]


def _aligned(lines: list[str], wanted: list[str]) -> list[int]:
    """Return the start lines at which most lines of `wanted` match in order; blank lines are
    ignored.
    """
    rows: dict[str, list[int]] = {}
    for row, line in enumerate(map(str.strip, wanted)):
        if line and len(rows.setdefault(line, [])) < MAX_PLACES:
            rows[line].append(row)
    votes: Counter[int] = Counter()
    for place, line in enumerate(map(str.strip, lines)):
        votes.update(max(0, place - row) for row in rows.get(line, ()))
    return [start for start, _ in votes.most_common(MAX_PLACES)]


def _near_longest_line(lines: list[str], wanted: list[str]) -> list[int]:
    """Return possible start lines of `wanted`, from the lines most similar to its longest line."""
    row = max(range(len(wanted)), key=lambda n: len(wanted[n].strip()))
    model = wanted[row].strip()[:500]
    matcher = SequenceMatcher(None, "", model)
    scores: list[tuple[float, int]] = []
    for place, line in enumerate(lines[:MAX_COMPARED_LINES]):
        matcher.set_seq1(line.strip()[:500])
        if matcher.real_quick_ratio() > MIN_LIKENESS and matcher.quick_ratio() > MIN_LIKENESS:
            scores.append((matcher.ratio(), place))
    return [max(0, place - row) for _, place in sorted(scores, reverse=True)[:MAX_PLACES]]


def _quote(lines: list[str], places: list[int], old: str) -> str:
    """Return the file's lines at each place, and advice on the next step."""
    count = min(old.strip("\n").count("\n") + 1, max(1, MAX_LINES_SHOWN // len(places)))
    named = ", ".join(str(place) for place in places)
    shown = "\n".join(texts.number(lines[p - 1 : p - 1 + count], p) for p in places)
    word = "line" if len(places) == 1 else "lines"
    return f"From {word} {named} on:\n{shown}\nCopy old_string from there, without the numbers."
