"""`ctxagent fleet results` and `fleet compare`: the results of an evaluation."""

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...tools.system.files import write_private
from ...tools.system.plural import count_of
from ..errors import RecordError, UsageError
from .fleet_status import json_option, manifest_argument, read_status
from .number_types import WholeNumber
from .options import exits_with_code, say

if TYPE_CHECKING:
    from ..fleet.results import CellResults

_page = click.option(
    "--page", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE.html",
    help="Also write a page for a browser, which needs no network.",
)  # fmt: skip


UNCOUNTED = {"score": "the score command failed"}  # texts, by reason for a missing verdict


@click.command()
@manifest_argument
@click.option(
    "-k", "ks", type=WholeNumber(min=1), multiple=True, metavar="K",
    help="Print pass@K. By default, K is 1 and the largest number of attempts at a task.",
)  # fmt: skip
@json_option
@exits_with_code
def results(manifest: Path, ks: tuple[int, ...], as_json: bool) -> int:
    """Print the pass rates of attempts in each cell of the matrix, and the cost per pass.

    The ranges in parentheses are 95 % confidence intervals for tasks like these. Attempts at the
    same task do not count as independent.
    """
    from ..fleet.results import results_of
    from ..fleet.results_text import default_ks, results_table

    _, _, summary = read_status(manifest)
    cells = results_of(summary.tasks)
    ks = tuple(dict.fromkeys(ks)) or default_ks(cells)
    if as_json:
        say(json.dumps({"cells": [cell.to_json(ks) for cell in cells]}, ensure_ascii=False))
        return 0
    print_table(results_table(cells, ks))
    for cell in cells:
        if cell.missing:
            uncounted = ", ".join(
                f"{count_of(count, 'attempt')} not counted: {UNCOUNTED.get(why, why)}"
                for why, count in cell.missing.items()
            )
            say(f"{_prefix(cell)}{uncounted}")
    return 0


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN [RUN]")
@json_option
@_page
@exits_with_code
def compare(runs: tuple[str, ...], as_json: bool, page: Path | None) -> int:
    """Compare two runs, task by task.

    RUN is a manifest, or TASKS.jsonl@CELL for a cell of its matrix. For a single manifest with two
    cells, the two cells are compared.
    """
    from ..fleet.results import compare as compared
    from ..fleet.results_text import comparison_lines, default_ks, results_table

    (name_a, first), (name_b, second) = _find_two_runs(runs)
    found = compared(first, second)
    if found is None:
        hint = "Runs are compared by task ID, so they need some IDs in common."
        raise UsageError(f"{name_a} and {name_b} have no task with a verdict in common", hint=hint)
    ks = default_ks([first, second])
    names = name_a, name_b
    lines = list(comparison_lines(name_a, name_b, found))
    rows = list(results_table([first, second], ks, names))
    if page is not None:
        from ..fleet.report import comparison_page

        try:
            html = comparison_page(names, rows, lines, found)
            write_private(page, html.encode("utf-8", "replace"))
        except OSError as error:
            raise RecordError(f"cannot write {page}: {error.strerror}") from error
    if as_json:
        document = {"runs": [name_a, name_b], **found.to_json()}
        document["results"] = [cell.to_json(ks) for cell in (first, second)]
        say(json.dumps(document, ensure_ascii=False))
        return 0
    print_table(rows)
    for line in ["", *lines]:
        say(line)
    return 0


def _find_two_runs(runs: Sequence[str]) -> "list[tuple[str, CellResults]]":
    """Return two runs with their names. Raises UsageError."""
    from ..fleet.results import results_of

    found: list[tuple[str, str, CellResults]] = []
    for run in runs:
        path, cell = _split(run)
        _, _, summary = read_status(path)
        cells = results_of(summary.tasks)
        chosen = [each for each in cells if each.name == cell or not cell]
        if not chosen:
            known = ", ".join(each.name for each in cells)
            raise UsageError(f"{path} has no cell {cell}", hint=f"Cells: {known}.")
        found += [(str(path), each.name, each) for each in chosen]
    if len(found) != 2:
        hint = "For a manifest with several cells, name a cell: TASKS.jsonl@CELL."
        raise UsageError(f"give two runs to compare, not {len(found)}", hint=hint)
    is_one = len({path for path, _, _ in found}) == 1
    return [
        (name if is_one else f"{path}@{name}" if name else path, each) for path, name, each in found
    ]


def _split(run: str) -> tuple[Path, str]:
    """Return the manifest and the cell in a RUN argument."""
    path, at, cell = run.rpartition("@")
    return (Path(path), cell) if at and not Path(run).exists() else (Path(run), "")


def _prefix(cell: "CellResults") -> str:
    return f"{cell.name}: " if cell.name else ""


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Print a table, its first column left-aligned and the others right-aligned. On a narrow
    terminal, print each row as a block of lines.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    columns = shutil.get_terminal_size().columns
    if sys.stdout.isatty() and sum(widths) + 2 * (len(widths) - 1) > columns:
        heads = max(map(len, rows[0]))
        for name, *values in rows[1:]:
            say(name)
            for head, value in zip(rows[0][1:], values, strict=True):
                say(f"  {head:<{heads}}  {value}")
        return
    for row in rows:
        pairs = list(zip(row, widths, strict=True))
        cells = [pairs[0][0].ljust(widths[0]), *(text.rjust(width) for text, width in pairs[1:])]
        say("  ".join(cells))
