"""The parts of a drawing over the calls of a session: scales, lines, areas, and lanes with marks.

Nothing depends on colour alone: lines are dashed differently, and marks have shapes.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from markupsafe import Markup

from ..compaction.layers.known import known_layers, layer_named, ordered
from ..compaction.listed_edits import ListedEdit
from ..lazy import dataclass
from .templates import format_tokens, render, round_up

TOP, BOTTOM, AXIS_HEIGHT = 20, 210, 36  # pixels: edges of the plot area, height of the axis below
_LANE_HEIGHT = 18  # pixels
_GRID_LINES = 4  # approximate number of horizontal lines
_LINE_COLOURS = 7  # line styles; the eighth setting reuses the first
_MAX_LINE_POINTS = 320
_POINTS_PER_STRETCH = 4  # kept points: first, smallest, largest, last
_MARK_SLOTS = 160  # slots in a lane; marks of one kind in one slot are merged
OTHER = "other"  # mark of layers that are not loaded
_MARK_NAMES = {"need": "needed when gone", OTHER: "other"}
CallValue = tuple[int, int]  # number of a call, value at that call


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


def mark_name(kind: str) -> str:
    """Return the name of a mark: the effect of a layer, or another kind of event."""
    return _MARK_NAMES.get(kind) or layer_named(kind).heading()


def mark_kind(layer: str) -> str:
    """Return the kind of mark for a layer in a log."""
    return layer if any(each.name == layer for each in known_layers()) else OTHER


def draw(frame: Frame, label: str, across: str = "calls of the model", **parts: Any) -> Markup:
    """Render a drawing. `label` describes it as text; `across` names the horizontal axis. The parts
    are `lines`, `areas`, the `window`, and `lanes` with their height `below` the axis.
    """
    return render(
        "agent/pages/drawing.svg.j2",
        frame=frame,
        label=label,
        across=across,
        top=TOP,
        bottom=BOTTOM,
        height=BOTTOM + AXIS_HEIGHT + parts.pop("below", 0),
        line_class=line_class,
        **parts,
    )


def drawn_lines(lines: Iterable[tuple[int, Sequence[CallValue]]]) -> list[dict[str, Any]]:
    """Return the lines of a drawing; each has the place of its setting."""
    return [
        {"place": place, "data": line_path([points[n] for n in shown])}
        for place, points in lines
        if (shown := thinned([value for _, value in points], _MAX_LINE_POINTS))
    ]


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


def edit_lanes(edits: Sequence[ListedEdit], frame: Frame, place: int) -> list[dict[str, Any]]:
    """Return a lane with a mark for each edit; no lane without edits."""
    happened = [
        (
            edit.call,
            mark_kind(edit.layer),
            f"{format_tokens(edit.before)} to {format_tokens(edit.after)}"
            f"{', undone' if edit.is_undone else ''}",
        )
        for edit in edits
    ]
    return [drawn_lane(happened, 0, frame, place)] if happened else []


def edit_kinds(edits: Sequence[ListedEdit]) -> list[tuple[str, str]]:
    """Return (kind, name) for each kind of mark of these edits."""
    return [(kind, mark_name(kind)) for kind in ordered(mark_kind(edit.layer) for edit in edits)]


def lanes_height(lanes: int) -> int:
    """Return the height of the given number of lanes, in pixels."""
    return _LANE_HEIGHT * lanes + 4
