"""The rows in the details of a result that say which files its call changed."""

from collections.abc import Iterator, Mapping
from typing import Any


def content_key(row: Mapping[str, Any]) -> str:
    """Return the content key in a row of changes, in the form used by `Ledger.contents`, or ""."""
    kinds = (kind for kind in ("blob", "sha256") if isinstance(row.get(kind), str))
    return next((f"{kind}:{row[kind]}" for kind in kinds), "")


def change_rows(details: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the valid rows of `changes` in the details of a result."""
    rows = details.get("changes")
    for row in rows if isinstance(rows, list) else ():
        known = isinstance(row, dict) and isinstance(row.get("path"), str)
        if known and row.get("action") in ("created", "modified", "deleted"):
            yield row
