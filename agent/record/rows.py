"""The rows of changes in the details of a result: what a call has done to which files."""

from collections.abc import Iterator, Mapping
from typing import Any


def content_of(row: Mapping[str, Any]) -> str:
    """What a file holds by a row of changes, as `contents` has it; "" when it does not say."""
    kinds = (kind for kind in ("blob", "sha256") if isinstance(row.get(kind), str))
    return next((f"{kind}:{row[kind]}" for kind in kinds), "")


def changes_of(details: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The changes that a result tells of."""
    rows = details.get("changes")
    for row in rows if isinstance(rows, list) else ():
        known = isinstance(row, dict) and isinstance(row.get("path"), str)
        if known and row.get("action") in ("created", "modified", "deleted"):
            yield row
