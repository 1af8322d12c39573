"""The result of one check by the doctor."""

from collections.abc import Sequence
from typing import NamedTuple


class Finding(NamedTuple):
    """One checked item and its state."""

    what: str
    found: str
    ok: bool = True  # False if something is broken or prevents the program from working
    note: bool = False  # True if it works, but perhaps not as the user expects


def listed(names: Sequence[str], limit: int) -> str:
    """Return the first `limit` names on one line, and the number of further names."""
    more = f" and {len(names) - limit:,} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more
