"""Whether two subagents were given the same work, told by the words of their tasks.

Who asks again seldom uses the same words; parts of one job that are handed out side by side differ
in little but a name. So the work is the same when both descriptions say the same, in any order and
form, or when they share most words and each stands as a whole in the other's task; and never when
both tasks name files and none of them is the same.
"""

import re
from collections.abc import Collection

MIN_SHARED_WORDS = 2  # of two descriptions that are not the same
MIN_STEM_CHARS = 4  # from which on a word stands for longer ones that begin with it

_WORD = re.compile(r"\w+")
_FILE = re.compile(r"[\w~-]*[/.](?=\w)[\w./-]*\w")  # `a.py`, `src/a`, `.env`
_FILLERS = frozenset(
    _WORD.findall(
        "a again all an and any are at by each every for from go how in into is it its more now of "
        "on once one or out over please that the their then these this to up was what where which "
        "why with"
    )
)


def is_same_work(one: tuple[str, str], other: tuple[str, str]) -> bool:
    """Return whether two tasks, each a description and a prompt, are the same work."""
    files, others = (set(_FILE.findall(" ".join(task))) for task in (one, other))
    if files and others and not files & others:
        return False
    words, more = _words(one[0]), _words(other[0])
    if _stands_in(words, more) and _stands_in(more, words):
        return bool(words) or one[0].casefold().split() == other[0].casefold().split()
    shared = sum(_stands_in([word], more) for word in words)
    if shared < max(MIN_SHARED_WORDS, max(len(words), len(more)) // 2 + 1):
        return False
    return _stands_in(words, _words(" ".join(other))) and _stands_in(more, _words(" ".join(one)))


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.casefold())) - _FILLERS


def _stands_in(words: Collection[str], others: Collection[str]) -> bool:
    """Return whether each word is among others, in any form."""
    return all(any(_is_alike(word, other) for other in others) for word in words)


def _is_alike(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    return one == other or (len(short) >= MIN_STEM_CHARS and long.startswith(short))
