"""The fleet commands that show a run: its progress, its page, and its results.

A terminal shows the progress as an updated line, a pipe as one line per ended task. `fleet results`
and `fleet compare` print the results of an evaluation, `fleet collect` gathers them in a folder.
The manifest argument and the state of the tasks are shared by all fleet commands.
"""

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...api.base import RecordError, UsageError
from ...api.cli import (
    Progress,
    WholeNumber,
    duration_text,
    exits_with_code,
    load,
    say,
    setting_flags,
)
from ...api.files import write_private
from ...api.programs import isolated_python
from ...api.text import as_sentences, count_of, cut_at_word

if TYPE_CHECKING:
    from ...api.settings import TelemetrySettings
    from .ledger import AttemptOutcome, FleetFolder
    from .live import LiveFleet, LiveView
    from .manifest import Manifest
    from .orders import AttemptOrder
    from .outages import Breaker
    from .results import CellResults
    from .runner import FleetRun, RunObserver
    from .summary import FleetSummary

REFRESH_EVERY_S = 2.0  # refresh interval on a terminal
MAX_CHANGED = 20  # changed tasks listed
MAX_REASON_CHARS = 160  # of the reason of a failure or an outage


class FleetProgress:
    """Shows the progress of a run."""

    def __init__(self, manifest: "Manifest", folder: "FleetFolder") -> None:
        self._manifest, self._folder = manifest, folder
        self._progress = Progress("fleet")
        self._lock = threading.Lock()  # guards the progress line
        self._ended_event = threading.Event()
        self._refresher: threading.Thread | None = None
        self._view: LiveView | None = None
        self._run: FleetRun | None = None
        self._ended = self._failed = self._to_do = 0
        self._why = ""  # reason of the outage printed last

    def __enter__(self) -> "FleetProgress":
        return self

    def __exit__(self, *error: object) -> None:
        self._ended_event.set()
        if self._refresher is not None:
            self._refresher.join()
        self._progress.clear()

    def watch(self, fleet_run: "FleetRun") -> None:
        """Start showing the progress of a run."""
        self._run, self._to_do = fleet_run, fleet_run.waiting
        all = len(self._manifest.lines)
        for id in fleet_run.changed[:MAX_CHANGED]:
            next_step = (
                "it starts again now"
                if fleet_run.is_waiting(id)
                else "`fleet retry` starts it again"
            )
            say(f"note: {id} was changed after it began; {next_step}", err=True)
        if self._to_do < all:
            say(f"note: {all - self._to_do:,} of {all:,} tasks have already ended", err=True)
        if self._progress.is_visible:
            from .live import LiveFleet

            fleet = LiveFleet(self._manifest, self._folder, is_running=lambda: True)
            self._refresher = threading.Thread(target=self._refresh, args=(fleet,), daemon=True)
            self._refresher.start()

    def _refresh(self, fleet: "LiveFleet") -> None:
        """Update the agents' cost until the run ends."""
        while not self._ended_event.wait(REFRESH_EVERY_S):
            with suppress(RecordError):
                self._view = fleet.refresh()
                self._show()

    @property
    def observer(self) -> "RunObserver":
        """The callbacks for a run."""
        from .runner import RunObserver

        return RunObserver(lambda order: self._show(), self._print_end, self._print_outage)

    def _print_end(self, order: "AttemptOrder", outcome: "AttemptOutcome", again: bool) -> None:
        """Print the end of an attempt. An attempt that is retried does not count as failed."""
        self._ended += not again and outcome.state in ("done", "failed")
        self._failed += not again and outcome.state == "failed"
        if outcome.kind or outcome.passed is False or not sys.stderr.isatty():
            facts = attempt_facts(outcome, outcome.calls, outcome.cost_usd)
            self._say(f"{'retry' if again else outcome.state:<8}{order.task.id}  {facts}")
        self._show()

    def _print_outage(self, breaker: "Breaker") -> None:
        """Print that an outage has started, continues or is over."""
        from .outages import OUTAGE_TEXTS

        if breaker.is_open:
            why = cut_at_word(f": {as_sentences(breaker.why)}", MAX_REASON_CHARS)
            why, self._why = "" if why == self._why else why, why
            left = duration_text(breaker.pause)
            self._say(
                f"outage: {OUTAGE_TEXTS[breaker.cause]}{why} · tasks wait, next try in {left}"
            )
        else:
            self._say(f"outage: over, {breaker.cause} works again")
        self._show()

    def _say(self, line: str) -> None:
        with self._lock:
            self._progress.clear()
            say(line, err=True)

    def _show(self) -> None:
        fleet_run, view = self._run, self._view
        if fleet_run is None or not self._progress.is_visible:
            return
        dollars = max(fleet_run.dollars, view.dollars if view else 0.0)
        parts = [
            f"{self._ended:,} of {self._to_do:,}",
            f"{fleet_run.running:,} running",
            *([f"{self._failed:,} failed"] if self._failed else []),
            f"${dollars:.2f}",
        ]
        if view is not None and view.dollars_per_hour:
            parts.append(f"${view.dollars_per_hour:.2f}/h")
        if outages := fleet_run.outages.open:
            parts.append("waiting for the " + ", ".join(breaker.cause for breaker in outages))
        elif view is not None and view.seconds_left is not None and not fleet_run.ended:
            parts.append(f"about {duration_text(view.seconds_left)} left")
        with self._lock:
            self._progress.show(" · ".join(parts))


@contextmanager
def run_observer(
    progress: FleetProgress, settings: "TelemetrySettings", tasks: int, jobs: int
) -> "Iterator[RunObserver]":
    """Create the observer of a run, which also makes traces and metrics if the settings say so.
    Raises UsageError if the packages for this are not installed.
    """
    if not settings.on:
        yield progress.observer
        return
    from .telemetry import FleetTelemetry

    with FleetTelemetry(os.environ, tasks, jobs) as telemetry:
        yield telemetry.watching(progress.observer)


def attempt_facts(outcome: "AttemptOutcome | None", calls: int, dollars: float | None) -> str:
    """Return a line about an attempt: its failure, calls, cost, time and score, as far as known."""
    facts = [count_of(calls, "call"), "price unknown" if dollars is None else f"${dollars:.4f}"]
    if outcome is None:
        return " · ".join(facts)
    if outcome.kind:
        why = f"{outcome.kind}: {as_sentences(outcome.message)}".strip(": ")
        facts.insert(0, cut_at_word(why, MAX_REASON_CHARS))
    changed = ["changed files"] if outcome.patch_bytes else []
    score = [outcome.verdict] if outcome.verdict else []
    return " · ".join([*facts, f"{outcome.seconds:.1f} s", *changed, *score])


def serve_page(manifest: Path, port: int) -> None:
    """Serve the page of a fleet until Ctrl-C. Raises UsageError."""
    from .ledger import FleetFolder
    from .live import LiveFleet
    from .live_page import FleetPage
    from .manifest import Manifest

    fleet = LiveFleet(Manifest(manifest), FleetFolder.of(manifest))
    page = FleetPage(fleet, manifest.name, port)
    say(page.url)
    say("Only users with this address can read the page. Ctrl-C stops it.", err=True)
    with suppress(KeyboardInterrupt):
        page.serve()


manifest_argument = click.argument(
    "manifest", type=click.Path(dir_okay=False, path_type=Path), metavar="TASKS.jsonl"
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


def read_status(manifest: Path) -> "tuple[Manifest, FleetFolder, FleetSummary]":
    """Return the tasks of a manifest and their state. Raises UsageError."""
    from ...api.record import is_in_use
    from .ledger import FleetFolder, read_records
    from .manifest import Manifest
    from .summary import FleetSummary

    tasks, folder = Manifest(manifest), FleetFolder.of(manifest)
    is_running = is_in_use(folder.lock)
    return (
        tasks,
        folder,
        FleetSummary.of(tasks, read_records(folder), folder, is_running=is_running),
    )


MIN_COLLECTED_BY_ONE = 16  # tasks per process; fewer are not worth starting a process


@click.command(epilog="Example: ctxagent fleet collect tasks.jsonl out")
@manifest_argument
@click.argument(
    "folder", type=click.Path(file_okay=False, path_type=Path), metavar="[DIR]", required=False
)
@click.option(
    "--swe-bench", "predictions", type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.json", help="Write the patches as predictions for the harness of SWE-bench.",
)  # fmt: skip
@click.option("--part", type=int, nargs=2, hidden=True)  # tasks N, N + OF, …, without the page
@click.pass_obj
@exits_with_code
def collect(
    options: dict[str, Any],
    manifest: Path,
    folder: Path | None,
    predictions: Path | None,
    part: tuple[int, int] | None,
) -> int:
    """Gather the results in DIR: an overview page, and for each task its result, patch and session.

    DIR/index.html needs no network and links to the pages of the sessions. It is written first.
    """
    from ...api.guard import redaction_for
    from ...api.pages import export
    from .report import Collection
    from .results import write_predictions

    if folder is None and predictions is None:
        raise UsageError(
            "no folder for the results", hint="Give DIR, --swe-bench FILE.json or both."
        )
    if predictions is not None and predictions.suffix != ".json":
        raise UsageError(
            f"--swe-bench {predictions}: the name must end with .json",
            hint="Give a name such as predictions.json.",
        )
    loaded = load(options)
    _, kept, summary = read_status(manifest)
    if predictions is not None:
        model = loaded.settings.model.id
        for path in write_predictions(predictions, summary, kept, model):
            say(f"{path}")
    if folder is None:
        return 0
    window = loaded.settings.model.context_window
    redact = redaction_for(os.environ, shapes=loaded.settings.state.redact).clean
    page = partial(export, format="html", window=window, redact=redact)
    collection = Collection(kept, folder, page)
    if part is not None:
        for task in summary.tasks[part[0] :: part[1]]:
            collection.add(task)
        return 0
    collection.begin(manifest.name, summary)
    workers = min(len(os.sched_getaffinity(0)), 1 + len(summary.tasks) // MIN_COLLECTED_BY_ONE)
    with (
        _collecting(options, manifest, folder, workers),
        Progress("collecting") as progress,
    ):
        own = summary.tasks[::workers]
        for done, task in enumerate(own):
            progress.show_count(done * workers, len(summary.tasks), done / len(own))
            collection.add(task)
    rows = [collection.add(task) for task in summary.tasks]  # reuses collected tasks
    collection.finish(manifest.name, summary, rows)
    say(f"{folder / 'index.html'}")
    return 0


@contextmanager
def _collecting(
    options: dict[str, Any], manifest: Path, folder: Path, workers: int
) -> Iterator[None]:
    """Let other processes collect their parts of the tasks, and wait for them. This process
    collects what they miss.
    """
    flags = [word for flag in setting_flags(options) for word in ("-c", flag)]
    command = [*isolated_python(), "-m", "ctxagent", *flags, "fleet", "collect", "--part"]
    others = [
        subprocess.Popen(
            [*command, str(number), str(workers), "--", str(manifest), str(folder)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        for number in range(1, workers)
    ]  # fmt: skip
    try:
        yield
        for other in others:
            other.wait()
    finally:
        for other in others:
            other.terminate()
            other.wait()


_page = click.option(
    "--page", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE.html",
    help="Also write a page for a browser, which needs no network.",
)  # fmt: skip


UNCOUNTED = {"score": "the score command failed"}  # texts, by reason for a missing verdict


@click.command(epilog="Example: ctxagent fleet results tasks.jsonl")
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
    from .results import default_ks, results_of, results_table

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


@click.command(epilog="Example: ctxagent fleet compare tasks.jsonl other.jsonl")
@click.argument("runs", nargs=-1, required=True, metavar="RUN [RUN]")
@json_option
@_page
@exits_with_code
def compare(runs: tuple[str, ...], as_json: bool, page: Path | None) -> int:
    """Compare two runs, task by task.

    RUN is a manifest, or TASKS.jsonl@CELL for a cell of its matrix. For a single manifest with two
    cells, the two cells are compared.
    """
    from .results import compare as compared
    from .results import comparison_lines, default_ks, results_table

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
        from .report import comparison_page

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
    from .results import results_of

    found: list[tuple[str, str, CellResults]] = []
    for run in runs:
        path, cell = _split(run)
        _, _, summary = read_status(path)
        cells = results_of(summary.tasks)
        chosen = [each for each in cells if each.name == cell or not cell]
        if not chosen:
            known = ", ".join(each.name for each in cells if each.name)
            hint = f"Cells: {known}." if known else f"It has no matrix: write {path} alone."
            raise UsageError(f"{path} has no cell {cell}", hint=hint)
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
