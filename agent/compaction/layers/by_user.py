"""The layers of the user's edits. `compaction/edits.py` plans them; they never act alone."""

from ...session.entries import DROP
from .layer import Layer


class DropItems(Layer):
    """Items that the user drops."""

    name = DROP
    nouns = ("item", "items")
    done = ("dropped", "dropped")
    by_user = True


class RestoreItems(Layer):
    """Items that the user restores."""

    name = "restore"
    nouns = ("item", "items")
    done = ("restored", "restored")
    by_user = True


class SummarizeSpan(Layer):
    """A part of the context that the user lets a summary replace in its place."""

    name = "span"
    nouns = ("item", "items")
    done = ("summarised in place", "summarised in place")
    by_user = True
