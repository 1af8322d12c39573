"""The sweep: settings that cost least on recorded sessions, within a bound on what is missed.

Each key is varied in turn with the others as they are best so far, until nothing gets cheaper:
what a full grid would try in the product of their values, this tries in a few times their sum, and
nothing twice. Where values cost the same, the present one stays.
"""

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

from ..errors import UsageError
from .outcome import Sums

MOST = 12  # values of one key
ROUNDS = 4  # through all keys
WORTH = 0.002  # of the dollars: a smaller gain is none

_SPAN = re.compile(r"(?P<low>[\d.]+%?)\.\.(?P<high>[\d.]+%?)(?:/(?P<count>\d+))?")


@dataclass(frozen=True, slots=True)
class Axis:
    """A key and the values that are tried, as they would stand in a file of settings."""

    key: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Tried:
    """Settings that were tried, by key, and what they came to. `within` says that they keep to the
    bound, and that no session ended early which goes on as things stand."""

    values: tuple[tuple[str, str], ...]
    sums: Sums
    within: bool

    @property
    def missed(self) -> float:
        """Results that were needed after they were gone, as a share of all."""
        return _missed(self.sums)


@dataclass(frozen=True, slots=True)
class Found:
    """What a sweep found: `now` are the settings as they are, `best` the cheapest within the bound;
    None where none is. `tried` are all, in their order."""

    now: Tried
    best: Tried | None
    tried: tuple[Tried, ...]


def axis(text: str) -> Axis:
    """An axis from `KEY=LOW..HIGH`, `KEY=LOW..HIGH/COUNT` or `KEY=A,B,C`. Without a count, whole
    numbers go by ones and shares by 0.05 where that gives at most MOST values. Raises UsageError.
    """
    key, equals, given = (part.strip() for part in text.partition("="))
    if not key or not equals or not given:
        raise UsageError(f"--sweep {text!r} is not KEY=VALUES", hint=_HINT)
    span = _SPAN.fullmatch(given)
    values = _spread(text, *span.group("low", "high", "count")) if span else given.split(",")
    unique = tuple(dict.fromkeys(value.strip() for value in values))
    if not all(unique) or len(unique) > MOST:
        raise UsageError(f"--sweep {text}: from 1 to {MOST} values", hint=_HINT)
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
    steps = int(count) - 1 if count else min(MOST - 1, round((last - first) / step))
    places = [first + (last - first) * n / max(1, steps) for n in range(max(1, steps) + 1)]
    return [str(round(each)) if whole else f"{each:.4g}" for each in places]


def sweep(
    axes: Sequence[Axis],
    evaluate: Callable[[Mapping[str, str]], Sums],
    bound: float | None,
    meant: Callable[[Mapping[str, str]], Hashable],
    tell: Callable[[Mapping[str, str]], None] = lambda values: None,
) -> Found:
    """Go through the axes. `evaluate` gives the sums over all sessions with these settings beside
    those that stand, which is what {} means; `bound` is the share of results that may be missed,
    None for no more than now. Settings for which `meant` gives the same are the same, however they
    are written."""
    known: dict[Hashable, Tried] = {}

    def tried(values: Mapping[str, str]) -> Tried:
        same = meant(values)
        if same not in known:
            tell(values)
            sums = evaluate(values)
            first = next((each.sums for each in known.values()), sums)
            most = _missed(first) if bound is None else bound
            within = sums.stopped <= first.stopped and _missed(sums) <= most
            known[same] = Tried(tuple(sorted(values.items())), sums, within)
        return known[same]

    now = best = tried({})
    for _ in range(ROUNDS):
        before = best
        for each in axes:
            for value in each.values:
                candidate = tried({**dict(best.values), each.key: value})
                if _better(candidate, best):
                    best = candidate
        if best is before:
            break
    return Found(now, best if best.within else None, tuple(known.values()))


def _missed(sums: Sums) -> float:
    return sums.missed / max(1, sums.recovered.whole)


def _better(candidate: Tried, best: Tried) -> bool:
    if candidate.within != best.within:
        return candidate.within
    if not candidate.within:
        return (candidate.sums.stopped, candidate.missed) < (best.sums.stopped, best.missed)
    return candidate.sums.dollars < best.sums.dollars * (1 - WORTH)


def lines(found: Tried, show: Callable[[str, str], str]) -> str:
    """The lines for a file of settings, sections in the order of their names; `show` writes the
    value of a key as it stands there."""
    sections: dict[str, list[str]] = {}
    for key, value in found.values:
        section, _, name = key.partition(".")
        sections.setdefault(section, []).append(f"{name} = {show(key, value)}")
    return "\n\n".join("\n".join([f"[{name}]", *rows]) for name, rows in sections.items())
