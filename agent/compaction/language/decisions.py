"""Decisions: what one rules out, and which earlier ones it overrules.

"Use X, not Y", "X instead of Y", "no Y": Y is ruled out. A decision for Y that was made before no
longer holds then.
"""

import re
from collections.abc import Iterator
from functools import lru_cache

from .evidence import sentences
from .rules import subject

MAX_CACHED_DECISIONS = 1_024

_ENDS = (
    r"(?=\W*$|\s*[.,;:!?()—–]|\s+(?:for|because|since|as|in|on|to|so|and|or|which|when|due|at|here"
    r"|with|by|anywhere)\b)"
)
_NAME = (
    r"(?:the |an? |any |using )?"
    rf"(?P<name>`[^`\n]{{2,40}}`|[\w@][\w.@/+#-]*(?: [\w.@/+#-]+)?){_ENDS}"
)
_CHOSE = r"chose|choose|prefer(?:red)?|picked|selected|adopt(?:ed)?"
_RULED_OUT = tuple(
    re.compile(pattern + _NAME, re.I)
    for pattern in (
        rf"\b(?:use[ds]?|using|{_CHOSE}|(?:go|going|went) with|keep|stay(?:ing)? (?:on|with)"
        r"|switch(?:ed)? to)\b [^;\n]{1,80}?(?:, not|\(not|\binstead of|\brather than) ",
        rf"\b(?:{_CHOSE})\b [^;\n]{{1,80}}?\bover ",
        r"\b(?:do not|don['’]t|never|won['’]t|not to|no longer) "
        r"(?:use|install|add|depend on|introduce|import) ",
        r"\bavoid(?:ing)? ",
        r"^no ",
        r"\b(?:switched|moved|migrated) (?:away )?from ",
        r"\b(?:rejected|ruled out|dropped) ",
    )
)
_GIVEN_UP = tuple(
    re.compile(pattern + _NAME, re.I)
    for pattern in (
        r"\b(?:switched|moved|migrated) (?:away )?from ",
        r"\b(?:replaced|dropped|removed|gave up|abandoned) ",
        r"\bno longer (?:use[ds]?|using) ",
    )
)
_WORDS = """
any all the this that only just yet now new more both needed need it them because adding using
making having being changing relying modifying code files file tests test things other another one
same
"""
_ORDINARY = frozenset(_WORDS.split())


def overrules(later: str, earlier: str) -> bool:
    """Return whether a decision rules out what an earlier one took up. A choice for one place says
    nothing of another."""
    given_up = set(_names(later, _GIVEN_UP))
    chosen_against = set(_names(later, _RULED_OUT)) - given_up
    if chosen_against and any(subject(place[1]) - subject(earlier) for place in _places(later)):
        chosen_against = set()
    names = (given_up | chosen_against) - set(_names(earlier, _RULED_OUT))
    return any(_taking_up(name).search(earlier) for name in names)


@lru_cache(MAX_CACHED_DECISIONS)
def _taking_up(name: str) -> re.Pattern[str]:
    use = (
        r"\b(?:us(?:e[ds]?|ing)|switch(?:ed|ing)? to|install(?:ed)?|add|go(?:ing)? with|migrate to"
    )
    pattern = rf"{use}|adopt(?:ed)?|import|chose)\s+(?:the |an? )?`?{re.escape(name)}(?![\w-])"
    return re.compile(pattern, re.I)


@lru_cache(MAX_CACHED_DECISIONS)
def _names(said: str, patterns: tuple[re.Pattern[str], ...]) -> tuple[str, ...]:
    """Return the names that patterns find in a decision."""
    found = []
    for sentence in sentences(said.removeprefix("The person said: ")):
        for match in (match for pattern in patterns for match in pattern.finditer(sentence)):
            name = match["name"].strip("`").rstrip(".").lower()
            if len(name) > 1 and not set(name.split()) & _ORDINARY:
                found.append(name)
    return tuple(found)


def _places(decision: str) -> Iterator[re.Match[str]]:
    return re.finditer(
        r"\b(?:for|in|within) ([^,;.:()]{1,60}?)(?= because\b| since\b|[,;.:()]|$)", decision
    )
