"""The table of a comparison, for a terminal: a line for each recording and setting, the sum last.

If the width has no room for all columns, there are grids below each other: the cost, what was kept
and lost, and the thinking that was dropped.
"""

import textwrap
from collections.abc import Iterator, Sequence

from ....tools.system.unicode import cell_width
from ...export.text import clean
from ..results import Comparison, Share
from .measures import (
    COST_MEASURES,
    KEPT_MEASURES,
    Figures,
    Measure,
    figures_by_setting,
    headline,
    model_sentence,
    price_sentence,
    thinking_measures,
    total_figures,
    without_extension,
)

_MIN_NAME_CELLS = 18  # for the name of a recording
_MAX_NAME_CELLS = 40
_GAP, _NARROW_GAP = "  ", " "  # between columns

TableRow = tuple[str, Figures]  # the name is "" where it is that of the row above


def comparison_table(comparison: Comparison, width: int = 80) -> str:
    """Return the whole text, no line of it wider than `width` cells (80 or more)."""
    rows, totals = _rows(comparison), total_figures(comparison)
    summary = f"{headline(comparison)} {price_sentence(comparison)} {model_sentence(comparison)}"
    lines = textwrap.wrap(one_line(summary), width)
    if not totals:
        return "\n".join(lines)
    labels = {label: one_line(label) for label in comparison.labels}
    if _label_room(labels) > width // 4:
        lines += _key(labels, width)
        labels = {label: f"[{n}]" for n, label in enumerate(comparison.labels, 1)}
    total = _titled("SUM", totals)
    if len(comparison.runs) == 1:  # its rows are the sum
        rows, total = [], _titled(rows[0][0], totals)
    thinking = thinking_measures(totals)
    together = (*COST_MEASURES, *KEPT_MEASURES, *thinking)
    needed = _figures_room(together, rows + total, _NARROW_GAP) + _label_room(labels)
    fits = needed + _MIN_NAME_CELLS <= width
    for measures in [together] if fits else filter(None, (COST_MEASURES, KEPT_MEASURES, thinking)):
        lines += ["", *_grid(measures, rows, total, labels, width)]
    lines += _stopped(comparison, width)
    lines += ["", *_legend(comparison, width)]
    return "\n".join(lines)


def one_line(text: str) -> str:
    """Return a text on one line, without characters that act on a terminal."""
    return " ".join(clean(text).split())


def text_width(text: str) -> int:
    """Return the number of terminal cells that a text takes."""
    return sum(map(cell_width, text))


def fit_cells(text: str, room: int) -> str:
    """Pad a text to `room` cells, or cut out its middle, as names differ at both ends."""
    if text_width(text) > room:
        head, tail = _head(text, (room - 1) // 2), _head(text[::-1], room // 2)[::-1]
        text = f"{head}~{tail}"
    return text + " " * (room - text_width(text))


def _head(text: str, room: int) -> str:
    """Return as much of the beginning of a text as fits into `room` cells."""
    for end, character in enumerate(text):
        room -= cell_width(character)
        if room < 0:
            return text[:end]
    return text


def _rows(comparison: Comparison) -> list[TableRow]:
    rows: list[TableRow] = []
    for runs in filter(None, comparison.runs):
        name = without_extension(one_line(runs[0].name)) or "(no name)"
        rows += _titled(name, figures_by_setting(comparison.labels, runs))
    return rows


def _titled(title: str, figures: Sequence[Figures]) -> list[TableRow]:
    return [(title if n == 0 else "", each) for n, each in enumerate(figures)]


def _label_room(labels: dict[str, str]) -> int:
    return len(_GAP) + max(map(text_width, labels.values()))


def _widths(measures: Sequence[Measure], rows: Sequence[TableRow]) -> list[int]:
    return [max(len(m.head), *(len(m.value(each)) for _, each in rows)) for m in measures]


def _figures_room(measures: Sequence[Measure], rows: Sequence[TableRow], gap: str = _GAP) -> int:
    return sum(_widths(measures, rows)) + len(gap) * len(measures)


def _grid(
    measures: Sequence[Measure],
    rows: Sequence[TableRow],
    total: Sequence[TableRow],
    labels: dict[str, str],
    width: int,
) -> Iterator[str]:
    both = [*rows, *total]
    rest, longest = width - _label_room(labels), max(text_width(name) for name, _ in both)
    tight = rest - _figures_room(measures, both) < min(longest, _MIN_NAME_CELLS)
    gap = _NARROW_GAP if tight else _GAP
    room = rest - _figures_room(measures, both, gap)
    name = min(longest, max(room, 0), _MAX_NAME_CELLS)
    widths, label = _widths(measures, both), _label_room(labels) - len(_GAP)

    def row(first: str, second: str, values: Sequence[str]) -> str:
        each = (value.rjust(size) for value, size in zip(values, widths, strict=True))
        return gap.join((fit_cells(first, name) + _GAP + fit_cells(second, label), *each))

    yield row("", "", [measure.head for measure in measures])
    for group in filter(None, (rows, total)):
        if group is total and rows:
            yield "=" * (name + len(_GAP) + label + _figures_room(measures, both, gap))
        for title, each in group:
            yield row(title, labels[each.label], [measure.value(each) for measure in measures])


def _key(labels: dict[str, str], width: int) -> Iterator[str]:
    yield ""
    for number, label in enumerate(labels.values(), 1):
        yield from textwrap.wrap(f"[{number}] {label}", width, subsequent_indent="    ")


def _stopped(comparison: Comparison, width: int) -> Iterator[str]:
    notes = [
        f"! {one_line(run.name)}, {one_line(run.label)}: stopped after {len(run.priced):,} calls: "
        f"{one_line(run.stopped)}"
        for row in comparison.runs
        for run in row
        if run.stopped
    ]
    for each in [""][: len(notes)] + notes:
        yield from textwrap.wrap(each, width, subsequent_indent="  ") or [""]


def _legend(comparison: Comparison, width: int) -> list[str]:
    first = one_line(comparison.labels[0])
    text = (
        f"Tokens are estimates. x: dollars relative to {first}. edits: times that results "
        "were cleared or inputs cut short. asked, used: results that were gone when the session "
        "asked for them again (also by Recall), or used their text; cost: what that costs, "
        "among the dollars. "
        "facts: names, paths, values and words of errors that were gone when the session wrote "
        "them. "
        "paths, errs: the share of paths and of error lines in the last context. exact: results "
        "that come back byte for byte."
    )
    told = sum((run.thinking.told for row in comparison.runs for run in row), Share())
    if thinking_measures(total_figures(comparison)):
        text += (
            " think: tokens of thinking that edits drop where a model binds it to what stands "
            "before; saved: for not sending it; again: to think all of it again. Neither is among "
            "the dollars, since what must be thought again is not known. Thinking is told for "
            f"{told.value or 0:.0%} of the replies, as output beyond words and calls."
        )
    return textwrap.wrap(text, width)
