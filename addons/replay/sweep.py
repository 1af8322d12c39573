"""Search for the cheapest settings on recorded sessions, with a limit on missed results.

Each key is varied in turn, with the other keys at their best values so far, until the cost stops
falling. This needs a few times the sum of the numbers of values; a full grid would need their
product. No combination is tried twice. If several values cost the same, the current value is kept.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence

from ...api.base import UsageError, dataclass, regex
from .results import Sums

MAX_AXIS_VALUES = 12
MAX_ROUNDS = 4  # each goes through all keys
MIN_RELATIVE_GAIN = 0.002  # share of the dollars; a smaller gain is ignored

_SPAN = regex(r"(?P<low>[\d.]+%?)\.\.(?P<high>[\d.]+%?)(?:/(?P<count>\d+))?")


@dataclass(frozen=True, slots=True)
class Axis:
    """A settings key and the values to try, written as in a settings file."""

    key: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Trial:
    """Settings that were tried, and their sums."""

    values: tuple[tuple[str, str], ...]  # by key
    sums: Sums
    within: bool  # within the bound, and no more sessions stopped early than with current settings

    @property
    def missed(self) -> float:
        """The share of all results that were needed after they had left the context."""
        return self.sums.missed_share


@dataclass(frozen=True, slots=True)
class SweepResult:
    """The outcome of a sweep."""

    now: Trial  # the current settings
    best: Trial | None  # the cheapest within the bound
    tried: tuple[Trial, ...]  # in the order they were tried


def parse_axis(text: str) -> Axis:
    """Return the axis of `KEY=LOW..HIGH`, `KEY=LOW..HIGH/COUNT` or `KEY=A,B,C`.

    Without a count, the step is 1 for whole numbers and 0.05 for shares. If that gives more than
    MAX_AXIS_VALUES values, MAX_AXIS_VALUES evenly spaced values are used. Raises UsageError.
    """
    key, equals, given = (part.strip() for part in text.partition("="))
    if not key or not equals or not given:
        raise UsageError(f"--sweep {text!r} is not KEY=VALUES", hint=_HINT)
    span = _SPAN.fullmatch(given)
    if not span and ".." in given:
        listed = ",".join(given.split(".."))
        hint = f"List values that are not numbers one by one: --sweep {key}={listed}"
        raise UsageError(f"--sweep {text}: {given} is not a range of numbers", hint=hint)
    values = _spread(text, *span.group("low", "high", "count")) if span else given.split(",")
    unique = tuple(dict.fromkeys(value.strip() for value in values))
    if not all(unique) or len(unique) > MAX_AXIS_VALUES:
        raise UsageError(f"--sweep {text}: give 1 to {MAX_AXIS_VALUES} values", hint=_HINT)
    return Axis(key, unique)


_HINT = "Examples: --sweep compact.at=0.6..0.95 --sweep compact.keep_messages=1..8, or KEY=A,B,C."


def _spread(text: str, low: str, high: str, count: str | None) -> list[str]:
    try:
        first, last = (
            float(each.removesuffix("%")) / (100 if "%" in each else 1) for each in (low, high)
        )
    except ValueError:
        raise UsageError(f"--sweep {text}: {low}..{high} is not a range", hint=_HINT) from None
    whole = not any(mark in low + high for mark in ".%")
    if first >= last:
        raise UsageError(f"--sweep {text}: {low} is not less than {high}", hint=_HINT)
    step = 1.0 if whole else 0.05
    steps = int(count) - 1 if count else min(MAX_AXIS_VALUES - 1, round((last - first) / step))
    places = [first + (last - first) * n / max(1, steps) for n in range(max(1, steps) + 1)]
    return [str(round(each)) if whole else f"{each:.4g}" for each in places]


def sweep(
    axes: Sequence[Axis],
    evaluate: Callable[[Mapping[str, str]], Sums],
    bound: float | None,
    effect: Callable[[Mapping[str, str]], Hashable],
    on_trial: Callable[[Mapping[str, str]], None] = lambda values: None,
) -> SweepResult:
    """Find the cheapest values on the axes.

    `evaluate` returns the sums over all sessions with the given values; {} means the current
    settings. `bound` is the maximum share of missed results; None means the current share. Values
    with the same `effect` are tried once, even if they are written differently. `on_trial` is
    called before each trial.
    """
    trials: dict[Hashable, Trial] = {}

    def trial(values: Mapping[str, str]) -> Trial:
        key = effect(values)
        if key not in trials:
            on_trial(values)
            sums = evaluate(values)
            now = next((each.sums for each in trials.values()), sums)
            max_missed = now.missed_share if bound is None else bound
            within = sums.stopped <= now.stopped and sums.missed_share <= max_missed
            trials[key] = Trial(tuple(sorted(values.items())), sums, within)
        return trials[key]

    now = best = trial({})
    for _ in range(MAX_ROUNDS):
        before = best
        for each in axes:
            for value in each.values:
                candidate = trial({**dict(best.values), each.key: value})
                if _is_better(candidate, best):
                    best = candidate
        if best is before:
            break
    return SweepResult(now, best if best.within else None, tuple(trials.values()))


def _is_better(candidate: Trial, best: Trial) -> bool:
    if candidate.within != best.within:
        return candidate.within
    if not candidate.within:
        return (candidate.sums.stopped, candidate.missed) < (best.sums.stopped, best.missed)
    return candidate.sums.dollars < best.sums.dollars * (1 - MIN_RELATIVE_GAIN)


def settings_lines(found: Trial, show: Callable[[str, str], str]) -> str:
    """Return lines for a settings file; `show(key, value)` formats a value."""
    sections: dict[str, list[str]] = {}
    for key, value in found.values:
        section, _, name = key.partition(".")
        sections.setdefault(section, []).append(f"{name} = {show(key, value)}")
    return "\n\n".join("\n".join([f"[{name}]", *rows]) for name, rows in sections.items())
