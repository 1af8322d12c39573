"""The charts of one recording: its context and its cost over the calls, a line for each setting,
and what fills the window, an area for each kind of content. Nothing is told by colour alone: lines
have dashes, acts have shapes, areas stand in the order of their legend.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, starmap

from ...export.chart import short
from ...export.html import Html, element
from ..results import Fill, ReplayRun
from .measures import count_of, format_dollars, format_tokens

HEIGHT, TOP, AXIS = 190, 8, 36  # pixels: the plane, the room above it, and that of the axis below
_LINES = 4  # across, about
_LABELS = 5  # on the axis of calls
_EACH = 4  # values that are kept of a stretch: first, least, largest, last

Point = tuple[int, int]  # call, value


@dataclass(frozen=True, slots=True)
class Frame:
    """`calls` is what the width stands for, `top` what the height does. `said` writes a value."""

    calls: int
    top: int
    said: Callable[[int], str]

    def across(self, number: float) -> str:
        """Where a call stands."""
        return f"{100 * min(max(number - 0.5, 0), self.calls) / self.calls:.4g}%"

    def up(self, value: float) -> str:
        return f"{TOP + HEIGHT * (1 - min(value, self.top) / self.top):.4g}"

    def drawing(
        self,
        told: str,
        paths: Iterable[Html],
        *,
        over: Iterable[Html] = (),
        below: Iterable[Html] = (),
        more: int = 0,
    ) -> Html:
        """The whole drawing. `told` says in words what it shows; `over` lies over the plane,
        `below` in the `more` pixels under the axis."""
        flipped = element("g", *paths, transform=f"matrix(1 0 0 -1 0 {self.top})")
        plane = element(
            "svg",
            flipped,
            class_="plane",
            y=TOP,
            width="100%",
            height=HEIGHT,
            viewBox=f"0.5 0 {self.calls} {self.top}",
            preserveAspectRatio="none",
        )
        height = TOP + HEIGHT + AXIS + more
        inside = (*self._grid(), plane, *over, *self._axis(), *below)
        return element(
            "svg", *inside, role="img", aria_label=told, height=height, width="100%", class_="whole"
        )

    def _grid(self) -> Iterator[Html]:
        step = rounded(self.top / _LINES)
        for n in range(math.floor(self.top / step) + 1):
            y = self.up(n * step)
            kind = "grid" if n else "grid ground"
            yield element("line", class_=kind, x1="0", x2="100%", y1=y, y2=y)
            yield element("text", self.said(n * step), class_="tokens", x="-6", y=y, dy="4")

    def _axis(self) -> Iterator[Html]:
        few = self.calls <= 2 * _LABELS
        step = max(1, rounded(self.calls / _LABELS))
        numbers = range(1, self.calls + 1) if few else (1, *range(step, self.calls + 1, step))
        y = TOP + HEIGHT + 16
        for number in numbers:
            yield element("text", f"{number:,}", class_="call", x=self.across(number), y=y)
        yield element("text", "calls of the model", x="0", y=y + 17)


def rounded(least: float) -> int:
    """The least of 1, 2, 5, 10, 20, 50 … that is not below."""
    power: int = 10 ** max(0, math.floor(math.log10(max(least, 1))))
    return next(n * power for n in (1, 2, 5, 10) if n * power >= least)


def kept(values: Sequence[int], most: int) -> list[int]:
    """Which of the values to draw so that the line looks the same: about `most` places, every peak
    among them."""
    if len(values) <= most:
        return list(range(len(values)))
    size = math.ceil(len(values) * _EACH / most)
    places: set[int] = set()
    for start in range(0, len(values), size):
        stretch = range(start, min(start + size, len(values)))
        places |= {stretch[0], stretch[-1]}
        places |= {min(stretch, key=values.__getitem__), max(stretch, key=values.__getitem__)}
    return sorted(places)


def path(points: Sequence[Point]) -> str:
    """A line through the points, as the data of a path."""
    if len(points) == 1:  # a line of no length is a dot
        points = [*points, *points]
    return "M" + "L".join(f"{x} {y}" for x, y in points)


def area(points: Sequence[Point]) -> str:
    """What lies below the points."""
    if len(points) == 1:  # as wide as a call
        x, y = points[0]
        return f"M{x - 0.5} 0V{y}H{x + 0.5}V0Z"
    return f"M{points[0][0]} 0L{path(points)[1:]}V0Z"


LAYERS = {
    "demote": "demoted",
    "microcompact": "cleared",
    "truncate": "inputs cut",
    "summary": "summary",
    "need": "needed when gone",
}
GROUPS = {  # kinds of content that are told as one, from the beginning of a prompt to its end
    "system": ("system", "tools", "instructions", "environment"),
    "summary": ("summary", "preserved", "pinned"),
    "words": ("words", "commands", "notes", "notices"),
    "replies": ("text", "thinking", "calls"),
    "stubs": ("stubs",),
    "results": ("results",),
    "other": ("other",),
}
_GROUP = {kind: group for group, kinds in GROUPS.items() for kind in kinds}
COLOURS = 6  # of lines; the seventh setting looks like the first again
_POINTS = 320  # of a line
_SLICES = 120  # of the areas
_MARKS = 160  # places across where marks are told apart
_LANE = 18  # pixels
_WORTH = 0.25  # of the window: contexts that stay below are drawn to their own scale
_MONEY = 10_000  # units of a dollar

Places = Mapping[str, int]  # of each label


def symbols() -> Html:
    """What the marks refer to, once for a page."""
    shapes = {
        "demote": element("circle", r="4.5"),
        "microcompact": element("path", d="M-5 -4H5L0 5Z"),
        "truncate": element("path", d="M-4 -4H4V4H-4Z"),
        "summary": element("path", d="M0 -7L6 0L0 7L-6 0Z"),
        "need": element("path", d="M-4 -4L4 4M4 -4L-4 4"),
    }
    marks = (element("g", shape, id=f"m-{kind}", class_=kind) for kind, shape in shapes.items())
    return element("svg", element("defs", *marks), width="0", height="0", class_="symbols")


def swatch(place: int) -> Html:
    """How the line of a setting looks."""
    line = element("line", x1="1", x2="25", y1="6", y2="6", class_=f"line s{place % COLOURS}")
    return element("svg", line, class_="swatch", width="26", height="12", aria_hidden="true")


def context(runs: Sequence[ReplayRun], places: Places) -> Html:
    """The context at each call, with the window, and below it what was done to keep it small."""
    values = [f"{format_tokens(peak)} at most" for peak in _peaks(runs)]
    shapes = element("ul", *starmap(_shape, happened(runs)), class_="keys marks")
    legend = [_legend(runs, places, values), *([shapes] if happened(runs) else [])]
    return _figure("Context", "tokens", context_drawing(runs, places), *legend)


def context_drawing(runs: Sequence[ReplayRun], places: Places) -> Html:
    """The drawing of it, without its legend."""
    most, window, peaks = _calls(runs), max(run.window for run in runs), _peaks(runs)
    top = max(peaks)
    if top >= _WORTH * window:
        top = max(top, window)
    frame = Frame(most, max(top, 1), short)
    drawn = [_line(_prompts(run), places[run.label]) for run in runs]
    lanes = [run for run in runs if run.acts or run.needs]
    below = [mark for n, run in enumerate(lanes) for mark in _lane(run, n, frame, places)]
    told = ", ".join(
        f"{run.label} {format_tokens(p)} at most" for run, p in zip(runs, peaks, strict=True)
    )
    return frame.drawing(
        f"Context over {count_of(most, 'call')}: {told}",
        drawn,
        over=_window(window, frame),
        below=below,
        more=_LANE * len(lanes) + 4,
    )


def happened(runs: Sequence[ReplayRun]) -> list[tuple[str, str]]:
    """The kinds of marks that the drawing has, each with its name."""
    had = {act.layer for run in runs for act in run.acts} | {"need" for r in runs if r.needs}
    return [(kind, said) for kind, said in LAYERS.items() if kind in had]


def cost(runs: Sequence[ReplayRun], places: Places) -> Html:
    """What the session has cost up to each call."""
    values = [f"${format_dollars(run.sums.dollars)}" for run in runs]
    return _figure("Cost", "money", cost_drawing(runs, places), _legend(runs, places, values))


def cost_drawing(runs: Sequence[ReplayRun], places: Places) -> Html:
    """The drawing of it, without its legend."""
    most = _calls(runs)
    sums = [_spent(run) for run in runs]
    frame = Frame(most, max(*(points[-1][1] for points in sums if points), 1), _money)
    drawn = [_line(points, places[r.label]) for r, points in zip(runs, sums, strict=True)]
    told = ", ".join(f"{run.label} ${format_dollars(run.sums.dollars)}" for run in runs)
    return frame.drawing(f"Cost over {count_of(most, 'call')}: {told}", drawn)


def fillings(runs: Sequence[ReplayRun], places: Places) -> list[Html]:
    """What fills the window under each setting, all to the same scale."""
    drawings = filling_drawings(runs)
    return [_filling(run, each, places) for run, each in zip(runs, drawings, strict=True)]


def filling_drawings(runs: Sequence[ReplayRun]) -> list[Html]:
    """The drawings of that."""
    frame = Frame(_calls(runs), max(1, *(max(_sizes(run)) for run in runs)), short)
    return [_areas(run, frame) for run in runs]


def _areas(run: ReplayRun, frame: Frame) -> Html:
    """One setting."""
    own = _sizes(run)
    shown = [run.fills[place] for place in kept(own, _SLICES)]
    levels = [list(accumulate(_grouped(fill).values())) for fill in shown]
    drawn, before = [], [0] * len(shown)
    for place, group in enumerate(GROUPS):
        heights = [level[place] for level in levels]
        if heights != before:
            points = [(fill.number, high) for fill, high in zip(shown, heights, strict=True)]
            drawn.append(element("path", d=area(points), class_=f"area {group}", data_group=group))
        before = heights
    told = f"What fills the window under {run.label}: {format_tokens(max(own))} at most"
    return frame.drawing(told, reversed(drawn))


def _filling(run: ReplayRun, drawing: Html, places: Places) -> Html:
    head = element("h4", swatch(places[run.label]), run.label, element("output", class_="at"))
    rest = f"{format_tokens(max(_sizes(run)))} at most"
    caption = element("figcaption", element("span", rest, class_="value", data_rest=rest))
    return element(
        "figure",
        head,
        element("div", drawing, class_="plot"),
        caption,
        class_="chart filling",
        data_unit="tokens",
        data_label=str(places[run.label]),
    )


def groups(runs: Iterable[ReplayRun]) -> Html:
    """The legend of the areas, from the bottom up."""
    keys = [element("li", element("i", class_=f"box {each}"), each) for each in filled(runs)]
    return element("ul", *keys, class_="keys")


def filled(runs: Iterable[ReplayRun]) -> list[str]:
    """The groups that the areas have, from the bottom up."""
    had = {group for run in runs for fill in run.fills for group, n in _grouped(fill).items() if n}
    return [group for group in GROUPS if group in had]


def _grouped(fill: Fill) -> dict[str, int]:
    """The tokens of each group, all of them there."""
    sums = dict.fromkeys(GROUPS, 0)
    for kind, size in fill.parts:
        sums[_GROUP.get(kind, "other")] += size
    return sums


def _calls(runs: Sequence[ReplayRun]) -> int:
    return max((call.number for run in runs for call in run.priced), default=1)


def _peaks(runs: Sequence[ReplayRun]) -> list[int]:
    """The largest prompt of each."""
    return [max((call.prompt for call in run.priced), default=0) for run in runs]


def _sizes(run: ReplayRun) -> list[int]:
    """The tokens of each of its fills."""
    return [sum(size for _, size in fill.parts) for fill in run.fills]


def _prompts(run: ReplayRun) -> list[Point]:
    return [(call.number, call.prompt) for call in run.priced]


def _spent(run: ReplayRun) -> list[Point]:
    """The dollars spent up to each call, in units; what was used when gone counts where it was."""
    extra: dict[int, float] = {}
    for need in run.needs:
        if need.how == "used":
            extra[need.number] = extra.get(need.number, 0.0) + need.dollars
    each = (call.dollars + extra.pop(call.number, 0.0) for call in run.priced)
    sums = accumulate(each)
    return [(c.number, round(s * _MONEY)) for c, s in zip(run.priced, sums, strict=True)]


def _money(units: float) -> str:
    """A place on the axis, which has little room."""
    amount = units / _MONEY
    return f"${amount:,.0f}" if amount == round(amount) else f"${format_dollars(amount)}"


def _line(points: Sequence[Point], place: int) -> Html:
    shown = [points[n] for n in kept([value for _, value in points], _POINTS)]
    if not shown:
        return Html("")
    return element("path", d=path(shown), class_=f"line s{place % COLOURS}", data_label=str(place))


def _window(window: int, frame: Frame) -> Iterator[Html]:
    if window <= frame.top:
        y = frame.up(window)
        yield element("line", class_="window", x1="0", x2="100%", y1=y, y2=y)
        said = f"window {short(window)}"
        yield element("text", said, class_="limit", x="100%", y=y, dy="13")


def _lane(run: ReplayRun, number: int, frame: Frame, places: Places) -> Iterator[Html]:
    """What was done under one setting, as marks in a row; those too close to tell are one."""
    y = TOP + HEIGHT + AXIS + _LANE * number + _LANE // 2
    place = places[run.label]
    marks: dict[tuple[int, str], list[tuple[int, str]]] = {}
    happened: list[tuple[int, str, str]] = [
        (act.number, act.layer, f"{format_tokens(act.before)} to {format_tokens(act.after)}")
        for act in run.acts
    ]
    happened += [(need.number, "need", need.how) for need in run.needs]
    for at, kind, said in sorted(happened, key=lambda each: (each[0], each[1])):
        marks.setdefault((at * _MARKS // frame.calls, kind), []).append((at, said))
    row = [element("line", class_="grid", x1="0", x2="100%", y1=y, y2=y)]
    row += [element("line", class_=f"line s{place % COLOURS}", x1="-34", x2="-10", y1=y, y2=y)]
    for (_, kind), each in marks.items():
        told = ", ".join(f"call {at:,}: {LAYERS[kind]}, {said}" for at, said in each[:3])
        told += f" and {len(each) - 3:,} more" if len(each) > 3 else ""
        where = {"x": frame.across(each[0][0]), "y": y}
        row.append(element("use", element("title", told), href=f"#m-{kind}", **where))
    yield element("g", *row, data_label=str(place), class_="lane")


def _legend(runs: Sequence[ReplayRun], places: Places, values: Sequence[str]) -> Html:
    """The lines, each with its value, in whose place the script puts that of a call."""
    keys = [
        element(
            "li",
            swatch(places[run.label]),
            element("span", run.label, class_="setting"),
            element("b", value, class_="value", data_rest=value),
            data_label=str(places[run.label]),
        )
        for run, value in zip(runs, values, strict=True)
    ]
    return element("ul", *keys, class_="keys lines")


def _shape(kind: str, said: str) -> Html:
    use = element("use", href=f"#m-{kind}", x="8", y="8")
    return element("li", element("svg", use, width="16", height="16"), said)


def _figure(title: str, unit: str, drawing: Html, *legend: Html) -> Html:
    head = element("h3", title, element("output", class_="at"))
    caption = element("figcaption", *legend)
    plot = element("div", drawing, class_="plot")
    return element("figure", head, plot, caption, class_="chart", data_unit=unit)
