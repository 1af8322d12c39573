"""Which files a command names, and whether it can change any: for watching what it does.

Nothing is decided by this. A file that a command changes without naming it is found elsewhere, or
not at all; a word that only looks like a file costs a look.
"""

import os
from collections.abc import Iterator

from .patterns import expand
from .readonly import is_read_only, paths
from .syntax import Script, Word
from .wrappers import names

MOST = 64  # paths of one command

# What works on all that is in a folder it is given.
_WHOLE = names("rm mv cp ln install rsync tar unzip chmod chown")


def only_looks(script: Script) -> bool:
    """Whether it is certain that a command changes no file."""
    return not (script.doubt or script.writes) and all(
        part.wrapper or is_read_only(part) for part in script.parts
    )


def touched(script: Script, cwd: str) -> list[str]:
    """Absolute paths, links in them followed but for the last, of what a command may change:
    files, there or not, and the folders that it works on as a whole."""
    found: dict[str, None] = {}
    for path, whole in _candidates(script, cwd):
        if len(found) == MOST:
            break
        folder, name = os.path.split(os.path.normpath(path))
        there = os.path.isdir(path) and not os.path.islink(path)  # noqa: PTH112, PTH114
        if name and _can_hold(folder) and (whole or not there):
            found[os.path.join(os.path.realpath(folder), name)] = None  # noqa: PTH118
    return list(found)


def _can_hold(folder: str) -> bool:
    """Whether a folder is there, or could be made."""
    while not os.path.lexists(folder) and folder != os.path.dirname(folder):  # noqa: PTH120
        folder = os.path.dirname(folder)  # noqa: PTH120
    return os.path.isdir(folder)  # noqa: PTH112


def _candidates(script: Script, cwd: str) -> Iterator[tuple[str, bool]]:
    """Whatever may be a path, from every folder that it may be relative to, and whether a folder
    there would be meant with all that is in it."""
    bases = [cwd]
    for part in script.parts:
        if part.name == "cd" and len(part.words) == 2:
            bases += [path for base in bases[-2:] for path in _absolute(part.words[1], base)]
    words = [(word, False) for word in script.writes]
    for part in script.parts:
        if part.name != "cd" and not is_read_only(part):
            whole = part.name.rpartition("/")[2] in _WHOLE
            words += [(word, whole) for word in paths(part)]
    for word, whole in words:
        for base in dict.fromkeys(bases):
            yield from ((path, whole) for path in _absolute(word, base))


def _absolute(word: Word, base: str) -> list[str]:
    if not word.fixed or not word.text or "\0" in word.text:
        return []
    texts = (expand(word.text, base) or []) if word.glob else [word.text]
    return [os.path.join(base, os.path.expanduser(text)) for text in texts]  # noqa: PTH111, PTH118
