"""What the doctor says: one thing looked at, and whether it is as it must be."""

from typing import NamedTuple


class Finding(NamedTuple):
    """One thing looked at. `ok` is False for what keeps the program from working, or is broken."""

    what: str
    found: str
    ok: bool = True
