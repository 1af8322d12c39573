"""Limit the entries added after a summary: environment, instructions, preserved sections."""

from collections.abc import Sequence
from dataclasses import replace

from ..context import tokens
from ..context.window import Window
from ..session.entries import MEMORY, PLAN, SKILL, SKILL_LIST, Entry, User
from .summary.request import first_tokens

REINSERTED_SHARE = 0.25  # of the window, for all reinserted entries
CUT_NOTE = (
    "[cut here, to leave room: {left:,} more characters; read what is named above for the rest]"
)


def reinserted_within(entries: Sequence[Entry], window: Window) -> list[Entry]:
    """Cut the longest entries until all entries fit in REINSERTED_SHARE of the window.

    Skills, memory and the plan have their own limits and are never cut. The plan does not count
    towards the share.
    """
    sizes = sorted(_entry_tokens(entry) for entry in entries if not _has_own_limit(entry))
    room = int(REINSERTED_SHARE * window.size)
    room -= sum(
        _entry_tokens(entry)
        for entry in entries
        if _has_own_limit(entry) and not (isinstance(entry, User) and entry.source == PLAN)
    )
    for place, size in enumerate(sizes):
        left = len(sizes) - place
        if size * left > room:
            share = max(1, room // left)
            return [
                entry if _has_own_limit(entry) else _cut_entry(entry, share) for entry in entries
            ]
        room -= size
    return list(entries)


def reinserted_tokens(entries: Sequence[Entry]) -> int:
    """Return the estimated tokens of the entries in the context."""
    return sum(map(_entry_tokens, entries))


def _entry_tokens(entry: Entry) -> int:
    return tokens.estimate_content(entry.content) if isinstance(entry, User) else 0


def _cut_entry(entry: Entry, max_tokens: int) -> Entry:
    if _entry_tokens(entry) <= max_tokens:
        return entry
    if not (isinstance(entry, User) and isinstance(entry.content, str)):
        return entry
    kept = first_tokens(entry.content, max_tokens)
    return replace(entry, content=f"{kept}\n{CUT_NOTE.format(left=len(entry.content) - len(kept))}")


def _has_own_limit(entry: Entry) -> bool:
    return isinstance(entry, User) and entry.source in (PLAN, SKILL, SKILL_LIST, MEMORY)
