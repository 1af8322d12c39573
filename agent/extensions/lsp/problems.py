"""Errors and warnings that language servers report, and the comparison that finds new errors."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from ....tools.system.shorten import one_line
from ....tools.system.unicode import clean, reveal_invisible
from ...lazy import dataclass

MAX_PROBLEMS = 1_000  # of one file
MAX_MESSAGE_CHARS = 300
ERROR, WARNING = 1, 2  # severities; larger ones are hints


@dataclass(frozen=True, slots=True)
class Problem:
    """An error or a warning at a position in a file."""

    line: int  # from 1
    column: int
    is_error: bool
    message: str
    rule: str  # rule code of the checker, "" for none

    @property
    def shown(self) -> str:
        """The problem on one line, without the file."""
        rule = f" [{self.rule}]" if self.rule else ""
        return f"{self.line}:{self.column}: {self.message}{rule}"


def problems_in(listed: object) -> list[Problem]:
    """Return the errors and warnings in a list of diagnostics, sorted by position. Skip entries
    that break the protocol.
    """
    rows = listed if isinstance(listed, list) else []
    found = (_problem(row) for row in rows[:MAX_PROBLEMS] if isinstance(row, dict))
    return sorted(filter(None, found), key=lambda each: (each.line, each.column))


def _problem(row: dict[str, Any]) -> Problem | None:
    severity, code = row.get("severity", ERROR), row.get("code")
    if severity not in (ERROR, WARNING):
        return None
    try:
        start = row["range"]["start"]
        line, column = int(start["line"]) + 1, int(start["character"]) + 1
    except (KeyError, TypeError, ValueError):
        return None
    message = reveal_invisible(one_line(clean(str(row.get("message"))), MAX_MESSAGE_CHARS))
    rule = one_line(clean(str(code)), 60) if isinstance(code, str | int) else ""
    return Problem(line, column, severity == ERROR, message, rule)


def new_errors(now: Sequence[Problem], known: Sequence[Problem]) -> Iterator[Problem]:
    """Yield the errors that are not in `known`. Edits move lines, so compare by message: an error
    at another line is new only if there are more errors with its message than before.
    """
    left = Counter(known)
    others = [each for each in now if each.is_error and not _taken(left, each)]
    by_message = Counter[str]()
    for each, count in left.items():
        by_message[each.message] += count
    yield from (each for each in others if not _taken(by_message, each.message))


def _taken(counts: Counter[Any], key: object) -> bool:
    """Decrement the count of a key. Return False if it is zero."""
    if counts[key] <= 0:
        return False
    counts[key] -= 1
    return True
