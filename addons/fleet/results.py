"""The results of an evaluation: pass rates in each cell of the matrix, cost per pass, comparisons.

They are formatted as tables and sentences, for the terminal and for a page. Predictions for the
SWE-bench harness have the patch of each task, by the ID of its line.
"""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ...api.base import RecordError, dataclass
from ...api.files import replace_file
from ...api.text import count_of
from .ledger import SCORED_KINDS, FleetFolder
from .summary import FleetSummary, TaskStatus

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


def write_predictions(
    path: Path, summary: FleetSummary, folder: FleetFolder, model: str
) -> list[Path]:
    """Write the predictions of all tasks whose agents have ended; return the files. The harness
    allows one prediction per task in a file. So each cell of the matrix and each attempt has its
    own file, with a suffix if there are several. Raises RecordError.
    """
    parts = defaultdict[str, list[dict[str, Any]]](list)
    for task in summary.tasks:
        part = task.id.partition("@")[2].replace("@", ".")
        if task.record is None or task.state not in ("done", "failed"):
            continue
        parts[part].append(_prediction(task, folder, task.line.cell or model))
    files = list[Path]()
    for part, predictions in parts.items():
        target = path.with_suffix(f".{part}{path.suffix}") if len(parts) > 1 else path
        try:
            replace_file(target, json.dumps(predictions, indent=1).encode("utf-8", "replace"))
        except OSError as error:
            raise RecordError(f"cannot write {target}: {error.strerror}") from error
        files.append(target)
    return files


def _prediction(task: TaskStatus, folder: FleetFolder, model: str) -> dict[str, Any]:
    """Return the prediction of a task; its patch is "" if it has none."""
    assert task.record is not None
    patch = folder.task(task.id, task.record.session).patch
    text = patch.read_bytes().decode("utf-8", "replace") if patch.exists() else ""
    return {
        "instance_id": task.line.name,
        "model_name_or_path": model,
        "model_patch": text,
    }


@dataclass(slots=True)
class TaskAttempts:
    """The attempts at a task that have a verdict."""

    verdicts: list[bool] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    dollars: float = 0.0
    calls: int = 0

    def add(self, task: TaskStatus, verdict: bool) -> None:
        """Add an attempt."""
        record, outcome = task.record, task.outcome
        self.verdicts.append(verdict)
        if outcome and outcome.score is not None:
            self.scores.append(outcome.score)
        if record:
            self.dollars += record.cost_usd
            self.calls += record.total("calls")

    @property
    def count(self) -> int:
        return len(self.verdicts)

    @property
    def passed(self) -> int:
        return sum(self.verdicts)

    @property
    def rate(self) -> float:
        """The share of passed attempts."""
        return self.passed / self.count


@dataclass(frozen=True)
class CellResults:
    """The results of one cell. Attempts without a verdict are excluded from all figures."""

    name: str
    tasks: Mapping[str, TaskAttempts]  # tasks with a verdict, by the IDs of their lines
    missing: Mapping[str, int]  # number of attempts without a verdict, by reason
    is_priced: bool

    @property
    def attempts(self) -> int:
        return sum(task.count for task in self.tasks.values())

    @property
    def passed(self) -> int:
        return sum(task.passed for task in self.tasks.values())

    @property
    def dollars(self) -> float:
        return sum(task.dollars for task in self.tasks.values())

    @property
    def calls(self) -> int:
        return sum(task.calls for task in self.tasks.values())

    @property
    def most_attempts(self) -> int:
        """The largest number of attempts with a verdict at one task."""
        return max((task.count for task in self.tasks.values()), default=0)

    def pass_at(self, k: int) -> tuple[Estimate, int] | None:
        """Return pass@k and the number of tasks with k attempts or more; None if there are none."""
        tasks = [task for task in self.tasks.values() if task.count >= k]
        if not tasks:
            return None
        values = [pass_at_k(task.count, task.passed, k) for task in tasks]
        return rate(values, sum(task.count // k for task in tasks)), len(tasks)

    @cached_property
    def mean_score(self) -> float | None:
        """The mean of the tasks' mean scores; None without scores."""
        means = [sum(t.scores) / len(t.scores) for t in self.tasks.values() if t.scores]
        return sum(means) / len(means) if means else None

    def per_pass(self, amount: float) -> float | None:
        """Return an amount of all attempts divided by the number of passed attempts; None if none
        passed.
        """
        return amount / self.passed if self.passed else None

    def to_json(self, ks: Iterable[int]) -> dict[str, Any]:
        """Return the results as JSON values, with pass@k for each of `ks`."""
        found = {k: self.pass_at(k) for k in ks}
        rates = {str(k): {**asdict(e[0]), "tasks": e[1]} for k, e in found.items() if e}
        dollars = self.dollars if self.is_priced else None
        return {
            "cell": self.name,
            "tasks": len(self.tasks),
            "attempts": self.attempts,
            "passed": self.passed,
            "without_verdict": dict(self.missing),
            "pass_at": rates,
            "mean_score": self.mean_score,
            "cost_usd": dollars,
            "cost_per_attempt": dollars and dollars / self.attempts,
            "cost_per_pass": None if dollars is None else self.per_pass(dollars),
            "turns_per_pass": self.per_pass(self.calls),
            "each": {
                id: {
                    "attempts": task.count,
                    "passed": task.passed,
                    "scores": task.scores,
                    "cost_usd": task.dollars if self.is_priced else None,
                    "turns": task.calls,
                }
                for id, task in self.tasks.items()
            },
        }


def verdict_of(task: TaskStatus) -> bool | None:
    """Return True if an attempt has passed, None without a verdict. Without a score in the
    manifest, a done task has passed.
    """
    outcome = task.outcome
    if outcome is None or task.state not in ("done", "failed"):
        return None
    if task.line.has_score:
        return outcome.passed
    if task.state == "done" or outcome.kind not in SCORED_KINDS:
        return True if task.state == "done" else None
    return False


def results_of(task_statuses: Sequence[TaskStatus]) -> list[CellResults]:
    """Return the results of each cell, in the order of the manifest."""
    cells: dict[str, dict[str, TaskAttempts]] = {}
    missing, unpriced = defaultdict[str, Counter[str]](Counter), set[str]()
    for task in task_statuses:
        cell, verdict = task.line.cell, verdict_of(task)
        tasks = cells.setdefault(cell, {})
        if verdict is None:
            kind = task.outcome.kind if task.outcome else ""
            missing[cell][kind or ("no score" if task.outcome else task.state)] += 1
            continue
        tasks.setdefault(task.line.name, TaskAttempts()).add(task, verdict)
        if task.record and not task.record.is_priced:
            unpriced.add(cell)
    return [
        CellResults(name, tasks, dict(missing[name]), name not in unpriced)
        for name, tasks in cells.items()
    ]


@dataclass(frozen=True, slots=True)
class RunComparison:
    """The comparison of two runs over the same tasks, paired by task. Differences are second minus
    first.
    """

    tasks: int
    wins: int  # number of tasks that the second run passes more often
    losses: int
    p_value: float  # of the sign test
    rate: Estimate  # difference of pass@1
    dollars: Estimate | None  # difference per attempt; None if a price is unknown
    turns: Estimate
    each: Mapping[str, tuple[float, float]]  # rates of each task in both runs

    @property
    def ties(self) -> int:
        return self.tasks - self.wins - self.losses

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as JSON values."""
        found = {name: getattr(self, name) for name in ("rate", "dollars", "turns")}
        return {
            "tasks": self.tasks,
            "wins": self.wins,
            "losses": self.losses,
            "ties": self.ties,
            "p_value": self.p_value,
            **{name: each and asdict(each) for name, each in found.items()},
            "each": {id: list(rates) for id, rates in self.each.items()},
        }


def compare(first: CellResults, second: CellResults) -> RunComparison | None:
    """Compare two runs by the tasks that both have; return None if there are none."""
    ids = [id for id in first.tasks if id in second.tasks]
    if not ids:
        return None
    pairs = [(first.tasks[id], second.tasks[id]) for id in ids]
    rates = [b.rate - a.rate for a, b in pairs]
    wins, losses = sum(rate > 0 for rate in rates), sum(rate < 0 for rate in rates)
    dollars = [b.dollars / b.count - a.dollars / a.count for a, b in pairs]
    is_priced = first.is_priced and second.is_priced
    return RunComparison(
        tasks=len(ids),
        wins=wins,
        losses=losses,
        p_value=sign_test(wins, losses),
        rate=difference(rates),
        dollars=difference(dollars) if is_priced else None,
        turns=difference([b.calls / b.count - a.calls / a.count for a, b in pairs]),
        each={id: (a.rate, b.rate) for id, (a, b) in zip(ids, pairs, strict=True)},
    )


def default_ks(cells: Sequence[CellResults]) -> tuple[int, ...]:
    """Return the default k of pass@k: 1 and the largest number of attempts at a task."""
    return tuple(sorted({1, max((cell.most_attempts for cell in cells), default=1) or 1}))


def results_table(
    cells: Sequence[CellResults], ks: Sequence[int], names: Sequence[str] = ()
) -> list[list[str]]:
    """Return a table with one row per cell."""
    has_scores = any(
        score not in (0, 1)
        for cell in cells
        for task in cell.tasks.values()
        for score in task.scores
    )
    rows = [
        ["", "passed", *(f"pass@{k}" for k in ks), *(["score"] if has_scores else []),
         "$/attempt", "$/pass", "turns/pass"]
    ]  # fmt: skip
    for name, cell in zip(names or [cell.name or "all" for cell in cells], cells, strict=True):
        score = "-" if cell.mean_score is None else f"{cell.mean_score:.3f}"
        rows.append([
            name, f"{cell.passed:,}/{cell.attempts:,}", *(_rate(cell, k) for k in ks),
            *([score] if has_scores else []),
            _dollars(cell, cell.attempts), _dollars(cell, cell.passed), _turns(cell),
        ])  # fmt: skip
    return rows


def comparison_lines(first: str, second: str, found: RunComparison) -> Iterator[str]:
    """Yield the conclusions of a comparison as lines."""
    yield (
        f"tasks with a verdict in both runs: {found.tasks:,}. {second} passes more often than "
        f"{first} in {found.wins:,}, less often in {found.losses:,}, equally often in "
        f"{found.ties:,}"
    )
    yield f"exact sign test: p = {found.p_value:.3g}"
    minus = f"{second} minus {first}"
    yield f"pass@1, {minus}: {_difference(found.rate, _points, ' percentage points')}"
    if found.dollars is None:
        yield "dollars per attempt: unknown, because no price is known for some calls"
    else:
        yield f"dollars per attempt, {minus}: {_difference(found.dollars, _money)}"
    yield f"turns per attempt, {minus}: {_difference(found.turns, lambda n: f'{n:+.2f}')}"


def _rate(cell: CellResults, k: int) -> str:
    if (found := cell.pass_at(k)) is None:
        return "-"
    estimate, tasks = found
    low, high = estimate.low or 0.0, estimate.high or 0.0
    text = f"{estimate.value:.0%} ({100 * low:.0f}-{100 * high:.0f})"
    return text if tasks == len(cell.tasks) else f"{text} of {count_of(tasks, 'task')}"


def _dollars(cell: CellResults, count: int) -> str:
    return f"{cell.dollars / count:,.4f}" if count and cell.is_priced else "-"


def _turns(cell: CellResults) -> str:
    return f"{cell.calls / cell.passed:,.1f}" if cell.passed else "-"


def _points(value: float) -> str:
    return f"{100 * value:+.1f}"


def _money(value: float) -> str:
    return f"{'-' if value < 0 else '+'}${abs(value):,.4f}"


def _difference(estimate: Estimate, text: Callable[[float], str], unit: str = "") -> str:
    """Return a difference with its interval as text. `text` formats a value without its unit."""
    difference = f"{text(estimate.value)}{unit}"
    if estimate.low is None or estimate.high is None:
        return f"{difference} (no interval, because it is the same for all tasks)"
    return f"{difference} (95 % interval: {text(estimate.low)} to {text(estimate.high)})"
