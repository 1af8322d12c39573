"""Figures for readers: amounts in a few characters, and the numbers of an axis."""

import math
from collections.abc import Sequence

NO_FIGURE = "-"  # shown if a figure is undefined
_AXIS_LABELS = 5


def axis_numbers(calls: int, min_step: int = 1) -> Sequence[int]:
    """Return the numbers of the calls with a label on the axis."""
    step = max(min_step, round_up(calls / _AXIS_LABELS))
    few = calls <= 2 * _AXIS_LABELS
    return range(1, calls + 1) if few else [1, *range(step, calls + 1, step)]


def round_up(least: float) -> int:
    """Return the smallest of 1, 2, 5, 10, 20, 50 … that is at least `least`."""
    power: int = 10 ** max(0, math.floor(math.log10(max(least, 1))))
    return next(n * power for n in (1, 2, 5, 10) if n * power >= least)


def short_tokens(tokens: int) -> str:
    """Format a number of tokens for an axis: 500, 12.5k, 1M."""
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if tokens >= size:
            return f"{tokens / size:.4g}{unit}"
    return str(tokens)


def format_tokens(count: float) -> str:
    """Format a number of tokens in at most five characters: 812, 9.8k, 71k, 14.9M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= 0.9995 * size:
            value = count / size
            return f"{value:.0f}{unit}" if value >= 99.95 else f"{value:.1f}{unit}"
    return f"{count:.0f}"


def format_dollars(amount: float) -> str:
    return f"{amount:.4f}" if 0 < amount < 0.1 else f"{amount:,.2f}"


def format_percent(value: float | None) -> str:
    """Format a share, rounded down, so that only 1 reads as 100%."""
    if value is None:
        return NO_FIGURE
    if 0 < value < 0.01:
        return "<1%"
    if 0.99 < value < 1:
        return f"{min(math.floor(value * 1000), 999) / 10:.1f}%"
    return f"{math.floor(value * 100 + 1e-9)}%"


def format_ratio(ratio: float | None) -> str:
    return NO_FIGURE if ratio is None else f"{ratio:.2f}"
