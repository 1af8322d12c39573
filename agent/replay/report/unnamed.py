"""A comparison to show to others: the same figures, and nothing of what the sessions were about."""

from dataclasses import replace

from ..outcome import Comparison, Need, Run


def unnamed(comparison: Comparison) -> Comparison:
    """Recordings are numbered instead of named; what was needed is told by its entry alone."""
    rows = (
        tuple(_run(run, f"session {number}") for run in row)
        for number, row in enumerate(comparison.runs, 1)
    )
    return replace(comparison, runs=tuple(rows))


def _run(run: Run, name: str) -> Run:
    needs = tuple(_need(need) for need in run.needs)
    stopped = "it could not go on" if run.stopped else ""  # a reason may name files
    return replace(run, name=name, needs=needs, stopped=stopped)


def _need(need: Need) -> Need:
    return replace(need, what=f"result #{need.ref}")
