"""The files that a shell pattern stands for: all that bash would find, and perhaps more."""

import glob
import os
import re
from itertools import islice

MOST = 1000  # files that are looked at one by one
_DEEPEST = 2  # components with wildcards
_BRACKETS = re.compile(r"(?P<plain>\[(?:\w+|\d-\d)\])|(?P<other>\[[!^]?\]?[^\]/]*\])|\[", re.ASCII)


def expand(pattern: str, base: str) -> list[str] | None:
    """The paths that the unquoted `pattern` finds from the folder `base`, relative ones as the
    shell gives them. None when they are too many to look at, when one may be taken for an option,
    or when the shell may see the pattern otherwise."""
    wild = re.findall(r"[*?\[][^/]*(?:/|$)", pattern)
    if len(wild) > _DEEPEST or re.search(r"\[[:.=]", pattern):
        return None
    try:
        widened = _BRACKETS.sub(_widen, os.path.expanduser(pattern))  # noqa: PTH111
        found = list(islice(glob.iglob(widened, root_dir=base), MOST + 1))  # noqa: PTH207
    except ValueError:  # no path is called so
        return None
    return None if len(found) > MOST or any(path.startswith("-") for path in found) else found


def _widen(bracket: re.Match[str]) -> str:
    """Any character, where what a bracket means depends on the shell and its language."""
    return bracket["plain"] or ("?" if bracket["other"] else "[[]")
