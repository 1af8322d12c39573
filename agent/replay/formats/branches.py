"""The rows of a file that form a tree by their parents."""

from .fields import JsonObject


def newest_branch(rows: list[JsonObject], id: str, parent: str) -> list[JsonObject]:
    """Return the rows from the root to the last one; `id` and `parent` name the fields. A parent
    stands before its children; the row before stands in for a parent that is not named or not in
    the file."""
    place = {row[id]: at for at, row in enumerate(rows) if isinstance(row.get(id), str)}
    at, branch = len(rows) - 1, []
    while at >= 0:
        branch.append(rows[at])
        named = rows[at].get(parent, "")
        if named is None:
            break
        before = place.get(named, at - 1) if isinstance(named, str) else at - 1
        at = before if before < at else at - 1
    return branch[::-1]
