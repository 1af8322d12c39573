"""The sweep: a search for the settings that cost least on recorded sessions, within a bound on the
results that are missed.

Each key is varied in turn, with the others at their best values so far, until nothing gets cheaper.
That takes a few times the sum of the numbers of values, where a full grid takes their product, and
tries nothing twice. Among values that cost the same, the present one stays.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence

from ..errors import UsageError
from ..lazy import dataclass, regex
from .results import Sums

MAX_AXIS_VALUES = 12
MAX_ROUNDS = 4  # each goes through all keys
MIN_RELATIVE_GAIN = 0.002  # of the dollars; a smaller gain counts as none

_SPAN = regex(r"(?P<low>[\d.]+%?)\.\.(?P<high>[\d.]+%?)(?:/(?P<count>\d+))?")


@dataclass(frozen=True, slots=True)
class Axis:
    """A key and the values to try, as they would stand in a settings file."""

    key: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Trial:
    """Settings that were tried, and their sums."""

    values: tuple[tuple[str, str], ...]  # by key
    sums: Sums
    within: bool  # the bound is kept, and no more sessions ended early than with settings as now

    @property
    def missed(self) -> float:
        """The share of all results that were needed after they had left the context."""
        return self.sums.missed_share


@dataclass(frozen=True, slots=True)
class SweepResult:
    """The outcome of a sweep."""

    now: Trial  # the settings as they are
    best: Trial | None  # the cheapest within the bound
    tried: tuple[Trial, ...]  # in their order


def parse_axis(text: str) -> Axis:
    """Return the axis of `KEY=LOW..HIGH`, `KEY=LOW..HIGH/COUNT` or `KEY=A,B,C`.

    Without a count, whole numbers go by ones and shares by 0.05; where that gives more than
    MAX_AXIS_VALUES values, that many are spread evenly. Raises UsageError.
    """
    key, equals, given = (part.strip() for part in text.partition("="))
    if not key or not equals or not given:
        raise UsageError(f"--sweep {text!r} is not KEY=VALUES", hint=_HINT)
    span = _SPAN.fullmatch(given)
    if not span and ".." in given:
        listed = ",".join(given.split(".."))
        hint = f"Name values that are no numbers one by one: --sweep {key}={listed}"
        raise UsageError(f"--sweep {text}: {given} is no span of numbers", hint=hint)
    values = _spread(text, *span.group("low", "high", "count")) if span else given.split(",")
    unique = tuple(dict.fromkeys(value.strip() for value in values))
    if not all(unique) or len(unique) > MAX_AXIS_VALUES:
        raise UsageError(f"--sweep {text}: from 1 to {MAX_AXIS_VALUES} values", hint=_HINT)
    return Axis(key, unique)


_HINT = "As in --sweep compact.at=0.6..0.95 --sweep microcompact.keep=1..8, or KEY=A,B,C."


def _spread(text: str, low: str, high: str, count: str | None) -> list[str]:
    try:
        first, last = (
            float(each.removesuffix("%")) / (100 if "%" in each else 1) for each in (low, high)
        )
    except ValueError:
        raise UsageError(f"--sweep {text}: {low}..{high} is not a span", hint=_HINT) from None
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

    `evaluate` returns the sums over all sessions with these values in place of the present ones;
    {} means the present settings. `bound` is the share of results that may be missed, None for no
    more than now. Values with the same `effect` are the same, however they are written. `on_trial`
    is called before each trial.
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
    """Return the lines for a settings file; `show` writes the value of a key as it stands there."""
    sections: dict[str, list[str]] = {}
    for key, value in found.values:
        section, _, name = key.partition(".")
        sections.setdefault(section, []).append(f"{name} = {show(key, value)}")
    return "\n\n".join("\n".join([f"[{name}]", *rows]) for name, rows in sections.items())
