"""The context over time as a drawing: a bar for each call of the model, as high as its prompt, and
a mark for each act of compaction between the calls. Lengths across are shares of the width, so that
letters keep their size on a phone and on a wall."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ..session.entries import Assistant, Entry, Mask, Revert, Summary, Usage, reverted_seqs
from .html import Html, element, joined

HEIGHT, TOP = 200, 24  # of the plot, and the room above it for the marks
_FEWEST = 12  # calls that the width has room for, however few there are
_CROWD = 30  # passes of masks that have a line each
_LABELS = 5  # on the axis of calls
_WORTH = 0.25  # of the window: a session that never fills as much is drawn to its own scale


@dataclass(frozen=True, slots=True)
class Scale:
    """The window in tokens, and its levels: the share below which each holds, and its name; what is
    above all of them is critical."""

    window: int
    levels: Sequence[tuple[float, str]] = ()

    @property
    def names(self) -> list[str]:
        return [*(name.lower() for _, name in self.levels), "critical"]

    def level(self, tokens: int) -> str:
        return self.names[sum(tokens >= below * self.window for below, _ in self.levels)]


@dataclass(frozen=True, slots=True)
class _Plot:
    """`top` is the tokens that the height stands for, `slots` the calls that the width does."""

    top: int
    slots: int

    def y(self, tokens: int) -> str:
        return f"{TOP + HEIGHT * (1 - min(tokens, self.top) / self.top):.1f}"

    def x(self, calls: float) -> str:
        return f"{100 * calls / self.slots:.4g}%"


def chart(entries: Sequence[Entry], scale: Scale | None, find: Callable[[int], str | None]) -> Html:
    """The figure, with its text. `find` gives the address of an entry in the page."""
    calls = [entry for entry in entries if isinstance(entry, Assistant)]
    if not calls:
        return element("p", "No call of the model yet.", class_="quiet")
    most = max(_prompt(call) for call in calls)
    whole = scale is not None and most >= _WORTH * scale.window
    top = max(most, scale.window) if scale and whole else _ceiling(most)
    plot = _Plot(top, max(len(calls), _FEWEST))
    told = _told(calls, entries, scale)
    marks = list(_marks(plot, entries, find))
    drawing = element(
        "svg",
        *_grid(plot, scale if whole else None),
        *(_bar(plot, n, call, scale, find) for n, call in enumerate(calls)),
        *(mark for _, mark in marks),
        *_axis(plot, len(calls)),
        role="img",
        aria_label=told,
        height=HEIGHT + TOP + 40,
        width="100%",
    )
    kinds = [kind for kind in _KINDS if any(kind == had for had, _ in marks)]
    legend = [element("span", _KINDS[kind], class_=f"key {kind}") for kind in kinds]
    if scale:
        had = {scale.level(_prompt(call)) for call in calls}
        levels = [level for level in scale.names if level in had]
        legend = [element("span", level, class_=f"key {level}") for level in levels] + legend
    caption = element("figcaption", told, " ", joined(legend))
    return element("figure", element("div", drawing, class_="plot"), caption, class_="chart")


_KINDS = {"mask": "results stubbed", "summary": "summary", "revert": "taken back"}


def _prompt(call: Assistant) -> int:
    return Usage.from_json(call.usage).prompt


def _told(calls: Sequence[Assistant], entries: Sequence[Entry], scale: Scale | None) -> str:
    sizes = [_prompt(call) for call in calls]
    of = f"; the window has {scale.window:,}" if scale else ""
    count = f"{len(calls):,} call{'s' * (len(calls) > 1)}"
    span = f"{max(sizes):,} tokens at most, {sizes[-1]:,} at the last"
    acts = sum(isinstance(entry, Mask | Summary) for entry in entries)
    shrunk = f"; made smaller {acts:,} time{'s' * (acts > 1)}" if acts else ""
    return f"Context at each call of the model: {count}, {span}{of}{shrunk}."


def _grid(plot: _Plot, scale: Scale | None) -> Iterator[Html]:
    """Lines across: the window and its quarters where it is the scale, else round numbers."""
    if scale:
        shares = (0.25, 0.5, 0.75, 1.0)
        lines = [(round(scale.window * s), "window" if s == 1 else "") for s in shares]
    else:
        lines = [(plot.top * n // 4, "") for n in range(1, 5)]
    for tokens, kind in [(0, "ground"), *lines]:
        y = plot.y(tokens)
        yield element("line", class_=f"grid {kind}".strip(), x1="0", x2="100%", y1=y, y2=y)
        yield element("text", short(tokens), class_="tokens", x="-6", y=y, dy="4")


def _bar(
    plot: _Plot,
    number: int,
    call: Assistant,
    scale: Scale | None,
    find: Callable[[int], str | None],
) -> Html:
    usage = Usage.from_json(call.usage)
    share = f" ({usage.prompt / scale.window:.0%} of the window)" if scale else ""
    why = "" if call.purpose == "turn" else f" · {call.purpose}"
    cached = f", {usage.cache_read:,} of them cached" if usage.cache_read else ""
    told = f"Call {number + 1:,} · #{call.seq}{why}\n{usage.prompt:,} tokens{share}{cached}"
    level = scale.level(usage.prompt) if scale else "green"
    side = 0.1 if plot.slots <= 100 else 0.0  # many bars stand wall to wall
    where = {"x": plot.x(number + side), "width": plot.x(1 - 2 * side)}
    y = plot.y(usage.prompt)
    height = f"{max(1.0, TOP + HEIGHT - float(y)):.1f}"
    kind = f"bar {level}" if call.purpose == "turn" else f"bar {level} aside"
    return element(
        "a",
        element("title", told),
        element("rect", class_="hit", y=TOP, height=HEIGHT, **where),
        element("rect", class_=kind, y=y, height=height, **where),
        class_="point",
        href=find(call.seq),
        tabindex="-1",
    )


def _marks(
    plot: _Plot, entries: Sequence[Entry], find: Callable[[int], str | None]
) -> Iterator[tuple[str, Html]]:
    """Each act of compaction where it happened, with its kind."""
    undone, calls, beside = reverted_seqs(entries), 0, 0
    crowded = sum(isinstance(entry, Mask) for entry in entries) > _CROWD
    for entry in entries:
        if isinstance(entry, Assistant):
            calls, beside = calls + 1, 0
        elif isinstance(entry, Mask | Summary | Revert):
            kind, told = _act(entry)
            gone = entry.seq in undone
            drawn = _tick if crowded and kind == "mask" else _flag
            yield (
                kind,
                element(
                    "a",
                    element("title", f"{told}\ntaken back later" if gone else told),
                    *drawn(plot.x(calls + min(0.25 * beside, 0.75))),
                    class_=f"act {kind}" + (" undone" if gone else ""),
                    href=find(entry.seq),
                    tabindex="-1",
                ),
            )
            beside += 1


def _act(entry: Mask | Summary | Revert) -> tuple[str, str]:
    """The kind of an act, and what it did."""
    if isinstance(entry, Revert):
        return "revert", f"#{entry.seq} · #{entry.target} taken back"
    size = f"{entry.tokens_before:,} to {entry.tokens_after:,} tokens"
    if isinstance(entry, Mask):
        return "mask", f"#{entry.seq} · {entry.layer}, {len(entry.targets):,} stubbed\n{size}"
    first, last = entry.covers
    return "summary", f"#{entry.seq} · summary of #{first} to #{last}\n{size}"


def _flag(x: str) -> Iterator[Html]:
    """A line through the plot that ends in a dot."""
    yield element("line", x1=x, x2=x, y1=TOP - 10, y2=TOP + HEIGHT)
    yield element("circle", cx=x, cy=TOP - 12, r=5)


def _tick(x: str) -> Iterator[Html]:
    """A line above the plot, for what comes so often that it would cover it."""
    yield element("line", x1=x, x2=x, y1=TOP - 17, y2=TOP - 8)


def _axis(plot: _Plot, calls: int) -> Iterator[Html]:
    step = max(5, _round_up(calls / _LABELS))
    few = calls <= 2 * _LABELS
    for number in range(1, calls + 1) if few else [1, *range(step, calls + 1, step)]:
        label = f"{number:,}"
        yield element("text", label, class_="call", x=plot.x(number - 0.5), y=TOP + HEIGHT + 16)
    yield element("text", "calls of the model", class_="name", x="0", y=TOP + HEIGHT + 34)


def _ceiling(most: int) -> int:
    """The least round number of tokens that is not below `most` and has quarters as round."""
    return 4 * _round_up(max(most, 4) / 4)


def _round_up(least: float) -> int:
    """The least of 1, 2, 5, 10, 20, 50 … that is not below."""
    power: int = 10 ** max(0, math.floor(math.log10(max(least, 1))))
    return next(n * power for n in (1, 2, 5, 10) if n * power >= least)


def short(tokens: int) -> str:
    """Tokens on an axis: 500, 12.5k, 1M."""
    for size, name in ((1_000_000, "M"), (1_000, "k")):
        if tokens >= size:
            return f"{tokens / size:.4g}{name}"
    return str(tokens)
