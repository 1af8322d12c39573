"""The live view of a fleet: progress, activity of each agent, cost, estimated end.

Each refresh reads only the new lines of the ledger and of running tasks' logs. A run leaves notes
for other processes that watch it: when it began, and which outages it waits for. Only the ledger is
authoritative.
"""

import json
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, field
from datetime import datetime
from pathlib import Path
from typing import Any

from ...api.base import dataclass
from ...api.files import open_kept, replace_file
from ...api.record import Assistant, Entry, ToolResult, is_in_use, try_parse_entry
from ...api.text import as_sentences, cut_at_word
from .ledger import FleetFolder, LedgerReader, SessionSums, TaskRecord, TaskState, find_logs
from .manifest import Manifest
from .summary import STATES, LogSums, cached_sums, catch_up

NAME = "run.json"


@dataclass(frozen=True, slots=True)
class OutageNote:
    """An outage. Times are in seconds since 1970."""

    cause: str
    why: str
    since: float
    probe_at: float  # earliest time of the next attempt


@dataclass(frozen=True, slots=True)
class RunNotes:
    """The notes of a run."""

    began: float  # seconds since 1970
    dollars: float  # cost of all sessions when it began
    ended: int  # number of ended tasks when it began
    outages: tuple[OutageNote, ...] = ()

    def write(self, folder: FleetFolder) -> None:
        """Write the notes; ignore errors."""
        with suppress(OSError):
            replace_file(folder.path / NAME, json.dumps(asdict(self)).encode(), durable=False)

    @classmethod
    def read(cls, folder: FleetFolder) -> "RunNotes | None":
        """Return the notes of the newest run, or None if they cannot be read."""
        with suppress(OSError, ValueError, TypeError, LookupError):
            found: Mapping[str, Any] = json.loads((folder.path / NAME).read_bytes())
            outages = tuple(OutageNote(**each) for each in found["outages"])
            return cls(float(found["began"]), float(found["dollars"]), int(found["ended"]), outages)
        return None


WINDOW_S = 600.0  # time span for measuring the pace of a run
MIN_SAMPLED_S = 10.0  # minimum time span for an estimate
MAX_CALL_CHARS = 120  # of the text of an activity
TAIL_BYTES = 1 << 17  # bytes at the end of a log that are read for the current activity
ASKING = "asks the model"


@dataclass(slots=True)
class Activity:
    """The current activity of an agent, read from its log."""

    sums: LogSums = field(default_factory=LogSums)
    calls: dict[str, str] = field(default_factory=dict)  # running calls as text, by ID
    since: float = 0.0  # seconds since 1970

    def read(self, log: Path) -> None:
        """Read the new lines of a log. If the sums of older lines are known, read only the last
        TAIL_BYTES of them for the activity. Raises OSError.
        """
        if self.sums.end and not self.since:
            with open_kept(log) as file:
                file.seek(max(0, self.sums.end - TAIL_BYTES))
                for line in file.read(self.sums.end - file.tell()).splitlines():
                    if entry := try_parse_entry(line):
                        self.update(entry)
        self.sums, _ = catch_up(self.sums, log, self.update)

    def update(self, entry: Entry) -> None:
        """Update the activity from an entry."""
        if isinstance(entry, Assistant) and entry.purpose == "turn":
            uses = (block for block in entry.content if block.get("type") == "tool_use")
            self.calls = {str(use.get("id")): _call_text(use) for use in uses}
        elif isinstance(entry, ToolResult):
            self.calls.pop(entry.tool_use_id, None)
        with suppress(ValueError):
            self.since = datetime.fromisoformat(entry.at).timestamp()

    @property
    def text(self) -> str:
        """The current activity as text."""
        if not self.calls:
            return ASKING
        first, *more = self.calls.values()
        return f"{first} and {len(more)} more" if more else first


def _call_text(use: dict[str, object]) -> str:
    """Return the tool of a call and its first text argument."""
    given = use.get("input")
    values = given.values() if isinstance(given, dict) else ()
    text = next((value for value in values if isinstance(value, str)), "")
    return cut_at_word(f"{use.get('name')} {as_sentences(text)}".strip(), MAX_CALL_CHARS)


class Pace:
    """The rate at which a run spends dollars and finishes tasks, over the last WINDOW_S seconds."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float, int]] = deque()

    def add(self, now: float, dollars: float, ended: int) -> None:
        """Add a sample: the time, the dollars spent and the number of finished tasks."""
        while len(self._samples) > 1 and now - self._samples[1][0] > WINDOW_S:
            self._samples.popleft()
        self._samples.append((now, dollars, ended))

    @property
    def dollars_per_hour(self) -> float | None:
        """Dollars spent per hour, or None without enough samples."""
        (began, before, _), (now, dollars, _) = self._samples[0], self._samples[-1]
        if now - began < MIN_SAMPLED_S:
            return None
        return 3_600 * (dollars - before) / (now - began)

    def seconds_left(self, tasks: int) -> float | None:
        """Return the estimated seconds for this number of tasks, or None without enough samples."""
        (began, _, before), (now, _, ended) = self._samples[0], self._samples[-1]
        if now - began < MIN_SAMPLED_S or ended <= before:
            return None
        return tasks * (now - began) / (ended - before)


@dataclass(frozen=True, slots=True)
class WorkerView:
    """A running agent and its current activity."""

    id: str  # ID of the task
    activity: str
    since: float  # seconds since 1970; 0 if unknown
    calls: int
    cost_usd: float | None


@dataclass(frozen=True, slots=True)
class EndView:
    """A task that ended."""

    id: str
    state: TaskState
    why: str
    cost_usd: float | None
    at: str


@dataclass(frozen=True, slots=True)
class LiveView:
    """The state of a fleet at one moment."""

    tasks: int
    is_running: bool
    counts: dict[str, int]
    dollars: float
    is_priced: bool
    calls: int
    tokens: int
    dollars_per_hour: float | None
    seconds_left: float | None
    outages: Sequence[OutageNote]
    workers: Sequence[WorkerView]  # longest activity first
    ended: Sequence[EndView]  # newest first

    @property
    def finished(self) -> int:
        """The number of done and failed tasks."""
        return self.counts["done"] + self.counts["failed"]


class LiveFleet:
    """Observer that follows the state of a fleet."""

    def __init__(
        self,
        manifest: Manifest,
        folder: FleetFolder,
        *,
        is_running: Callable[[], bool] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`is_running` returns True during a run; the default checks the lock of the ledger."""
        self._ids, self._folder, self._clock = list(manifest.lines), folder, clock
        self._is_running = is_running or (lambda: is_in_use(folder.lock))
        self._ledger = LedgerReader(folder)
        self._activities: dict[str, Activity] = {}  # by session
        self._logs: dict[str, Path] = {}  # logs of running sessions
        self._kept_sums = cached_sums(folder)
        self._pace, self._began = Pace(), 0.0

    def refresh(self) -> LiveView:
        """Return the current state of the fleet. Raises RecordError for an unreadable ledger."""
        is_running = self._is_running()
        self._ledger.catch_up()
        records, running = self._ledger.records, self.running
        self._read_logs(running)
        states = Counter(self._state(id, is_running) for id in self._ids)
        counts: dict[str, int] = {state: states[state] for state in STATES}
        sums = [each for record in records.values() for each in record.sums.values()]
        dollars = sum(each.cost_usd or 0.0 for each in sums)
        notes = RunNotes.read(self._folder) if is_running else None
        to_do = len(self._ids) - counts["done"] - counts["failed"]
        if notes is not None:
            if notes.began != self._began:
                self._pace, self._began = Pace(), notes.began
                self._pace.add(notes.began, notes.dollars, notes.ended)
            self._pace.add(self._clock(), dollars, len(self._ids) - to_do)
        is_known = notes is not None and not notes.outages
        return LiveView(
            tasks=len(self._ids),
            is_running=is_running,
            counts=counts,
            dollars=dollars,
            is_priced=all(each.cost_usd is not None for each in sums),
            calls=sum(each.calls for each in sums),
            tokens=sum(each.tokens for each in sums),
            dollars_per_hour=self._pace.dollars_per_hour if notes else None,
            seconds_left=self._pace.seconds_left(to_do) if is_known else None,
            outages=notes.outages if notes else (),
            workers=self._workers(running) if is_running else (),
            ended=list(self._ends()),
        )

    @property
    def running(self) -> list[TaskRecord]:
        """The tasks that are begun and not ended, as of the newest refresh."""
        return [each for each in self._ledger.records.values() if each.state == "running"]

    def _state(self, id: str, is_running: bool) -> TaskState:
        record = self._ledger.records.get(id)
        state: TaskState = record.state if record else "waiting"
        return "stopped" if state == "running" and not is_running else state

    def _read_logs(self, running: Sequence[TaskRecord]) -> None:
        """Update the sums of running tasks from their logs."""
        unknown = [record for record in running if record.session not in self._logs]
        self._logs |= find_logs(self._folder, unknown)
        self._activities = {
            record.session: self._activities.get(record.session)
            or Activity(self._kept_sums.pop(record.session, LogSums()))
            for record in running
        }
        for record in running:
            activity = self._activities[record.session]
            if log := self._logs.get(record.session):
                with suppress(OSError):
                    activity.read(log)
            record.sums[record.session] = SessionSums.of(activity.sums.totals)

    def _workers(self, running: Sequence[TaskRecord]) -> list[WorkerView]:
        found = []
        for record in running:
            activity, sums = self._activities[record.session], record.sums[record.session]
            cost = sums.cost_usd
            found.append(WorkerView(record.id, activity.text, activity.since, sums.calls, cost))
        return sorted(found, key=lambda each: each.since)

    def _ends(self) -> Iterator[EndView]:
        for id, at in reversed(self._ledger.ended):
            record = self._ledger.records[id]
            outcome = record.outcome
            if outcome is not None:
                why = as_sentences(f"{outcome.kind}: {outcome.message}").strip(": ")
                cost = record.cost_usd if record.is_priced else None
                yield EndView(id, record.state, why, cost, at)
