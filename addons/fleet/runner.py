"""Schedule a fleet: the start of each task, its maximum cost, and the end."""

import os
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path
from typing import Protocol

from ...api.base import CtxagentError, RecordError, dataclass
from ...api.models import is_provider_variable
from ...api.record import new_session_id
from .attempt import LOST, outcome_of_log, run_attempt
from .causes import causes_of
from .ledger import (
    FLEET_BUDGET,
    FULL,
    REFUSED,
    AttemptOutcome,
    FleetLedger,
    bill,
    has_reply,
    is_to_run,
)
from .live import OutageNote, RunNotes
from .manifest import Manifest, TaskLine
from .orders import AttemptOrder
from .outages import DISK, EXECUTOR, OUTAGE_TEXTS, Breaker, OutageRules, Outages
from .places import ExpectedPlaces
from .summary import count_from_logs

CANARY, MIN_CANARY_TASKS = 3, 20  # tasks that run first, in runs of more than so many tasks
CHECK_EVERY_S = 0.25  # between two checks for an interrupt, while no attempt runs
CHECK_PROBE_EVERY_S = 1.0  # between two checks of a probe's log
# Retries of a task in one run, by kind of failure, before the task counts as failed.
RETRIES = {"killed": 4, "unreachable": 2}
ANSWERED = ("denied", "limit", FLEET_BUDGET)  # kinds of failure which prove that the server answers
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0  # before a retry of a task
MEMORY_SHARE = 0.9  # of the machine's memory, for all tasks that declare their memory


class AttemptEngine(Protocol):
    """Engine that makes attempts, on this machine or on others."""

    def submit(self, order: AttemptOrder) -> "Future[AttemptOutcome]": ...

    def is_lost(self, error: BaseException) -> bool:
        """Return True if an exception of a future means that the executor was lost and says nothing
        about the task.
        """
        ...

    def renew(self) -> None:
        """Recreate lost executors. Raises CtxagentError."""
        ...

    def close(self) -> None: ...


class LocalEngine:
    """Engine that makes attempts on this machine, each in a thread that waits for its agent."""

    def __init__(self, jobs: int) -> None:
        self._pool = ThreadPoolExecutor(jobs, "attempt")

    def submit(self, order: AttemptOrder) -> "Future[AttemptOutcome]":
        """Make an attempt in a thread."""
        return self._pool.submit(run_attempt, order)

    def is_lost(self, error: BaseException) -> bool:
        """Return False, because attempts run in this process."""
        return False

    def renew(self) -> None:
        """Do nothing, because threads cannot be lost."""

    def close(self) -> None:
        """Wait for the end of all threads."""
        self._pool.shutdown()


@dataclass(frozen=True, slots=True)
class RunLimits:
    """The limits of a run."""

    jobs: int  # attempts at the same time
    dollars: float | None = None  # for all sessions in the ledger
    failures: int | None = None  # failed tasks after which no more tasks start
    is_local: bool = True  # attempts use the cores and the memory of this machine
    retries: Mapping[str, int] = field(
        default_factory=dict
    )  # by kind of failure; they override RETRIES
    outages: OutageRules = OutageRules()
    # Tasks that run first; the run stops if all fail for one cause. None: CANARY for a long run.
    canary: int | None = 0


@dataclass(slots=True)
class RunObserver:
    """Callbacks for the events of a run."""

    started: Callable[[AttemptOrder], None] = lambda order: None
    # The last argument is True if the task is retried in this run.
    ended: Callable[[AttemptOrder, AttemptOutcome, bool], None] = lambda order, outcome, again: None
    outage: Callable[[Breaker], None] = lambda breaker: None  # it opened, closed or has a new pause
    # Returns extra environment variables for an agent, by task ID, session ID and attempt number.
    env: Callable[[str, str, int], Mapping[str, str]] = lambda id, session, attempt: {}


class FleetRun:
    """One run over a manifest."""

    def __init__(
        self,
        manifest: Manifest,
        ledger: FleetLedger,
        engine: AttemptEngine,
        limits: RunLimits,
        *,
        options: Sequence[str] = (),
        observer: RunObserver | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._manifest, self._ledger, self._engine = manifest, ledger, engine
        self._limits, self._options = limits, tuple(options)
        self._observer = observer or RunObserver()
        self._clock, self._sleep = clock, sleep
        self._running: dict[Future[AttemptOutcome], tuple[AttemptOrder, TaskLine]] = {}
        self._retry_at: dict[str, float] = {}  # time of the next retry, by task ID
        self._failures: Counter[tuple[str, str]] = Counter()  # by task and kind
        self.outages = Outages(limits.outages, clock)
        self._places = ExpectedPlaces(os.environ)
        self._probe_size = 0  # of the probe's log when the probe started, in bytes
        self._failed = 0
        self.interrupts = 0
        self._error: CtxagentError | None = None
        self.refusal = ""  # the server's message if it rejected the key
        self.ended = ""  # the reason why no more tasks start, or ""
        known, lines = ledger.records, manifest.lines
        self.changed = [id for id in lines if id in known and known[id].digest != lines[id].digest]
        begun = [id for id in lines if id in known and is_to_run(known[id])]
        self._waiting = deque([*begun, *(id for id in lines if id not in known)])
        count_from_logs((known[id] for id in begun), ledger.folder)
        self._canary = limits.canary  # tasks that must end before others start
        if self._canary is None:
            self._canary = CANARY if len(self._waiting) > MIN_CANARY_TASKS else 0
        self._canary = min(self._canary, len(self._waiting))
        self._canary_ids = set[str]()
        self.canary_failures: list[tuple[str, AttemptOutcome]] = []
        self.dollars = bill(known.values())  # spent by all sessions so far
        self._notes = RunNotes(time.time(), self.dollars, len(lines) - self.waiting)
        self._tasks_in_bill = sum(record.has_ended for record in known.values())

    @property
    def waiting(self) -> int:
        """The number of tasks that wait to be started."""
        return len(self._waiting) + len(self._retry_at)

    def is_waiting(self, id: str) -> bool:
        """Return True if a task waits to be started."""
        return id in self._waiting

    @property
    def running(self) -> int:
        """The number of running attempts."""
        return len(self._running)

    def run(self) -> None:
        """Run all unfinished tasks until nothing more may start and all attempts have ended. Then
        raise the error that prevented tasks from being started or recorded, if any.
        """
        self._ledger.folder.stop_file.unlink(missing_ok=True)
        self._notes.write(self._ledger.folder)
        while True:
            try:
                self._start_all()
            except CtxagentError as error:
                self._error, self.ended = error, "error"
            if not self._running and (self.ended or not self.waiting):
                break
            for future in self._ended_attempts():
                try:
                    self._finish_attempt(future)
                except CtxagentError as error:
                    self._error, self.ended = error, "error"
        if self._error is not None:
            raise self._error

    def _ended_attempts(self) -> Sequence["Future[AttemptOutcome]"]:
        """Wait until an attempt ends, or a retry or probe is due. Return the ended attempts."""
        seconds = self._seconds_left()
        if self._running:
            done = wait(self._running, timeout=seconds, return_when=FIRST_COMPLETED).done
            self._check_probes()
            return [*done]
        self._sleep(CHECK_EVERY_S if seconds is None else min(seconds, CHECK_EVERY_S))
        return ()

    def _seconds_left(self) -> float | None:
        """Return the seconds until a retry or a probe is due; None if none is."""
        if self.ended:
            return None
        times = [at - self._clock() for at in self._retry_at.values()]
        if self._waiting and (left := self.outages.seconds_left) is not None:
            times.append(left)
        if any(breaker.probe is not None for breaker in self.outages.open):
            times.append(CHECK_PROBE_EVERY_S)
        return max(0.01, min(times)) if times else None

    def _check_probes(self) -> None:
        """Close the breakers whose probe has received a reply, even if its attempt still runs."""
        probes = {breaker.probe for breaker in self.outages.open if breaker.probe}
        for order, line in self._running.values() if probes else ():
            if line.id in probes and has_reply(Path(order.log), self._probe_size):
                self._mark_working(line)

    def _mark_working(self, line: TaskLine) -> None:
        """Record that the services which an attempt needs have worked, and publish the outages that
        end.
        """
        for breaker in self.outages.needed(line.server):
            if breaker.record_success(line.id):
                self._publish_outage(breaker)

    def _publish_outage(self, breaker: Breaker) -> None:
        """Publish that an outage started, ended or has a new pause."""
        self._notes = replace(self._notes, outages=tuple(self._outage_notes()))
        self._notes.write(self._ledger.folder)
        self._observer.outage(breaker)

    def _outage_notes(self) -> Iterator[OutageNote]:
        shift = time.time() - self._clock()
        for each in self.outages.open:
            if each.since is not None:
                yield OutageNote(each.cause, each.why, shift + each.since, shift + each.probe_at)

    def interrupt(self) -> None:
        """Start no more tasks; on the second call, also end the running ones."""
        self.interrupts += 1
        self.ended = self.ended or "interrupted"
        if self.interrupts > 1:
            self._ledger.folder.stop_file.touch(mode=0o600)

    def _start_all(self) -> None:
        """Start tasks while there is room for the next one. Stop starting tasks if the remaining
        budget is too small for the next one even when nothing runs. Raises RecordError and
        UsageError.
        """
        now = self._clock()
        for id in [id for id, at in self._retry_at.items() if at <= now]:
            del self._retry_at[id]
            self._waiting.appendleft(id)
        while self._waiting and not self.ended and len(self._running) < self._limits.jobs:
            line = self._next_line()
            if line is None or not self._has_room(line):
                return
            share = self._share(line)
            if share == 0.0:
                self.ended = self.ended if self._running else "budget"
                return
            self._waiting.remove(line.id)
            if self._begin_probes(line):
                self._start(line, share)

    def _next_line(self) -> TaskLine | None:
        """Return the first waiting task that no outage blocks. If nothing runs and an outage has
        lasted too long, stop starting tasks.
        """
        lines = (self._manifest.lines[id] for id in self._waiting)
        if len(self._canary_ids) == self._canary != 0:  # only its tasks may start, again
            lines = (line for line in lines if line.id in self._canary_ids)
        found = next((line for line in lines if self.outages.allow_start(line.server)), None)
        if found is None and not self._running:
            lasting = [breaker for breaker in self.outages.open if breaker.lasts_too_long]
            self.ended = "outage" if lasting else self.ended
        return found

    def _begin_probes(self, line: TaskLine) -> bool:
        """Make a task the probe of all open breakers that it depends on. Return False if a lost
        executor cannot be recreated.
        """
        causes = self.outages.begin_probe(line.id, line.server)
        record = self._ledger.records.get(line.id)
        self._probe_size = 0
        if causes and record and record.log:
            with suppress(OSError):
                self._probe_size = Path(record.log).stat().st_size
        if EXECUTOR not in causes:
            return True
        try:
            self._engine.renew()
        except CtxagentError as error:
            self._record_failure(EXECUTOR, line, str(error), 0)
            self._schedule_retry(line.id, FIRST_PAUSE_S)
            return False
        return True

    def _record_failure(self, cause: str, line: TaskLine, why: str, progress: int) -> int:
        """Record that a task failed by a cause; return the number of consecutive failures that
        count against the task.
        """
        breaker = self.outages.breaker(cause, line.server)
        was_open, pause = breaker.is_open, breaker.probe_at
        counted = breaker.record_failure(line.id, why, progress)
        if breaker.is_open and (not was_open or breaker.probe_at != pause):
            self._publish_outage(breaker)
        return counted

    def _schedule_retry(self, id: str, seconds: float) -> None:
        self._retry_at[id] = self._clock() + seconds * random.uniform(0.5, 1.5)

    def _has_room(self, line: TaskLine) -> bool:
        """Return True if the machine has enough cores and memory for a task next to the running
        ones. A task may always run alone.
        """
        if not self._running or not self._limits.is_local:
            return True
        lines = [line, *(each for _, each in self._running.values())]
        memory = sum(each.memory_mb for each in lines)
        cores_fit = sum(each.cores for each in lines) <= self._limits.jobs
        return cores_fit and (not memory or memory <= MEMORY_SHARE * machine_memory_mb())

    def _share(self, line: TaskLine) -> float | None:
        """Return the maximum dollars for a task: its own budget or its share of the remaining total
        budget, whichever is smaller; None without a budget. Return 0.0 if the remaining budget is
        less than the average cost of a task.
        """
        own, all = line.budget_usd, self._limits.dollars
        record = self._ledger.records.get(line.id)
        if all is None or (record and record.needs_no_agent):
            return own
        left = all - self.dollars - sum(order.dollars or 0.0 for order, _ in self._running.values())
        average = self.dollars / self._tasks_in_bill if self._tasks_in_bill else 0.0
        needed = average if own is None else min(average, own)
        if left <= 0 or left < needed:
            return 0.0
        part = max(left / (self._limits.jobs - len(self._running)), needed)
        if (
            record is not None and record.state == "running"
        ):  # its agent may still run with this share
            part = min(max(part, record.share), left)
        return part if own is None else min(part, own)

    def _start(self, line: TaskLine, share: float | None) -> None:
        """Record the start of a task and start it. Raises RecordError and UsageError."""
        record = self._ledger.records.get(line.id)
        session, attempt = new_session_id(), 1
        if record is not None and record.digest == line.digest:
            session = record.session
            attempt = record.attempt + (record.state != "running" and not record.needs_no_agent)
        if self._canary:
            self._canary_ids.add(line.id)
        order = self._order(line, session, attempt, share)
        self._record(
            lambda: self._ledger.begin(line.id, line.digest, session, attempt, order.log, share)
        )
        self._observer.started(order)
        self._running[self._engine.submit(order)] = order, line

    def _order(
        self, line: TaskLine, session: str, attempt: int, share: float | None
    ) -> AttemptOrder:
        task, manifest = self._manifest.task(line.id), self._manifest
        directory = None if task.dir is None else str(manifest.directory(task))
        names = [*(name for name in os.environ if is_provider_variable(name)), *task.env]
        task = replace(task, dir=directory, git=manifest.source(task))
        folder = self._ledger.folder.task(line.id, session)
        record = self._ledger.records.get(line.id)
        return AttemptOrder(
            task=task,
            fleet=self._ledger.folder,
            session=session,
            attempt=attempt,
            options=self._options,
            dollars=share,
            is_share=share != line.budget_usd,
            env={
                **{name: os.environ[name] for name in names},
                **self._observer.env(line.id, session, attempt),
            },
            log=str(self._places.log(task, folder) or ""),
            tries=dict(record.tries) if record and record.session == session else {},
        )

    def _record(self, write: Callable[[], None]) -> None:
        """Write to the ledger. While its disk is full, wait as in any disk outage. Raises
        RecordError.
        """
        breaker, has_waited = self.outages.breaker(DISK, ""), False
        while True:
            try:
                write()
            except RecordError as error:
                is_full = isinstance(error.__cause__, OSError) and error.__cause__.errno in FULL
                if not is_full or self.ended or breaker.lasts_too_long:
                    raise
                breaker.keep_open(error.message)
                self._publish_outage(breaker)
                has_waited = True
                while self._clock() < breaker.probe_at and not self.ended:
                    self._sleep(CHECK_EVERY_S)
            else:
                if has_waited and breaker.record_success(""):
                    self._publish_outage(breaker)
                return

    def _finish_attempt(self, future: "Future[AttemptOutcome]") -> None:
        """Record the outcome of an attempt. Queue the task again if its agent was lost, its share
        of the budget was too small, or the failure is retried. Raises RecordError.
        """
        order, line = self._running.pop(future)
        if error := future.exception():
            outcome = outcome_of_log(order, LOST, str(error))
            if self._engine.is_lost(error):
                outcome = replace(outcome, cause=EXECUTOR)
        else:
            outcome = future.result()
        outcome, pause = self._classify(line, outcome)
        record = self._ledger.records[line.id]
        before, was_in_bill = record.cost_usd, record.has_ended
        record.sums[order.session] = outcome.sums
        self.dollars += record.cost_usd - before
        if outcome.kind != LOST:
            self._record(lambda: self._ledger.end(line.id, order.session, order.attempt, outcome))
            self._tasks_in_bill += not was_in_bill
            if pause is not None and outcome.state == "failed":
                self._record(lambda: self._ledger.retry(line.id))
        if pause is not None:
            self._schedule_retry(line.id, pause)
        self._observer.ended(order, outcome, pause is not None)
        if outcome.kind == FLEET_BUDGET:
            self._waiting.append(line.id)
        if outcome.kind == REFUSED:
            self.ended, self.refusal = self.ended or REFUSED, outcome.message
        if line.id in self._canary_ids and pause is None:
            self._end_canary(line.id, outcome)
        self._failed += pause is None and outcome.state == "failed"
        if self._limits.failures is not None and self._failed >= self._limits.failures:
            self.ended = self.ended or "failures"

    def _end_canary(self, id: str, outcome: AttemptOutcome) -> None:
        """Release the other tasks after a canary task that did not fail, or after failures of
        different causes. Stop starting tasks if all canary tasks have failed for one cause.
        """
        if outcome.state == "failed":
            self.canary_failures.append((id, outcome))
            is_one = len(causes_of(self.canary_failures)) == 1
            if is_one and len(self.canary_failures) == self._canary:
                self.ended = self.ended or "canary"
            if is_one:
                return
        self._canary = 0

    def _classify(
        self, line: TaskLine, outcome: AttemptOutcome
    ) -> tuple[AttemptOutcome, float | None]:
        """Return the outcome for the ledger, and the seconds after which the task continues in this
        run, or None if it does not.
        """
        kind, retries = outcome.kind, {**RETRIES, **self._limits.retries}
        if outcome.cause in OUTAGE_TEXTS:
            counted = self._record_failure(outcome.cause, line, outcome.message, outcome.tool_calls)
            if counted <= retries.get(kind, 0):
                return outcome, FIRST_PAUSE_S
            return replace(outcome, cause=""), None
        if not kind or kind in ANSWERED:
            self._mark_working(line)
        for breaker in self.outages.needed(line.server):
            breaker.release_probe(line.id)
        if outcome.state != "failed":
            return outcome, None
        kind = "killed" if kind == LOST else kind
        self._failures[line.id, kind] += 1
        failures = self._failures[line.id, kind]
        if failures > retries.get(kind, 0):
            return replace(outcome, kind=kind), None
        doublings = failures - (2 if kind == "killed" else 1)  # no pause after the first kill
        pause = 0.0 if doublings < 0 else min(FIRST_PAUSE_S * 2**doublings, LONGEST_PAUSE_S)
        return outcome, pause


def machine_memory_mb() -> float:
    """Return the memory of this machine in MiB."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**20
