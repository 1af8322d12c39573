"""Statistics of samples: rates with exact intervals, pass@k, and paired differences.

Attempts at one task are correlated, not independent. The interval of a rate is the exact binomial
interval (Clopper and Pearson) for the effective number of attempts (Korn and Graubard): the number
of independent attempts that would give the observed variance between tasks. Two runs are compared
by their difference at each task.
"""

import math
from collections.abc import Callable, Sequence

from ...api.base import dataclass

LEVEL = 0.95  # confidence level of all intervals
_TINY, _STEPS = 1e-300, 500


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its interval; `low` and `high` are None if there is no interval."""

    value: float
    low: float | None
    high: float | None


def pass_at_k(attempts: int, passed: int, k: int) -> float:
    """Return the unbiased estimate of the probability that at least one of k attempts passes: the
    share of all k-subsets of the attempts that contain a pass.
    """
    return 1.0 - math.comb(attempts - passed, k) / math.comb(attempts, k)


def rate(values: Sequence[float], attempts: int) -> Estimate:
    """Return the mean of the tasks' rates, with its interval. `attempts` is the maximum number of
    independent attempts over all tasks. The interval is for the population of tasks; with a single
    task, for that task.
    """
    tasks, mean = len(values), sum(values) / len(values)
    size = float(tasks if tasks > 1 else attempts)
    spread = _variance(values) / tasks if tasks > 1 else 0.0
    if spread > 0 and attempts > tasks:
        between = mean * (1 - mean) / spread
        correction = (t_quantile(attempts - 1) / t_quantile(tasks - 1)) ** 2
        size = min(max(between * correction, 1.0), float(attempts))
    return Estimate(mean, *clopper_pearson(mean * size, size))


def difference(values: Sequence[float]) -> Estimate:
    """Return the mean of the differences at each task, with its Student's t interval."""
    count, mean = len(values), sum(values) / len(values)
    spread = math.sqrt(_variance(values) / count) if count > 1 else 0.0
    if spread == 0:
        return Estimate(mean, None, None)
    reach = t_quantile(count - 1) * spread
    return Estimate(mean, mean - reach, mean + reach)


def sign_test(wins: int, losses: int) -> float:
    """Return the two-sided p-value of the exact sign test; the counts exclude ties."""
    count, less = wins + losses, min(wins, losses)
    below = sum(math.comb(count, number) for number in range(less + 1))
    return min(1.0, below / 2.0 ** (count - 1))


def clopper_pearson(passed: float, count: float) -> tuple[float, float]:
    """Return the exact binomial interval of a rate. The counts may be fractional."""
    tail = (1 - LEVEL) / 2
    failed = count - passed
    low = 0.0 if passed <= 0 else _solve(lambda x: beta(passed, failed + 1, x), tail)
    high = 1.0 if failed <= 0 else _solve(lambda x: beta(passed + 1, failed, x), 1 - tail)
    return low, high


def t_quantile(freedom: int) -> float:
    """Return the half-width of a Student's t interval in standard errors."""
    x = _solve(lambda x: beta(freedom / 2, 0.5, x), 1 - LEVEL)
    return math.sqrt(freedom * (1 / x - 1))


def beta(a: float, b: float, x: float) -> float:
    """Return the regularised incomplete beta function, by its continued fraction (Lentz)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - beta(b, a, 1 - x)
    scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(scale + a * math.log(x) + b * math.log1p(-x)) / a
    above, below, found = 1.0, 0.0, 1.0
    for step in range(_STEPS):
        half = step // 2
        if step == 0:
            term = 1.0
        elif step % 2 == 0:
            term = half * (b - half) * x / ((a + 2 * half - 1) * (a + 2 * half))
        else:
            term = -(a + half) * (a + b + half) * x / ((a + 2 * half) * (a + 2 * half + 1))
        below = 1 / ((1 + term * below) or _TINY)
        above = (1 + term / above) or _TINY
        found *= above * below
        if abs(1 - above * below) < 1e-13:
            break
    return front * (found - 1)


def _solve(rising: Callable[[float], float], target: float) -> float:
    """Return the x in [0, 1] at which an increasing function has the target value, by bisection."""
    low, high = 0.0, 1.0
    for _ in range(100):
        middle = (low + high) / 2
        if rising(middle) < target:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _variance(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values) / (len(values) - 1)
