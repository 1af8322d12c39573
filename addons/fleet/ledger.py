"""The folder of a fleet, its task locks, and its ledger: started attempts and their outcomes.

The ledger is an append-only file, and a new run continues from it. Each line is synced to disk
before the event it describes. An incomplete last line, left by a kill during a write, is removed
when the ledger is opened for writing. The lock of a task is an open file that also names the
process working on the task.
"""

import errno
import fcntl
import json
import os
import socket
import time
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Literal

from ...api.base import CtxagentError, RecordError, SessionBusy, UsageError, dataclass
from ...api.files import open_kept, private_opener
from ...api.programs import birth
from ...api.record import LOCK_NAME, LOG_NAME, Entries, Totals, acquire_lock, end_of_whole_lines

_NAMED_BYTES = 200


def take(fd: int, seconds: float = 0.0) -> bool:
    """Wait `seconds`, then try to take the lock; return True if it was free."""
    time.sleep(seconds)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def name_holder(fd: int, pid: int) -> None:
    """Write the process that works on the task into the lock file."""
    born = (birth(pid) or b"-").decode()
    os.pwrite(fd, f"{pid} {born} {socket.gethostname()}\n".ljust(_NAMED_BYTES).encode(), 0)


def holder(fd: int) -> int | None:
    """Return the process named in the lock file, if it still runs on this machine."""
    with suppress(ValueError):
        pid, born, host = os.pread(fd, _NAMED_BYTES, 0).decode(errors="replace").split()
        if host == socket.gethostname() and birth(int(pid)) == born.encode():
            return int(pid)
    return None


TaskState = Literal["waiting", "running", "done", "failed", "stopped"]
PATCH_NAME = "patch.diff"
MAX_NEWEST = 20  # newest ended tasks kept by a reader of the ledger
FLEET_BUDGET = "fleet budget"  # the task's share of the remaining total budget was spent
REFUSED = "refused"  # the server refused the key or its account, for every task
# The steps that run after an agent has ended, and the kinds of their failures.
SCORE, AFTER = "score", "after"
UNKNOWN = "after unknown"  # the command after the score began, its end is unknown
STEP_OF = {SCORE: SCORE, AFTER: AFTER, UNKNOWN: AFTER}
# Kinds of failures of an agent after which its work is still scored; "" is no failure.
SCORED_KINDS = ("", "denied", "limit", "time limit")
FULL = (errno.ENOSPC, errno.EDQUOT)  # errors of a full disk
# Kinds of ends after which the next run continues the task automatically.
STOPPED_KINDS = ("interrupted", FLEET_BUDGET, REFUSED)


@dataclass(frozen=True, slots=True)
class SessionSums:
    """The sums of a session since its first entry."""

    cost_usd: float | None = 0.0  # None if no price is known
    calls: int = 0
    tool_calls: int = 0
    tokens: int = 0  # input and output tokens
    tokens_saved: int = 0  # tokens saved by compaction

    @classmethod
    def of_log(cls, log: Path | None) -> "SessionSums":
        """Return the sums of the readable entries in a log."""
        totals = Totals()
        with suppress(CtxagentError):
            for entry in Entries(log) if log else ():
                totals.add(entry)
        return cls.of(totals)

    @classmethod
    def of(cls, totals: Totals) -> "SessionSums":
        """Return the sums of a log."""
        found = totals.all
        return cls(
            found.cost_usd,
            found.calls,
            found.tool_calls,
            sum(found.usage.to_json().values()),
            found.compaction["tokens_saved"],
        )


@dataclass(frozen=True, kw_only=True)
class AttemptOutcome(SessionSums):
    """The outcome of an attempt at a task. Counts and dollars cover the task's whole session."""

    exit_code: int | None  # None if the agent did not end by itself
    kind: str = ""  # kind of failure, one or two words; "" for none
    message: str = ""
    cause: str = ""  # cause that other tasks may share (outages.py); "" for none
    # Of the failure: `rules` that would allow the denied calls, or the `limit` and its `value`.
    reason: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0  # of this attempt
    host: str = ""
    patch_bytes: int | None = None  # None without a repository
    log: str = ""  # path of the session's log; "" if there is none
    score: float | None = None  # from 0 to 1; None without one
    passed: bool | None = None  # verdict of the score; None without a score
    metrics: dict[str, Any] = field(default_factory=dict)  # other values from the score
    after: str = ""  # end of the output of the command after the score, if it has run

    @property
    def sums(self) -> SessionSums:
        """The sums of the task's session."""
        return SessionSums(*(getattr(self, name) for name in _SUM_FIELDS))

    @property
    def verdict(self) -> str:
        """The verdict of the score as text; "" without a score."""
        if self.passed is None or self.score is None:
            return ""
        return f"{'passed' if self.passed else 'not passed'} ({self.score:g})"

    @property
    def state(self) -> TaskState:
        """The state of a task whose last attempt has this outcome."""
        if self.kind in STOPPED_KINDS or self.cause:
            return "stopped"
        return "failed" if self.kind else "done"


_SUM_FIELDS, _OUTCOME_FIELDS = (
    tuple(each.name for each in fields(kind)) for kind in (SessionSums, AttemptOutcome)
)


@dataclass(slots=True)
class TaskRecord:
    """The state of a task according to the ledger."""

    id: str
    digest: str  # digest of the task when it began
    session: str  # ID of the newest session
    attempt: int = 0  # number of the newest attempt
    starts: int = 0  # number of starts, including those that continue an interrupted attempt
    state: TaskState = "running"
    outcome: AttemptOutcome | None = None  # outcome of the newest attempt, once it has ended
    has_ended: bool = False  # True once any attempt has ended
    sums: dict[str, SessionSums] = field(default_factory=dict)  # of each session
    log: str = ""  # expected path of the newest session's log; "" in older ledgers
    share: float = 0.0  # maximum dollars for the newest attempt; 0 without a limit
    needs_no_agent: bool = False  # only the steps of the newest attempt are left to run
    tries: dict[str, int] = field(default_factory=dict)  # retries of each step in the session

    def total(self, name: str) -> int:
        """Return a count over all sessions of the task."""
        return sum(getattr(sums, name) for sums in self.sums.values())

    @property
    def cost_usd(self) -> float:
        """The dollars of all sessions of the task; calls without a known price count as 0."""
        return sum(sums.cost_usd or 0.0 for sums in self.sums.values())

    @property
    def is_priced(self) -> bool:
        """True if the price of every call of the task is known."""
        return all(sums.cost_usd is not None for sums in self.sums.values())


@dataclass(frozen=True, slots=True)
class FleetFolder:
    """The folder with all files of a fleet: `<name>.fleet` next to its manifest."""

    path: Path

    @classmethod
    def of(cls, manifest: Path) -> "FleetFolder":
        return cls(manifest.absolute().with_suffix(".fleet"))

    @property
    def ledger(self) -> Path:
        return self.path / "ledger.jsonl"

    @property
    def lock(self) -> Path:
        """The lock of the process that writes the ledger."""
        return self.ledger.with_name(LOCK_NAME)

    @property
    def state(self) -> Path:
        """The state folder of the agents, with their sessions."""
        return self.path / "state"

    @property
    def wait_file(self) -> Path:
        """The file in which agents share the wait time that the server requests."""
        return self.path / "wait"

    @property
    def attempts_file(self) -> Path:
        """The file with the last run's number of attempts per task."""
        return self.path / "attempts"

    @property
    def attempts(self) -> int | None:
        """The last run's default number of attempts per task, or None if it had none."""
        with suppress(OSError, ValueError):
            return int(self.attempts_file.read_text()) or None
        return None

    @property
    def collections_file(self) -> Path:
        """The file with the folders that `fleet collect` has filled."""
        return self.path / "collections"

    @property
    def collections(self) -> list[Path]:
        """The folders that `fleet collect` has filled."""
        with suppress(OSError):
            return [Path(line) for line in self.collections_file.read_text().splitlines()]
        return []

    @property
    def stop_file(self) -> Path:
        """The file that stops all attempts, on every machine."""
        return self.path / "stop"

    def task(self, id: str, session: str) -> "TaskFolder":
        """Return the folder of a task's session."""
        return TaskFolder(self, id, session)


@dataclass(frozen=True, slots=True)
class TaskFolder:
    """The files of a task's session: results, patch, clone."""

    fleet: FleetFolder
    id: str
    session: str

    @property
    def path(self) -> Path:
        return self.fleet.path / "tasks" / self.id / self.session

    @property
    def lock(self) -> Path:
        """The file that is locked while an agent runs for the task, in whatever process."""
        return self.path / "lock"

    @property
    def place(self) -> Path:
        """The clone of a repository, or the empty folder, in which the agent works."""
        return self.path / "place"

    @property
    def base(self) -> Path:
        """The file with the commit from which the task started."""
        return self.path / "base"

    @property
    def patch(self) -> Path:
        return self.path / PATCH_NAME

    @property
    def left(self) -> Path:
        """The file with the digest of the changes in the place after the steps of the task."""
        return self.path / "left"

    @property
    def stderr(self) -> Path:
        """The error output of the agent or its container engine."""
        return self.path / "stderr.txt"

    @property
    def own_state(self) -> Path:
        """The state folder of an agent in a container; the container sees no other state folder."""
        return self.path / "state"

    def state_of(self, image: str | None) -> Path:
        """Return the agent's state folder, which differs if it runs in a container."""
        return self.own_state if image else self.fleet.state

    def result_file(self, attempt: int) -> Path:
        """Return the file to which the agent of an attempt writes its result."""
        return self.path / f"result-{attempt}.json"

    def step_file(self, step: str, attempt: int, tries: int, suffix: str) -> Path:
        """Return a file of a step: its output, errors or exit code. The command after the score
        runs once per session, so its files have no attempt number.
        """
        name = step if step == AFTER else f"{step}-{attempt}"
        return self.path / f"{name}{f'-{tries}' if tries else ''}.{suffix}"

    def result(self, attempt: int) -> dict[str, Any] | None:
        """Return the result of an attempt, or None if it is missing or incomplete."""
        with suppress(OSError, ValueError):
            found = json.loads(self.result_file(attempt).read_bytes())
            return found if isinstance(found, dict) else None
        return None

    def find_log(self) -> Path | None:
        """Return the log of the session, or None if it does not exist yet. All projects are
        searched. The ledger also has the path.
        """
        for state in (self.own_state, self.fleet.state):
            if log := logs_in(state).get(self.session):
                return log
        return None


def logs_in(state: Path) -> dict[str, Path]:
    """Return the logs in a state folder, by session ID."""
    found = dict[str, Path]()
    with suppress(OSError), os.scandir(state / "projects") as projects:
        for project in projects:
            with suppress(OSError):
                folder = f"{project.path}/sessions"
                found |= {name: Path(folder, name, LOG_NAME) for name in os.listdir(folder)}  # noqa: PTH208
    return found


def expected_log(record: TaskRecord) -> Path | None:
    """Return the path of the newest session's log in the ledger; None without one."""
    named = record.outcome.log if record.outcome else ""
    log = named if Path(named).parent.name == record.session else record.log
    return Path(log) if log else None


def find_logs(folder: FleetFolder, records: Iterable[TaskRecord]) -> dict[str, Path]:
    """Return the existing logs of the tasks' newest sessions, by session ID. Logs that are not at
    the path in the ledger are searched for in all projects, which are listed once.
    """
    found, missing = dict[str, Path](), list[TaskRecord]()
    for record in records:
        log = expected_log(record)
        if log and log.exists():
            found[record.session] = log
        else:
            missing.append(record)
    if missing:  # most of them have not begun
        begun = _names_in(folder.path / "tasks")
        missing = [record for record in missing if record.id in begun
                   and folder.task(record.id, record.session).stderr.exists()]  # fmt: skip
    if missing:
        there = logs_in(folder.state)
        for record in missing:
            own = folder.task(record.id, record.session).own_state
            if path := there.get(record.session) or logs_in(own).get(record.session):
                found[record.session] = path
    return found


def _names_in(folder: Path) -> set[str]:
    with suppress(OSError), os.scandir(folder) as entries:
        return {entry.name for entry in entries}
    return set()


class FleetLedger:
    """The ledger of a fleet, locked by this process and open for appending."""

    def __init__(self, folder: FleetFolder, reader: "LedgerReader | None" = None) -> None:
        """Open the ledger, or create it. `reader` may have read it before. Raises UsageError if
        another process has it open, RecordError if it cannot be written.
        """
        self.folder = folder
        self.warnings: list[str] = []
        try:
            self._lock = acquire_lock(folder.ledger, self.warnings)
        except SessionBusy as busy:
            hint = "Wait until it ends; `ctxagent fleet status` shows its progress."
            why = f"another process (pid {busy.holder}) runs this manifest"
            raise UsageError(why, hint=hint) from None
        try:
            self._file: BinaryIO = open(  # noqa: SIM115 - open until `close`
                folder.ledger, "ab+", buffering=0, opener=private_opener
            )
            self._file.truncate(end_of_whole_lines(self._file, self._file.seek(0, os.SEEK_END)))
        except OSError as error:
            os.close(self._lock)
            raise _unwritable(folder.ledger, error) from error
        reader = reader or LedgerReader(folder)
        reader.catch_up()
        self.records = reader.records

    def begin(
        self,
        id: str,
        digest: str,
        session: str,
        attempt: int,
        log: str = "",
        share: float | None = None,
    ) -> None:
        """Record the start of an attempt, the expected path of its log, and the maximum dollars.
        Raises RecordError; then the attempt must not start.
        """
        more = {"attempt": attempt, "log": log, "share": share or 0.0}
        self._append("begun", task=id, digest=digest, session=session, **more)

    def end(self, id: str, session: str, attempt: int, outcome: AttemptOutcome) -> None:
        """Record the outcome of an attempt. Raises RecordError."""
        self._append("ended", task=id, session=session, attempt=attempt, **asdict(outcome))

    def retry(self, id: str, step: str = "") -> None:
        """Record that a failed task is to be retried. If it failed in a step, or `step` is given,
        retry only from that step. Raises RecordError.
        """
        outcome = self.records[id].outcome
        step = step or STEP_OF.get(outcome.kind if outcome else "", "")
        self._append("retry", task=id, **({"step": step} if step else {}))

    def _append(self, event: str, **more: Any) -> None:
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = {"event": event, "at": at, **more}
        data = json.dumps(line, ensure_ascii=False).encode() + b"\n"
        size = self._file.seek(0, os.SEEK_END)
        try:
            if self._file.write(data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._file.fileno())
        except OSError as error:
            with suppress(OSError):
                self._file.truncate(size)  # else the next line would follow a partial line
            raise _unwritable(self.folder.ledger, error) from error
        _fold(self.records, line)

    def close(self) -> None:
        """Close the ledger and release its lock."""
        self._file.close()
        os.close(self._lock)


def read_records(folder: FleetFolder) -> dict[str, TaskRecord]:
    """Return the records of all tasks in the ledger, in the order they were first begun. Invalid
    lines are skipped. Raises RecordError if the ledger cannot be read.
    """
    reader = LedgerReader(folder)
    reader.catch_up()
    return reader.records


class LedgerReader:
    """Reader that follows a ledger written by another process."""

    def __init__(self, folder: FleetFolder) -> None:
        self._path = folder.ledger
        self._end = 0  # offset after the last line read
        self.records: dict[str, TaskRecord] = {}
        self.ended: deque[tuple[str, str]] = deque(maxlen=MAX_NEWEST)  # tasks, with the time

    def catch_up(self) -> bool:
        """Read new lines; return True if there are any. Invalid lines are skipped. Raises
        RecordError if the ledger cannot be read.
        """
        start = self._end
        try:
            with open_kept(self._path) as file:
                file.seek(start)
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    self._end += len(line)
                    with suppress(ValueError, TypeError, LookupError):
                        self._add(json.loads(line))
        except FileNotFoundError:
            return False
        except OSError as error:
            raise RecordError(f"cannot read {self._path}: {error.strerror}") from error
        return self._end > start

    def _add(self, line: Mapping[str, Any]) -> None:
        _fold(self.records, line)
        if line["event"] == "ended":
            self.ended.append((line["task"], line["at"]))


def _fold(records: dict[str, TaskRecord], line: Mapping[str, Any]) -> None:
    """Apply a line to the records. Raises ValueError, TypeError or LookupError if it is invalid."""
    event, id = line["event"], line["task"]
    if event == "begun":
        record = records.get(id)
        if record is None:
            record = records[id] = TaskRecord(id, line["digest"], line["session"])
        if record.session != line["session"]:
            record.tries = {}
        if (record.session, record.attempt) != (line["session"], line["attempt"]):
            record.needs_no_agent = False
        record.digest, record.session = line["digest"], line["session"]
        record.attempt, record.state, record.outcome = line["attempt"], "running", None
        record.log, record.share = line.get("log", ""), line.get("share", 0.0)
        record.starts += 1
        record.sums.setdefault(record.session, SessionSums())
    elif event == "ended":
        known = {name: line[name] for name in _OUTCOME_FIELDS if name in line}
        record, outcome = records[id], AttemptOutcome(**known)
        record.outcome, record.state, record.has_ended = outcome, outcome.state, True
        record.sums[line["session"]] = outcome.sums
        record.needs_no_agent |= outcome.exit_code == 0
    elif event == "retry":
        record, step = records[id], line.get("step", "")
        record.state, record.outcome, record.needs_no_agent = "stopped", None, bool(step)
        if step:
            record.tries[step] = record.tries.get(step, 0) + 1


def is_to_run(record: TaskRecord | None) -> bool:
    """Return True if the next run starts the task."""
    return record is None or record.state in ("running", "stopped")


def has_reply(log: Path, start: int) -> bool:
    """Return True if a log has a reply of the model after its first `start` bytes."""
    with suppress(OSError), open_kept(log) as file:
        file.seek(start)
        return any(b'"kind": "assistant"' in line and b'"purpose": "attempt"' not in line
                   for line in file if line.endswith(b"\n"))  # fmt: skip
    return False


def bill(records: Iterable[TaskRecord]) -> float:
    """Return the dollars of all sessions; calls without a known price count as 0."""
    return sum(record.cost_usd for record in records)


def _unwritable(path: Path, error: OSError) -> RecordError:
    why = "the disk is full" if error.errno in FULL else error.strerror
    return RecordError(
        f"cannot write {path}: {why}", hint="No task starts until the ledger can be written."
    )
