"""What is told of a run or of several, and how each figure is written: the same measures stand in
the terminal's table and in the page. Figures never look better than they are: a share is 100% only
when nothing is missing.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..outcome import Comparison, Run, Share, Sums, added

NOTHING = "-"  # where a figure has no meaning


@dataclass(frozen=True, slots=True)
class Figures:
    """The sums of one setting, over one recording or several. `asked` and `used` split what was
    missed; `ratio` is its dollars relative to the first setting."""

    label: str
    sums: Sums
    asked: int
    used: int
    ratio: float | None


@dataclass(frozen=True, slots=True)
class Measure:
    """`head` is for a narrow column, `name` for where there is room, `meaning` says it in full."""

    head: str
    name: str
    meaning: str
    value: Callable[[Figures], str]


def figures(labels: Sequence[str], runs: Sequence[Run]) -> list[Figures]:
    """Those of each setting that any of the runs is under, in the order of the labels."""
    found = {label: [run for run in runs if run.label == label] for label in labels}
    sums = {label: added(run.sums for run in under) for label, under in found.items()}
    first = sums[labels[0]].dollars if labels else 0.0
    return [
        Figures(
            label,
            sums[label],
            sum(need.how == "asked again" for run in under for need in run.needs),
            sum(need.how == "used" for run in under for need in run.needs),
            sums[label].dollars / first if first else None,
        )
        for label, under in found.items()
        if under
    ]


def summed(comparison: Comparison) -> list[Figures]:
    """Those over all recordings."""
    return figures(comparison.labels, [run for row in comparison.runs for run in row])


def tokens(count: float) -> str:
    """At most five characters: 812, 9.8k, 71k, 14.9M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= 0.9995 * size:
            value = count / size
            return f"{value:.0f}{unit}" if value >= 99.95 else f"{value:.1f}{unit}"
    return f"{count:.0f}"


def dollars(amount: float) -> str:
    return f"{amount:.4f}" if 0 < amount < 0.1 else f"{amount:,.2f}"


def percent(value: float | None) -> str:
    """A share, rounded down: what is not whole does not read as whole."""
    if value is None:
        return NOTHING
    if 0 < value < 0.01:
        return "<1%"
    if 0.99 < value < 1:
        return f"{min(math.floor(value * 1000), 999) / 10:.1f}%"
    return f"{math.floor(value * 100 + 1e-9)}%"


def relative(ratio: float | None) -> str:
    return NOTHING if ratio is None else f"{ratio:.2f}"


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _of(share: Share) -> str:
    return percent(share.value)


COST = (
    Measure(
        "calls", "Calls of the model", "Those that write a summary are among them.",
        lambda f: f"{f.sums.calls:,}{'!' if f.sums.stopped else ''}",
    ),
    Measure(
        "peak", "Largest context", "Tokens of the largest prompt.",
        lambda f: tokens(f.sums.peak),
    ),
    Measure(
        "mean", "Mean context", "Tokens of a prompt, over all calls.",
        lambda f: tokens(f.sums.mean),
    ),
    Measure(
        "sent", "Tokens sent", "All prompts together.",
        lambda f: tokens(f.sums.sent),
    ),
    Measure(
        "cached", "Read from the cache", "The share of the tokens sent that the cache had.",
        lambda f: percent(f.sums.cached),
    ),
    Measure(
        "dollars", "Cost in dollars",
        "At the model's prices, cache included, with what was missed and had to be read again.",
        lambda f: dollars(f.sums.dollars),
    ),
    Measure(
        "x", "Relative cost", "Dollars relative to the first setting.",
        lambda f: relative(f.ratio),
    ),
)  # fmt: skip
KEPT = (
    Measure(
        "edits", "Edits of history", "Times that older results or inputs were replaced by stubs.",
        lambda f: f"{f.sums.edits:,}",
    ),
    Measure(
        "stubs", "Stubs", "Results and inputs that were replaced.",
        lambda f: f"{f.sums.stubs:,}",
    ),
    Measure(
        "summ", "Summaries", "Times that a summary took the place of what was before.",
        lambda f: f"{f.sums.summaries:,}",
    ),
    Measure(
        "asked", "Asked for again", "Results that were gone, and that the session asked for again.",
        lambda f: f"{f.asked:,}",
    ),
    Measure(
        "used", "Used when gone", "Results that were gone when the session used their text.",
        lambda f: f"{f.used:,}",
    ),
    Measure(
        "cost", "Cost of those", "Dollars for asking again, among the cost above.",
        lambda f: dollars(f.sums.missed_usd),
    ),
    Measure(
        "paths", "Paths kept", "The share of the session's paths that the last context still has.",
        lambda f: _of(f.sums.paths),
    ),
    Measure(
        "errs", "Error lines kept",
        "The share of the session's error lines that the last context still has.",
        lambda f: _of(f.sums.errors),
    ),
    Measure(
        "exact", "Recovered exactly",
        "The share of all results whose text comes back by its ref, byte for byte.",
        lambda f: _of(f.sums.recovered),
    ),
)  # fmt: skip


def headline(comparison: Comparison) -> str:
    """The sentence that matters: what the cheapest setting costs of the first."""
    sums = summed(comparison)
    if not sums:
        return "No recording was played."
    first, best = sums[0], _cheapest(sums)
    over, cost = counted(len(comparison.runs), "session"), f"${dollars(best.sums.dollars)}"
    if best is first:
        return f"{best.label} costs {cost} over {over}."
    said = f"{best.label} costs {relative(best.ratio)} of {first.label} over {over}"
    said = f"{said}: {cost} instead of ${dollars(first.sums.dollars)}."
    ended = not first.sums.stopped and not best.sums.stopped
    return said if ended else f"{said} This is not of the same work."


def price(comparison: Comparison) -> str:
    """What that setting takes for it, and which sessions the sums lack; "" of nothing."""
    sums = summed(comparison)
    if not sums:
        return ""
    best = _cheapest(sums).sums
    lost = best.recovered.whole - best.recovered.part
    again = f"{counted(best.missed, 'result')} needed when gone"
    said = f"Largest context {tokens(best.peak)}; {again}; {counted(lost, 'result')} lost."
    told = [
        f"{counted(each.sums.stopped, 'session')} of {each.label}"
        for each in sums
        if each.sums.stopped
    ]
    return said + (f" Not played to the end: {', '.join(told)}." if told else "")


def whose(comparison: Comparison) -> str:
    """Whose prices and window count; "" of nothing."""
    played = next((run for row in comparison.runs for run in row), None)
    return f"As {played.model}, with a window of {tokens(played.window)}." if played else ""


def _cheapest(sums: Sequence[Figures]) -> Figures:
    """Of those that are compared with the first; the first itself where there is none."""
    others = [each for each in sums[1:] if each.ratio is not None]
    return min(others, key=lambda each: each.sums.dollars, default=sums[0])
