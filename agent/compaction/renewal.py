"""Renewal: what is said again after a summary, within its share of the window.

Environment, instruction files and what is preserved stand beside a summary, so they count for what
it leaves. Where they alone would be too much, the longest texts are cut, and say so.
"""

from collections.abc import Sequence
from dataclasses import replace

from ..context import tokens
from ..context.window import Window
from ..record.entries import Entry, User
from .summarize import beginning

MOST = 0.25  # of the window, for all of it
CUT = "[cut here, to leave room: {left:,} more characters; Read what is named above for the rest]"


def bounded(entries: Sequence[Entry], window: Window) -> list[Entry]:
    """The entries, in about MOST of the window: the longest are cut until no other is longer."""
    sizes = sorted(map(_size, entries))
    room = int(MOST * window.size)
    for place, size in enumerate(sizes):
        left = len(sizes) - place
        if size * left > room:
            return [_cut(entry, room // left) for entry in entries]
        room -= size
    return list(entries)


def weight(entries: Sequence[Entry]) -> int:
    """Estimated tokens that they take in the context."""
    return sum(map(_size, entries))


def _size(entry: Entry) -> int:
    return tokens.of_content(entry.content) if isinstance(entry, User) else 0


def _cut(entry: Entry, most: int) -> Entry:
    if _size(entry) <= most or not (isinstance(entry, User) and isinstance(entry.content, str)):
        return entry
    told = beginning(entry.content, most)
    return replace(entry, content=f"{told}\n{CUT.format(left=len(entry.content) - len(told))}")
