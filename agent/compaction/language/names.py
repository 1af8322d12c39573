"""The names in a text: identifiers of several parts, and paths."""

from collections import Counter

from ...context.tokens import estimate
from ...lazy import regex

MIN_NAME_CHARS = 8  # shorter names are common words
MAX_NAME_CHARS = 120
MAX_SEARCHED_CHARS = 400_000  # of a text
MAX_RUN_CHARS = 500  # longer runs, such as Base64, are no names, and searching one takes long

_RUN = regex(r"[\w./@~-]++")  # may have several names
_NAME = regex(
    r"(?<![\w/-])(?:"
    r"[\w.@~-]*/[\w./@-]*\w"  # a path
    r"|_*[^\W\d_]+[^\W_]*(?:_[^\W_]+)+"  # snake_case
    r"|[^\W\d_]+\d*(?<=[a-z\d])[A-Z]\w*"  # camelCase
    r")(?!\w)"
)


def frequent_names(text: str, room: int, *, known: str = "") -> list[str]:
    """Return the names that a text has most often, in `room` tokens, without those in `known`."""
    runs = Counter(_RUN.findall(text[:MAX_SEARCHED_CHARS]))
    counts = Counter[str]()
    for run, times in runs.items():
        if MIN_NAME_CHARS <= len(run) <= MAX_RUN_CHARS:
            for name in _NAME.findall(run):
                counts[name] += times
    found = list[str]()
    for name, _ in counts.most_common():
        if not MIN_NAME_CHARS <= len(name) <= MAX_NAME_CHARS or name in known:
            continue
        room -= estimate(name) + 1
        if room < 0:
            break
        found.append(name)
    return found
