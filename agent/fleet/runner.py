"""The run of a fleet: which task starts when, what each may cost, and when no more start."""

import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Protocol

from ..errors import CtxagentError
from ..lazy import dataclass
from ..models.factory import is_of_provider
from ..session.store import new_session_id
from .attempt import LOST, AttemptOrder, outcome_of_log, run_attempt
from .ledger import (
    FLEET_BUDGET,
    REFUSED,
    AttemptOutcome,
    FleetLedger,
    bill,
    count_from_log,
    is_to_run,
)
from .manifest import Manifest, TaskLine

MAX_LOSSES = 5  # of a task's agents or workers in one run, before it counts as failed
MEMORY_SHARE = 0.9  # of the machine's memory that tasks which say what they need may have


class AttemptEngine(Protocol):
    """What makes attempts: here, or on other machines."""

    def submit(self, order: AttemptOrder) -> "Future[AttemptOutcome]": ...

    def close(self) -> None: ...


class LocalEngine:
    """Makes attempts on this machine, each in a thread that waits for its agent."""

    def __init__(self, jobs: int) -> None:
        self._pool = ThreadPoolExecutor(jobs, "attempt")

    def submit(self, order: AttemptOrder) -> "Future[AttemptOutcome]":
        """Make an attempt."""
        return self._pool.submit(run_attempt, order)

    def close(self) -> None:
        """Wait for the end of all threads."""
        self._pool.shutdown()


@dataclass(frozen=True, slots=True)
class RunLimits:
    """What a run may take."""

    jobs: int  # at once
    dollars: float | None = None  # of all sessions in the ledger
    failures: int | None = None  # after which no more tasks start
    is_local: bool = True  # whether the cores and the memory are those of this machine


class FleetRun:
    """One run over a manifest. `on_start` and `on_end` are told of each attempt."""

    def __init__(
        self,
        manifest: Manifest,
        ledger: FleetLedger,
        engine: AttemptEngine,
        limits: RunLimits,
        *,
        options: Sequence[str] = (),
        on_start: Callable[[AttemptOrder], None] = lambda order: None,
        on_end: Callable[[AttemptOrder, AttemptOutcome], None] = lambda order, outcome: None,
    ) -> None:
        self._manifest, self._ledger, self._engine = manifest, ledger, engine
        self._limits, self._options = limits, tuple(options)
        self._on_start, self._on_end = on_start, on_end
        self._running: dict[Future[AttemptOutcome], tuple[AttemptOrder, TaskLine]] = {}
        self._losses: dict[str, int] = {}
        self._failed = 0
        self.interrupts = 0
        self._error: CtxagentError | None = None
        self.refusal = ""  # of the key, in the server's words
        self.ended = ""  # why no more tasks start; "" as long as they do
        known, lines = ledger.records, manifest.lines
        self.changed = [id for id in lines if id in known and known[id].digest != lines[id].digest]
        begun = [id for id in lines if id in known and is_to_run(known[id])]
        self._waiting = deque([*begun, *(id for id in lines if id not in known)])
        for id in begun:
            count_from_log(known[id], ledger.folder)
        self.dollars = bill(known.values())  # of all sessions so far
        self._priced = sum(record.has_ended for record in known.values())

    @property
    def waiting(self) -> int:
        """How many tasks wait to be started."""
        return len(self._waiting)

    def is_waiting(self, id: str) -> bool:
        """Tell whether a task waits to be started."""
        return id in self._waiting

    @property
    def running(self) -> int:
        """How many attempts run."""
        return len(self._running)

    def run(self) -> None:
        """Run all that is not done, until nothing more may start and all has ended. Raises what
        kept tasks from being started or recorded, when those that ran have ended."""
        self._ledger.folder.stop_file.unlink(missing_ok=True)
        while True:
            try:
                self._start_all()
            except CtxagentError as error:
                self._error, self.ended = error, "error"
            if not self._running:
                break
            for future in wait(self._running, return_when=FIRST_COMPLETED).done:
                try:
                    self._hear(future)
                except CtxagentError as error:
                    self._error, self.ended = error, "error"
        if self._error is not None:
            raise self._error

    def interrupt(self) -> None:
        """Start no more tasks; the second time, end those that run."""
        self.interrupts += 1
        self.ended = self.ended or "interrupted"
        if self.interrupts > 1:
            self._ledger.folder.stop_file.touch(mode=0o600)

    def _start_all(self) -> None:
        """Start tasks as long as there is room for the next one. Where money will not do for it
        even when nothing runs, no more tasks start. Raises RecordError and UsageError."""
        while self._waiting and not self.ended and len(self._running) < self._limits.jobs:
            line = self._manifest.lines[self._waiting[0]]
            if not self._has_room(line):
                return
            share = self._share(line)
            if share == 0.0:
                self.ended = self.ended if self._running else "budget"
                return
            self._waiting.popleft()
            self._start(line, share)

    def _has_room(self, line: TaskLine) -> bool:
        """Tell whether the machine has what a task needs beside those that run; one alone always
        may."""
        if not self._running or not self._limits.is_local:
            return True
        lines = [line, *(each for _, each in self._running.values())]
        memory = sum(each.memory_mb for each in lines)
        cores_fit = sum(each.cores for each in lines) <= self._limits.jobs
        return cores_fit and (not memory or memory <= MEMORY_SHARE * machine_memory_mb())

    def _share(self, line: TaskLine) -> float | None:
        """Return what a task may cost: its own budget, or its part of what is left for all; 0.0
        where that is less than tasks cost on the average."""
        own, all = line.budget_usd, self._limits.dollars
        if all is None:
            return own
        left = all - self.dollars - sum(order.dollars or 0.0 for order, _ in self._running.values())
        usual = self.dollars / self._priced if self._priced else 0.0
        needed = usual if own is None else min(usual, own)
        if left <= 0 or left < needed:
            return 0.0
        part = max(left / (self._limits.jobs - len(self._running)), needed)
        return part if own is None else min(part, own)

    def _start(self, line: TaskLine, share: float | None) -> None:
        """Record that a task begins, and begin it. Raises RecordError and UsageError."""
        record = self._ledger.records.get(line.id)
        session, attempt = new_session_id(), 1
        if record is not None and record.digest == line.digest:
            session = record.session
            attempt = record.attempt + (record.state != "running")
        order = self._order(line, session, attempt, share)
        self._ledger.begin(line.id, line.digest, session, attempt)
        self._on_start(order)
        self._running[self._engine.submit(order)] = order, line

    def _order(
        self, line: TaskLine, session: str, attempt: int, share: float | None
    ) -> AttemptOrder:
        task, manifest = self._manifest.task(line.id), self._manifest
        directory = None if task.dir is None else str(manifest.directory(task))
        names = [*(name for name in os.environ if is_of_provider(name)), *task.env]
        return AttemptOrder(
            task=replace(task, dir=directory, git=manifest.source(task)),
            fleet=self._ledger.folder,
            session=session,
            attempt=attempt,
            options=self._options,
            dollars=share,
            is_share=share != line.budget_usd,
            env={name: os.environ[name] for name in names},
        )

    def _hear(self, future: "Future[AttemptOutcome]") -> None:
        """Record how an attempt ended, and have the task go on where its agent was only lost or its
        share of the money was too small. Raises RecordError."""
        order, line = self._running.pop(future)
        error = future.exception()
        outcome = outcome_of_log(order, LOST, str(error)) if error else future.result()
        if outcome.kind == LOST:
            losses = self._losses[line.id] = self._losses.get(line.id, 0) + 1
            if losses < MAX_LOSSES:
                self._waiting.appendleft(line.id)
                self._on_end(order, outcome)
                return
            outcome = replace(outcome, kind="killed")
        record = self._ledger.records[line.id]
        before, was_priced = record.cost_usd, record.has_ended
        self._ledger.end(line.id, order.session, order.attempt, outcome)
        self.dollars += record.cost_usd - before
        self._priced += not was_priced
        self._on_end(order, outcome)
        if outcome.kind == FLEET_BUDGET:
            self._waiting.append(line.id)
        if outcome.kind == REFUSED:
            self.ended, self.refusal = self.ended or REFUSED, outcome.message
        self._failed += outcome.state == "failed"
        if self._limits.failures is not None and self._failed >= self._limits.failures:
            self.ended = self.ended or "failures"


def machine_memory_mb() -> float:
    """Return the memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**20
