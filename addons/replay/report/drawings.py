"""The charts of one recording: context and cost over the calls, with one line per setting, and the
contents of the window, with one area per kind. Nothing depends on colour alone: lines are dashed
differently, marks have shapes, areas are in the order of the legend.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from markupsafe import Markup

from ....api.context import ordered
from ....api.pages import (
    CallValue,
    Frame,
    area_path,
    draw,
    drawn_lane,
    drawn_lines,
    format_dollars,
    format_tokens,
    lanes_height,
    mark_name,
    short_tokens,
    thinned,
)
from ....api.text import count_of
from ..results import Fill, ReplayRun

_MAX_AREA_POINTS = 120
_MIN_WINDOW_SHARE = 0.25  # below this share, the scale ends at the largest context
_UNITS_PER_DOLLAR = 10_000

CONTENT_GROUPS = {  # kinds of content shown as one area, in the order of a prompt
    "system": ("system", "tools", "instructions", "skills", "plan", "environment"),
    "summary": ("summary", "preserved", "pinned"),
    "words": ("words", "commands", "notes", "notices"),
    "replies": ("text", "thinking", "calls"),
    "stubs": ("stubs",),
    "results": ("results", "images"),
    "other": ("other",),
}
_GROUP = {kind: group for group, kinds in CONTENT_GROUPS.items() for kind in kinds}

SettingPlaces = Mapping[str, int]  # the place of each setting, by its label


def context_drawing(runs: Sequence[ReplayRun], places: SettingPlaces) -> Markup:
    """Draw the context at each call and the window; below them, the compactions."""
    calls, window, peaks = _calls(runs), max(run.window for run in runs), _peaks(runs)
    top = max(peaks)
    if top >= _MIN_WINDOW_SHARE * window:
        top = max(top, window)
    frame = Frame(calls, max(top, 1), short_tokens)
    values = (f"{run.label} {value}" for run, value in zip(runs, context_values(runs), strict=True))
    lanes = [run for run in runs if run.acts or run.needs]
    return draw(
        frame,
        f"Context over {count_of(calls, 'call')}: {', '.join(values)}",
        lines=drawn_lines([(places[run.label], _prompts(run)) for run in runs]),
        window=window if window <= frame.top else 0,
        lanes=[_lane(run, number, frame, places[run.label]) for number, run in enumerate(lanes)],
        below=lanes_height(len(lanes)),
    )


def context_values(runs: Sequence[ReplayRun]) -> list[str]:
    return [f"{format_tokens(peak)} at most" for peak in _peaks(runs)]


def mark_names(runs: Sequence[ReplayRun]) -> list[tuple[str, str]]:
    """Return (kind, name) for each kind of mark in the context drawing."""
    kinds = ordered(act.layer for run in runs for act in run.acts)
    kinds += ["need"] if any(run.needs for run in runs) else []
    return [(kind, mark_name(kind)) for kind in kinds]


def cost_drawing(runs: Sequence[ReplayRun], places: SettingPlaces) -> Markup:
    """Draw the cumulative cost at each call."""
    calls = _calls(runs)
    spent = [(places[run.label], _spent(run)) for run in runs]
    frame = Frame(calls, max(*(points[-1][1] for _, points in spent if points), 1), _write_money)
    values = (f"{run.label} {value}" for run, value in zip(runs, cost_values(runs), strict=True))
    label = f"Cost over {count_of(calls, 'call')}: {', '.join(values)}"
    return draw(frame, label, lines=drawn_lines(spent))


def cost_values(runs: Sequence[ReplayRun]) -> list[str]:
    return [f"${format_dollars(run.sums.dollars)}" for run in runs]


def fill_drawings(runs: Sequence[ReplayRun]) -> list[Markup]:
    """Draw the contents of the window under each setting, all at the same scale."""
    frame = Frame(_calls(runs), max(1, *(max(_fill_sizes(run)) for run in runs)), short_tokens)
    return [
        draw(
            frame,
            f"What fills the window under {run.label}: {fill_peak(run)}",
            areas=list(_areas(run))[::-1],
        )
        for run in runs
    ]


def fill_peak(run: ReplayRun) -> str:
    return f"{format_tokens(max(_fill_sizes(run)))} at most"


def filled_groups(runs: Iterable[ReplayRun]) -> list[str]:
    """Return the content groups that the areas show, from the bottom up."""
    fills = [_grouped(fill) for run in runs for fill in run.fills]
    return [group for group in CONTENT_GROUPS if any(fill[group] for fill in fills)]


def _areas(run: ReplayRun) -> Iterator[dict[str, Any]]:
    """Yield the area of each group. Areas reach down to the axis, so each must be drawn behind the
    previous one.
    """
    shown = [run.fills[place] for place in thinned(_fill_sizes(run), _MAX_AREA_POINTS)]
    levels = [list(accumulate(_grouped(fill).values())) for fill in shown]
    before = [0] * len(shown)
    for place, group in enumerate(CONTENT_GROUPS):
        heights = [level[place] for level in levels]
        if heights != before:
            points = [(fill.number, high) for fill, high in zip(shown, heights, strict=True)]
            yield {"group": group, "data": area_path(points)}
        before = heights


def _lane(run: ReplayRun, number: int, frame: Frame, place: int) -> dict[str, Any]:
    """Return the lane with the marks of one setting."""
    happened = [
        (act.number, act.layer, f"{format_tokens(act.before)} to {format_tokens(act.after)}")
        for act in run.acts
    ]
    happened += [(need.number, "need", need.how) for need in run.needs]
    return drawn_lane(happened, number, frame, place)


def _grouped(fill: Fill) -> dict[str, int]:
    """Return the tokens of each group."""
    sums = dict.fromkeys(CONTENT_GROUPS, 0)
    for kind, size in fill.parts:
        sums[_GROUP.get(kind, "other")] += size
    return sums


def _calls(runs: Sequence[ReplayRun]) -> int:
    return max((call.number for run in runs for call in run.priced), default=1)


def _peaks(runs: Sequence[ReplayRun]) -> list[int]:
    return [max((call.prompt for call in run.priced), default=0) for run in runs]


def _fill_sizes(run: ReplayRun) -> list[int]:
    return [sum(size for _, size in fill.parts) for fill in run.fills]


def _prompts(run: ReplayRun) -> list[CallValue]:
    return [(call.number, call.prompt) for call in run.priced]


def _spent(run: ReplayRun) -> list[CallValue]:
    """Return the cumulative cost at each call, in units of 1/10,000 dollar. A result used after it
    had left the context adds the cost of getting it again to the call that used it.
    """
    extra: dict[int, float] = {}
    for need in run.needs:
        if need.how == "used":
            extra[need.number] = extra.get(need.number, 0.0) + need.dollars
    sums = accumulate(call.dollars + extra.pop(call.number, 0.0) for call in run.priced)
    pairs = zip(run.priced, sums, strict=True)
    return [(call.number, round(spent * _UNITS_PER_DOLLAR)) for call, spent in pairs]


def _write_money(units: float) -> str:
    """Format an amount compactly for an axis."""
    amount = units / _UNITS_PER_DOLLAR
    return f"${amount:,.0f}" if amount == round(amount) else f"${format_dollars(amount)}"
