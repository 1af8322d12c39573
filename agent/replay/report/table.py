"""The comparison as plain text for a terminal: a line for each recording and setting, the sum last.

Where the width has no room for all columns side by side, they stand in two grids, first what it
costs, then what was kept and lost.
"""

import re
import textwrap
import unicodedata
from collections.abc import Iterator, Sequence

from ...record.export.markup import clean
from ..outcome import Comparison
from .measures import COST, KEPT, Figures, Measure, figures, headline, price, summed, whose

_LEAST = 18  # cells for the name of a recording
_LONGEST = 40  # cells that such a name is given where there is room
_GAP, _CLOSE = "  ", " "  # between columns, where there is room and where there is little

_ENDING = re.compile(r"(?<=.)(\.(jsonl?|traj))?(\.gz)?$")  # which tells sessions apart for nobody

Row = tuple[str, Figures]  # the name, "" where it is that of the row above


def table(comparison: Comparison, width: int = 80) -> str:
    """The whole text, no line of it wider than `width` cells (80 or more)."""
    rows, total = _rows(comparison), [("SUM", each) for each in summed(comparison)]
    total = [(name if n == 0 else "", each) for n, (name, each) in enumerate(total)]
    told = f"{headline(comparison)} {price(comparison)} {whose(comparison)}"
    lines = textwrap.wrap(line(told), width)
    if not total:
        return "\n".join(lines)
    labels = {label: line(label) for label in comparison.labels}
    if _label_room(labels) > width // 4:
        lines += _key(labels, width)
        labels = {label: f"[{n}]" for n, label in enumerate(comparison.labels, 1)}
    if len(comparison.runs) == 1:  # which is the sum
        rows, total = [], [(rows[0][0] if n == 0 else "", e) for n, (_, e) in enumerate(total)]
    together = (*COST, *KEPT)
    fits = _figures_room(together, rows + total, _CLOSE) + _label_room(labels) + _LEAST <= width
    for measures in [together] if fits else [COST, KEPT]:
        lines += ["", *_grid(measures, rows, total, labels, width)]
    lines += _stopped(comparison, width)
    lines += ["", *_legend(comparison, width)]
    return "\n".join(lines)


def line(text: str) -> str:
    """A text on one line, with nothing in it that acts on a terminal."""
    return " ".join(clean(text).split())


def cells(text: str) -> int:
    """How many columns of a terminal a text takes."""
    return sum(_width(character) for character in text)


def fitted(text: str, room: int) -> str:
    """The text filled up to so many cells, or without its middle: names differ at both ends."""
    if cells(text) > room:
        head, tail = _taken(text, (room - 1) // 2), _taken(text[::-1], room // 2)[::-1]
        text = f"{head}~{tail}"
    return text + " " * (room - cells(text))


def _taken(text: str, room: int) -> str:
    """As much of the beginning as fits."""
    for end, character in enumerate(text):
        room -= _width(character)
        if room < 0:
            return text[:end]
    return text


def _width(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _rows(comparison: Comparison) -> list[Row]:
    return [
        ((_ENDING.sub("", line(row[0].name)) or "(no name)") if n == 0 else "", each)
        for row in comparison.runs
        if row
        for n, each in enumerate(figures(comparison.labels, row))
    ]


def _label_room(labels: dict[str, str]) -> int:
    return len(_GAP) + max(cells(label) for label in labels.values())


def _widths(measures: Sequence[Measure], rows: Sequence[Row]) -> list[int]:
    return [
        max(len(measure.head), *(len(measure.value(each)) for _, each in rows))
        for measure in measures
    ]


def _figures_room(measures: Sequence[Measure], rows: Sequence[Row], gap: str = _GAP) -> int:
    return sum(_widths(measures, rows)) + len(gap) * len(measures)


def _grid(
    measures: Sequence[Measure],
    rows: Sequence[Row],
    total: Sequence[Row],
    labels: dict[str, str],
    width: int,
) -> Iterator[str]:
    both = [*rows, *total]
    rest, longest = width - _label_room(labels), max(cells(name) for name, _ in both)
    tight = rest - _figures_room(measures, both) < min(longest, _LEAST)
    gap = _CLOSE if tight else _GAP
    room = rest - _figures_room(measures, both, gap)
    name = min(longest, max(room, 0), _LONGEST)
    widths, label = _widths(measures, both), _label_room(labels) - len(_GAP)

    def laid(first: str, second: str, values: Sequence[str]) -> str:
        each = (value.rjust(size) for value, size in zip(values, widths, strict=True))
        return gap.join((fitted(first, name) + _GAP + fitted(second, label), *each))

    yield laid("", "", [measure.head for measure in measures])
    for group in filter(None, (rows, total)):
        if group is total and rows:
            yield "=" * (name + len(_GAP) + label + _figures_room(measures, both, gap))
        for said, each in group:
            yield laid(said, labels[each.label], [measure.value(each) for measure in measures])


def _key(labels: dict[str, str], width: int) -> Iterator[str]:
    yield ""
    for number, label in enumerate(labels.values(), 1):
        yield from textwrap.wrap(f"[{number}] {label}", width, subsequent_indent="    ")


def _stopped(comparison: Comparison, width: int) -> Iterator[str]:
    told = [
        f"! {line(run.name)}, {line(run.label)}: stopped after {len(run.priced):,} calls: "
        f"{line(run.stopped)}"
        for row in comparison.runs
        for run in row
        if run.stopped
    ]
    for each in [""][: len(told)] + told:
        yield from textwrap.wrap(each, width, subsequent_indent="  ") or [""]


def _legend(comparison: Comparison, width: int) -> list[str]:
    first = line(comparison.labels[0])
    said = (
        f"Tokens are estimates. x: dollars relative to {first}. edits: times that results or "
        "inputs became stubs. asked, used: results that were gone when the session asked for them "
        "again, or used their text; cost: what that costs, among the dollars. paths, errs: the "
        "share of paths and of error lines in the last context. exact: results that come back byte "
        "for byte."
    )
    return textwrap.wrap(said, width)
