"""The comparison as a terminal table: one column per setting, one row per measure over all
recordings, then one row with the cost of each recording.
"""

from collections.abc import Iterator

from ....tools.system.shorten import one_line
from ...export.text import clean
from ..results import Comparison
from .measures import (
    COST_MEASURES,
    KEPT_MEASURES,
    NO_FIGURE,
    figures_by_setting,
    format_dollars,
    thinking_measures,
    total_figures,
    without_extension,
)

MAX_NAME_CHARS, MAX_LABEL_CHARS = 40, 16

Row = tuple[str, ...]


def comparison_table(comparison: Comparison) -> tuple[Row, list[Row]]:
    """Return the header row and the body rows; both empty if nothing was played."""
    totals = total_figures(comparison)
    if not totals:
        return (), []
    measures = (*COST_MEASURES, *KEPT_MEASURES, *thinking_measures(totals))
    rows: list[Row] = [(each.name, *map(each.value, totals)) for each in measures]
    if len(comparison.runs) > 1:
        rows += _costs(comparison)
    return ("", *_heads(comparison)), rows


def long_labels(comparison: Comparison) -> list[str]:
    """Return one line for each setting shown as a number in the header row."""
    pairs = zip(_heads(comparison), comparison.labels, strict=True)
    return [f"{head} {clean(label)}" for head, label in pairs if head != clean(label)]


def _heads(comparison: Comparison) -> list[str]:
    return [
        label if len(label) <= MAX_LABEL_CHARS else f"[{number}]"
        for number, label in enumerate(map(clean, comparison.labels), 1)
    ]


def _costs(comparison: Comparison) -> Iterator[Row]:
    for runs in filter(None, comparison.runs):
        spent = {
            each.label: format_dollars(each.sums.dollars)
            for each in figures_by_setting(comparison.labels, runs)
        }
        name = one_line(clean(without_extension(runs[0].name)), MAX_NAME_CHARS) or "(no name)"
        yield (f"{name}: dollars", *(spent.get(label, NO_FIGURE) for label in comparison.labels))


def stopped_notes(comparison: Comparison) -> list[str]:
    """Return one line for each recording that was not played to the end."""
    return [
        clean(f"! {run.name}, {run.label}: stopped after {len(run.priced):,} calls: {run.stopped}")
        for row in comparison.runs
        for run in row
        if run.stopped
    ]
