"""Format results as tables and sentences, for the terminal and for a page."""

from collections.abc import Callable, Iterator, Sequence

from ...tools.system.plural import count_of
from .results import CellResults, RunComparison
from .statistics import Estimate


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
