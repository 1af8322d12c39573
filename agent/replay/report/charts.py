"""The charts of one recording: context and cost over the calls, with one line per setting, and the
contents of the window, with one area per kind. Nothing depends on colour alone: lines are dashed
differently, marks have shapes, areas are in the order of the legend.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from markupsafe import Markup

from ....tools.system.plural import count_of
from ...compaction.layers.known import known_layers, layer_named, ordered
from ...export.chart import axis_numbers, round_up, short_tokens
from ...export.templates import render
from ...lazy import dataclass
from ..results import Fill, ReplayRun
from .measures import format_dollars, format_tokens

TOP, BOTTOM, AXIS_HEIGHT = 20, 210, 36  # pixels: edges of the plot area, height of the axis below
_LANE_HEIGHT = 18  # pixels
_GRID_LINES = 4  # approximate number of horizontal lines
_LINE_COLOURS = 7  # line styles; the eighth setting reuses the first
_MAX_LINE_POINTS = 320
_MAX_AREA_POINTS = 120
_POINTS_PER_STRETCH = 4  # kept points: first, smallest, largest, last
_MARK_SLOTS = 160  # slots in a lane; marks of one kind in one slot are merged
_MIN_WINDOW_SHARE = 0.25  # below this share, the scale ends at the largest context
_UNITS_PER_DOLLAR = 10_000

OTHER = "other"  # mark of layers that are not loaded
_MARK_NAMES = {"need": "needed when gone", OTHER: "other"}
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

CallValue = tuple[int, int]  # number of a call, value at that call
SettingPlaces = Mapping[str, int]  # the place of each setting, by its label


@dataclass(frozen=True, slots=True)
class Frame:
    """The scales of a drawing."""

    calls: int  # number of calls across the width
    top: int  # value at the top edge
    write: Callable[[int], str]  # formats a value

    def x(self, call: float) -> str:
        return f"{100 * min(max(call - 0.5, 0), self.calls) / self.calls:.4g}%"

    def y(self, value: float) -> str:
        return f"{TOP + (BOTTOM - TOP) * (1 - min(value, self.top) / self.top):.4g}"

    def grid(self) -> Sequence[int]:
        """Return the values of the horizontal grid lines."""
        step = round_up(self.top / _GRID_LINES)
        return range(0, self.top + 1, step)


def thinned(values: Sequence[int], most: int) -> list[int]:
    """Return about `most` indexes of values that preserve the shape of the line, including every
    peak.
    """
    if len(values) <= most:
        return list(range(len(values)))
    size = math.ceil(len(values) * _POINTS_PER_STRETCH / most)
    places: set[int] = set()
    for start in range(0, len(values), size):
        stretch = range(start, min(start + size, len(values)))
        places |= {stretch[0], stretch[-1]}
        places |= {min(stretch, key=values.__getitem__), max(stretch, key=values.__getitem__)}
    return sorted(places)


def line_path(points: Sequence[CallValue]) -> str:
    """Return the path data of a line through the points."""
    if len(points) == 1:  # a line of no length is a dot
        points = [*points, *points]
    return "M" + "L".join(f"{x} {y}" for x, y in points)


def area_path(points: Sequence[CallValue]) -> str:
    """Return the path data of the area below the points."""
    if len(points) == 1:  # one call wide
        x, y = points[0]
        return f"M{x - 0.5} 0V{y}H{x + 0.5}V0Z"
    return f"M{points[0][0]} 0L{line_path(points)[1:]}V0Z"


def line_class(place: int) -> str:
    """Return the CSS class for the line of a setting."""
    return f"s{place % _LINE_COLOURS}"


def swatch(place: int) -> Markup:
    """Return a short sample of a setting's line for the legend."""
    return Markup(
        '<svg class="swatch" width="26" height="12" aria-hidden="true">'
        f'<line class="line {line_class(place)}" x1="1" x2="25" y1="6" y2="6"/></svg>'
    )


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


def mark_name(kind: str) -> str:
    """Return the name of a mark: the effect of a layer, or another kind of event."""
    return _MARK_NAMES.get(kind) or layer_named(kind).heading()


def mark_kind(layer: str) -> str:
    """Return the kind of mark for a layer in a log."""
    return layer if any(each.name == layer for each in known_layers()) else OTHER


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


def draw(frame: Frame, label: str, across: str = "calls of the model", **parts: Any) -> Markup:
    """Render a drawing. `label` describes it as text; `across` names the horizontal axis. The parts
    are `lines`, `areas`, the `window`, and `lanes` with their height `below` the axis.
    """
    return render(
        "replay/report/drawing.svg.j2",
        frame=frame,
        label=label,
        across=across,
        top=TOP,
        bottom=BOTTOM,
        height=BOTTOM + AXIS_HEIGHT + parts.pop("below", 0),
        axis_numbers=axis_numbers,
        line_class=line_class,
        short_tokens=short_tokens,
        **parts,
    )


def drawn_lines(lines: Iterable[tuple[int, Sequence[CallValue]]]) -> list[dict[str, Any]]:
    """Return the lines of a drawing; each has the place of its setting."""
    return [
        {"place": place, "data": line_path([points[n] for n in shown])}
        for place, points in lines
        if (shown := thinned([value for _, value in points], _MAX_LINE_POINTS))
    ]


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


def drawn_lane(
    happened: Iterable[tuple[int, str, str]], number: int, frame: Frame, place: int
) -> dict[str, Any]:
    """Return lane `number` with a mark for each (call, kind, text). Marks of one kind that are too
    close together are merged.
    """
    slots: dict[tuple[int, str], list[tuple[int, str]]] = {}
    for call, kind, text in sorted(happened, key=lambda each: (each[0], each[1])):
        slots.setdefault((call * _MARK_SLOTS // frame.calls, kind), []).append((call, text))
    marks = []
    for (_, kind), each in slots.items():
        title = ", ".join(f"call {call:,}: {mark_name(kind)}, {text}" for call, text in each[:3])
        title += f" and {len(each) - 3:,} more" if len(each) > 3 else ""
        marks.append({"kind": kind, "number": each[0][0], "title": title})
    y = BOTTOM + AXIS_HEIGHT + _LANE_HEIGHT * number + _LANE_HEIGHT // 2
    return {"place": place, "y": y, "marks": marks}


def lanes_height(lanes: int) -> int:
    """Return the height of the given number of lanes, in pixels."""
    return _LANE_HEIGHT * lanes + 4


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
