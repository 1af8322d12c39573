"""Find the lines that an Edit with `lines` replaces.

The file may have changed since the model saw the numbers, also by an edit of the model itself. So
the first and the last line of the range must be as the call states them, and a range of the same
length with the same two lines must not occur anywhere else: then the numbers cannot mean another
place.
"""

from ..agent.errors import ToolError
from ..agent.lazy import dataclass, regex
from . import text as texts

MAX_RANGES_NAMED = 5  # other ranges listed in a message

_RANGE = regex(r"\s*(\d{1,9})(?:\s*-\s*(\d{1,9}))?\s*")
_NUMBERED = regex(r" *\d+\t")


@dataclass(frozen=True, slots=True)
class LineRange:
    """Lines of a file, from 1; the last one is included."""

    first: int
    last: int

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"

    @property
    def span(self) -> int:
        return self.last - self.first

    @classmethod
    def read(cls, text: str) -> "LineRange":
        """Return the range that a call states. Raises ToolError."""
        found = _RANGE.fullmatch(text)
        first = int(found[1]) if found else 0
        last = int(found[2] or first) if found else 0
        if not 1 <= first <= last:
            raise ToolError(f"lines is {text!r}. Give the first and last line, such as 12-40.")
        return cls(first, last)


def replaced_span(name: str, text: str, lines: LineRange, old: str) -> tuple[int, int]:
    """Return the start and the end of the lines in `text`, without the last line end.

    `old` has the first and the last line, or all lines. Raises ToolError if the lines are others,
    or if the same lines occur again.
    """
    rows, counts = texts.split(text), (min(lines.span + 1, 2), lines.span + 1)
    if lines.last > len(rows):
        raise ToolError(
            f"{name} has {len(rows):,} lines, so there are no lines {lines}. Nothing was changed."
        )
    readings = [each.split("\n") for each in (old, old.removesuffix("\n"))]
    wanted = [each for each in readings if len(each) in counts]
    if not wanted:
        raise ToolError(
            f"With lines={lines}, old_string has the first and the last of these lines, not "
            f"{len(readings[-1]):,} lines. Nothing was changed."
        )
    places = [n for n in range(1, len(rows) - lines.span + 1) if _fits(rows, n, lines, wanted)]
    if lines.first not in places:
        raise ToolError(_differs(name, rows, lines, wanted, places))
    if len(places) > 1:
        raise ToolError(_repeated(name, lines, places))
    start = sum(len(row) + 1 for row in rows[: lines.first - 1])
    return start, start + len("\n".join(rows[lines.first - 1 : lines.last]))


def _fits(rows: list[str], first: int, lines: LineRange, wanted: list[list[str]]) -> bool:
    """Return True if the range of this length that begins at `first` has wanted lines."""
    there = rows[first - 1 : first + lines.span]
    return there in wanted or [there[0], there[-1]] in wanted


def _differs(
    name: str, rows: list[str], lines: LineRange, wanted: list[list[str]], places: list[int]
) -> str:
    """Return why the lines are not the wanted ones: what is there now, and where they are."""
    ends = dict.fromkeys((lines.first, lines.last))
    shown = "\n".join(texts.number([rows[n - 1]], n) for n in ends)
    parts = [f"Lines {lines} of {name} differ from old_string. Nothing was changed. Now there:"]
    parts.append(shown)
    if all(map(_NUMBERED.match, wanted[-1])):
        parts.append("Leave the line numbers and the tab out of old_string.")
    elif places:
        parts.append(f"The lines of old_string are {_named(lines, places)} now.")
    return "\n".join(parts)


def _repeated(name: str, lines: LineRange, places: list[int]) -> str:
    others = [place for place in places if place != lines.first]
    return (
        f"{name} has the same first and last line also in {_named(lines, others)}, so the numbers "
        "alone would choose. Nothing was changed. Give a range that begins or ends with another "
        "line."
    )


def _named(lines: LineRange, places: list[int]) -> str:
    """Return the ranges of the same length at these places."""
    ranges = [str(LineRange(place, place + lines.span)) for place in places[:MAX_RANGES_NAMED]]
    more = " …" if len(places) > MAX_RANGES_NAMED else ""
    return f"lines {', '.join(ranges)}{more}"
