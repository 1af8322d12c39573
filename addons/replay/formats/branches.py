"""Follow the branches of a file whose rows form a tree of parents and children."""

from ....api.text import JsonObject


def newest_branch(rows: list[JsonObject], id: str, parent: str) -> list[JsonObject]:
    """Return the rows from the root to the last row; `id` and `parent` are names of fields. Parents
    come before their children. If a parent is not named or missing, the previous row is used.
    """
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
