"""The frame of a drawing over calls: a grid with what it measures, the axis of calls, and inside it
a plane in the data's own units, so that a path holds the figures themselves and a script can read
them there. Lengths across are shares of the width: letters and marks keep their size on any screen.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ...record.export.markup import Html, element

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
