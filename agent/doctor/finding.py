"""One thing that the doctor looked at."""

from collections.abc import Sequence
from typing import NamedTuple


class Finding(NamedTuple):
    """One thing that was looked at, and how it is."""

    what: str
    found: str
    ok: bool = True  # False for what is broken or keeps the program from working
    note: bool = False  # True for what works, and is not as the person may think


def listed(names: Sequence[str], limit: int) -> str:
    """Return the first `limit` names in one line, and how many more there are."""
    more = f" and {len(names) - limit:,} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more
