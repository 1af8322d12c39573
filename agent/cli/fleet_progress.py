"""The progress of a fleet run: an updated line on a terminal, or one line per ended task in a pipe;
and a page for browsers.
"""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ...tools.system.plural import count_of
from ...tools.system.shorten import as_sentences, cut_at_word
from ..errors import RecordError
from .options import say
from .progress import Progress, duration_text

if TYPE_CHECKING:
    from ..config.telemetry_settings import TelemetrySettings
    from ..fleet.ledger import AttemptOutcome, FleetFolder
    from ..fleet.live import LiveFleet, LiveView
    from ..fleet.manifest import Manifest
    from ..fleet.orders import AttemptOrder
    from ..fleet.outages import Breaker
    from ..fleet.runner import FleetRun, RunObserver

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
            from ..fleet.live import LiveFleet

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
        from ..fleet.runner import RunObserver

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
        from ..fleet.outages import OUTAGE_TEXTS

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
    from ..fleet.telemetry import FleetTelemetry

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
    from ..fleet.ledger import FleetFolder
    from ..fleet.live import LiveFleet
    from ..fleet.live_page import LivePage
    from ..fleet.manifest import Manifest

    fleet = LiveFleet(Manifest(manifest), FleetFolder.of(manifest))
    page = LivePage(fleet, manifest.name, port)
    say(page.url)
    say("Only users with this address can read the page. Ctrl-C stops it.", err=True)
    with suppress(KeyboardInterrupt):
        page.serve()
