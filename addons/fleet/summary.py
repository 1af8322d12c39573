"""The states of a manifest's tasks, in sum and one by one.

Unfinished sessions are counted from their logs. Their sums are cached in a file, so that only new
lines of a log are read. The cache can be deleted; if it cannot be written, all logs are read again.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, field
from pathlib import Path
from typing import Any

from ...api.base import CtxagentError, dataclass
from ...api.files import open_kept, replace_file
from ...api.record import (
    Entries,
    Entry,
    Session,
    Totals,
    from_json,
    signature,
    to_json,
    try_parse_entry,
)
from .causes import FailureCause, causes_of
from .ledger import (
    AttemptOutcome,
    FleetFolder,
    SessionSums,
    TaskRecord,
    TaskState,
    expected_log,
    find_logs,
)
from .manifest import Manifest, TaskLine

CACHE_NAME = "sums.json"


@dataclass(slots=True)
class LogSums:
    """The sums of a log up to the offset `end`."""

    inode: int = 0
    end: int = 0
    totals: Totals = field(default_factory=Totals)


def count_from_logs(records: Iterable[TaskRecord], folder: FleetFolder) -> None:
    """Count the sums of running or interrupted sessions from their logs, because the ledger has
    only finished attempts.
    """
    running = {record.session: record for record in records if record.state == "running"}
    known, kept, has_read = cached_sums(folder), dict[str, LogSums](), False

    def count(record: TaskRecord, log: Path | None) -> bool:
        """Count a log; return False if it does not exist."""
        nonlocal has_read
        sums = known.get(record.session, LogSums())
        with suppress(OSError):
            if log is not None:
                sums, is_new = catch_up(sums, log)
                has_read, kept[record.session] = has_read or is_new, sums
        record.sums[record.session] = SessionSums.of(sums.totals)
        return record.session in kept

    missing = [each for each in running.values() if not count(each, expected_log(each))]
    for session, log in find_logs(folder, missing).items():
        count(running[session], log)
    if has_read:
        _write_cache(folder, kept)


def catch_up(
    sums: LogSums, log: Path, on_entry: Callable[[Entry], None] | None = None
) -> tuple[LogSums, bool]:
    """Add the new complete lines of a log; return the sums and True if there were new lines. A
    replaced log is read from the beginning. `on_entry` is called with each entry. Raises OSError.
    """
    stat = log.stat()
    if stat.st_ino != sums.inode or stat.st_size < sums.end:
        sums = LogSums(stat.st_ino)
    if stat.st_size == sums.end:
        return sums, False
    with open_kept(log) as file:
        file.seek(sums.end)
        for line in file:
            if not line.endswith(b"\n"):
                break
            sums.end += len(line)
            if entry := try_parse_entry(line):
                sums.totals.add(entry)
                if on_entry is not None:
                    on_entry(entry)
    return sums, True


def cached_sums(folder: FleetFolder) -> dict[str, LogSums]:
    """Return the cached sums by session ID; empty without a valid cache."""
    with suppress(OSError, ValueError, RecursionError):
        form, _, data = (folder.path / CACHE_NAME).read_bytes().partition(b"\n")
        if form.decode() == _form():
            found: dict[str, LogSums] = from_json(dict[str, LogSums], data)
            return found
    return {}


def _write_cache(folder: FleetFolder, kept: dict[str, LogSums]) -> None:
    data = _form().encode() + b"\n" + to_json(kept)
    with suppress(OSError):
        replace_file(folder.path / CACHE_NAME, data, durable=False)


def _form() -> str:
    """Return the first line of the cache, which changes with each field."""
    return json.dumps(signature(LogSums))


STATES: tuple[TaskState, ...] = ("done", "failed", "stopped", "running", "waiting")
COUNTS = ("calls", "tool_calls", "tokens", "tokens_saved")  # summed over a task's sessions


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """The state of a task in the manifest; `record` is None if it never began."""

    id: str
    state: TaskState
    record: TaskRecord | None
    is_changed: bool  # True if its line was changed after it began
    line: TaskLine

    @property
    def outcome(self) -> AttemptOutcome | None:
        """The outcome of its newest attempt, or None before that attempt has ended."""
        return self.record.outcome if self.record else None

    def find_log(self, folder: FleetFolder) -> Path | None:
        """Return the log of its newest session, or None."""
        if self.record is None:
            return None
        return find_logs(folder, [self.record]).get(self.record.session)

    def to_json(self, folder: FleetFolder) -> dict[str, Any]:
        """Return the task as JSON values."""
        record = self.record
        if record is None:
            return {"id": self.id, "task": self.line.name, "state": self.state}
        return {
            "id": self.id,
            "task": self.line.name,
            "cell": self.line.cell,
            "state": self.state,
            "session": record.session,
            "folder": str(folder.task(self.id, record.session).path),
            "attempt": record.attempt,
            "starts": record.starts,
            "changed": self.is_changed,
            **(asdict(record.outcome) if record.outcome else {}),
            **{name: record.total(name) for name in COUNTS},
            "cost_usd": record.cost_usd if record.is_priced else None,
        }


def cost_text(dollars: float, *, is_priced: bool) -> str:
    """Return the cost of sessions as text."""
    if is_priced:
        return f"${dollars:,.4f}"
    return f"${dollars:,.4f} and calls without a price" if dollars else "no known price"


def find_place(log: Path | None) -> Path | None:
    """Return the folder in which a session began, from its log; None if unknown."""
    with suppress(CtxagentError):
        for entry in Entries(log) if log else ():
            if isinstance(entry, Session):
                return Path(entry.cwd)
    return None


@dataclass(frozen=True, slots=True)
class FleetSummary:
    """The states of all tasks in a manifest."""

    tasks: Sequence[TaskStatus]
    removed: Sequence[TaskRecord]  # tasks removed from the manifest; included in the bill

    @classmethod
    def of(
        cls,
        manifest: Manifest,
        records: Mapping[str, TaskRecord],
        folder: FleetFolder,
        *,
        is_running: bool,
    ) -> "FleetSummary":
        """Return the states of the tasks. Unfinished tasks count as running only during a run;
        their sums come from their logs.
        """
        count_from_logs(records.values(), folder)

        def statuses() -> Iterator[TaskStatus]:
            for line in manifest.lines.values():
                record = records.get(line.id)
                state: TaskState = record.state if record else "waiting"
                if state == "running" and not is_running:
                    state = "stopped"
                changed = record is not None and record.digest != line.digest
                yield TaskStatus(line.id, state, record, changed, line)

        removed = [record for id, record in records.items() if id not in manifest.lines]
        return cls(list(statuses()), removed)

    @property
    def counts(self) -> dict[str, int]:
        """The number of tasks in each state."""
        found = Counter(task.state for task in self.tasks)
        return {state: found[state] for state in STATES}

    @property
    def kinds(self) -> dict[str, int]:
        """The number of failed tasks for each kind of failure, most frequent first."""
        failed = (task.outcome for task in self.tasks if task.state == "failed")
        found = Counter(outcome.kind for outcome in failed if outcome)
        return dict(found.most_common())

    @property
    def causes(self) -> list[FailureCause]:
        """The causes of the failures, most frequent first."""
        failed = ((task.id, task.outcome) for task in self.tasks if task.state == "failed")
        return causes_of((id, outcome) for id, outcome in failed if outcome)

    @property
    def verdicts(self) -> dict[str, int]:
        """The numbers of passed and not passed attempts; empty without scores."""
        found = Counter(task.outcome.passed for task in self.tasks if task.outcome)
        counts = {"passed": found[True], "not passed": found[False]}
        return {name: count for name, count in counts.items() if count}

    @property
    def records(self) -> list[TaskRecord]:
        """The records of all tasks that ever began."""
        return [*(task.record for task in self.tasks if task.record), *self.removed]

    @property
    def dollars(self) -> float:
        """The dollars of all sessions; calls without a known price count as 0."""
        return sum(record.cost_usd for record in self.records)

    @property
    def is_priced(self) -> bool:
        """True if the price of every call is known."""
        return all(record.is_priced for record in self.records)

    @property
    def bill(self) -> str:
        """The cost of all sessions as text."""
        return cost_text(self.dollars, is_priced=self.is_priced)

    def total(self, name: str) -> int:
        """Return the sum of a count over all sessions."""
        return sum(record.total(name) for record in self.records)

    def to_json(self, folder: FleetFolder) -> dict[str, Any]:
        """Return the summary as JSON values."""
        return {
            "tasks": len(self.tasks),
            **self.counts,
            "failures": self.kinds,
            "score": self.verdicts,
            "cost_usd": round(self.dollars, 6) if self.is_priced else None,
            "tokens": self.total("tokens"),
            "tokens_saved": self.total("tokens_saved"),
            "calls": self.total("calls"),
            "each": [task.to_json(folder) for task in self.tasks],
        }
