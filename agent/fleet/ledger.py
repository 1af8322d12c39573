"""The folder of a fleet, and its ledger: an append-only file that says what was begun and how it
ended. It is the truth: a run goes on from there.

A line is on the medium before what it describes begins. A torn last line, left by a kill in the
middle of a write, is cut off when the ledger is opened to be written.
"""

import errno
import json
import os
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Literal

from ...tools.system.files import open_kept, private_opener
from ..errors import CtxagentError, RecordError, SessionBusy, UsageError
from ..lazy import dataclass
from ..session.lock import LOCK_NAME, acquire_lock
from ..session.log import LOG_NAME, Entries, end_of_whole_lines
from ..session.totals import Totals

TaskState = Literal["waiting", "running", "done", "failed", "stopped"]
PATCH_NAME = "patch.diff"
MAX_NEWEST = 20  # tasks that ended last, as a reader of the ledger keeps them
FLEET_BUDGET = "fleet budget"  # the task's share of what is left for all was spent
REFUSED = "refused"  # the key or its account, by the server: the same for every task
# Failures of the commands that are run when an agent has ended, and these commands.
SCORE, AFTER = "score", "after"
UNKNOWN = "after unknown"  # it was begun, and how it ended is not known
STEP_OF = {SCORE: SCORE, AFTER: AFTER, UNKNOWN: AFTER}
# Failures of an agent after which its work is scored all the same; "" is none.
SCORED_KINDS = ("", "denied", "limit", "time limit")
# Ways to end without an answer after which a task goes on by itself at the next run.
FULL = (errno.ENOSPC, errno.EDQUOT)  # errors of a disk that is full
STOPPED_KINDS = ("interrupted", FLEET_BUDGET, REFUSED)


@dataclass(frozen=True, slots=True)
class SessionSums:
    """What a session has used, from its first entry on."""

    cost_usd: float | None = 0.0  # None where no price is known
    calls: int = 0
    tool_calls: int = 0
    tokens: int = 0  # that the model read and wrote
    tokens_saved: int = 0  # by compaction

    @classmethod
    def of_log(cls, log: Path | None) -> "SessionSums":
        """Return the sums of a log, as far as it can be read."""
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
    """How an attempt at a task ended. Counts and dollars are those of the task's whole session."""

    exit_code: int | None  # None where the agent came to no end of its own
    kind: str = ""  # of a failure: a word or two; "" for none
    message: str = ""
    cause: str = ""  # of a failure that other tasks may share (outages.py); "" for its own
    seconds: float = 0.0  # of this attempt
    host: str = ""
    patch_bytes: int | None = None  # None where there is no repository
    log: str = ""  # of the session; "" where there is none
    score: float | None = None  # from 0 to 1; None without one
    passed: bool | None = None  # by the score
    metrics: dict[str, Any] = field(default_factory=dict)  # what else the score said
    after: str = ""  # the end of what the command after the score printed, if it has run

    @property
    def sums(self) -> SessionSums:
        """What the task's session has used."""
        return SessionSums(**{each.name: getattr(self, each.name) for each in fields(SessionSums)})

    @property
    def verdict(self) -> str:
        """What the score says, in words; "" without one."""
        if self.passed is None or self.score is None:
            return ""
        return f"{'passed' if self.passed else 'not passed'} ({self.score:g})"

    @property
    def state(self) -> TaskState:
        """The state of a task whose last attempt ended so."""
        if self.kind in STOPPED_KINDS or self.cause:
            return "stopped"
        return "failed" if self.kind else "done"


@dataclass(slots=True)
class TaskRecord:
    """What the ledger says of a task."""

    id: str
    digest: str  # of the task as it was begun
    session: str  # the newest
    attempt: int = 0  # the number of the newest
    starts: int = 0  # how often it was started, also to go on with an attempt that was cut
    state: TaskState = "running"
    outcome: AttemptOutcome | None = None  # of the newest attempt, once that has ended
    has_ended: bool = False  # any attempt
    sums: dict[str, SessionSums] = field(default_factory=dict)  # of each session
    log: str = ""  # of the newest session, where it is expected; "" in older ledgers
    share: float = 0.0  # dollars that its newest attempt may cost; 0 where that is not limited
    needs_no_agent: bool = False  # the agent of its newest attempt has ended for good
    tries: dict[str, int] = field(default_factory=dict)  # of each step in its session, beside one

    def total(self, name: str) -> int:
        """Return a count over all sessions of the task."""
        return sum(getattr(sums, name) for sums in self.sums.values())

    @property
    def cost_usd(self) -> float:
        """The dollars of all sessions of the task, as far as prices are known."""
        return sum(sums.cost_usd or 0.0 for sums in self.sums.values())

    @property
    def is_priced(self) -> bool:
        """Whether the price of every call of the task is known."""
        return all(sums.cost_usd is not None for sums in self.sums.values())


@dataclass(frozen=True, slots=True)
class FleetFolder:
    """Where everything of a fleet lies: next to its manifest, in `<name>.fleet`."""

    path: Path

    @classmethod
    def of(cls, manifest: Path) -> "FleetFolder":
        return cls(manifest.absolute().with_suffix(".fleet"))

    @property
    def ledger(self) -> Path:
        return self.path / "ledger.jsonl"

    @property
    def lock(self) -> Path:
        """The lock that a process has which writes the ledger."""
        return self.ledger.with_name(LOCK_NAME)

    @property
    def state(self) -> Path:
        """The state folder of the agents, with their sessions."""
        return self.path / "state"

    @property
    def wait_file(self) -> Path:
        """The file by which agents tell each other what the server asks them to wait."""
        return self.path / "wait"

    @property
    def attempts_file(self) -> Path:
        """The file with how many attempts the last run made at each task."""
        return self.path / "attempts"

    @property
    def attempts(self) -> int | None:
        """How many attempts the last run made at each task whose line says nothing, if it was told
        to."""
        with suppress(OSError, ValueError):
            return int(self.attempts_file.read_text()) or None
        return None

    @property
    def stop_file(self) -> Path:
        """The file that asks all attempts to end, wherever they run."""
        return self.path / "stop"

    def task(self, id: str, session: str) -> "TaskFolder":
        """Return the folder of a task's session."""
        return TaskFolder(self, id, session)


@dataclass(frozen=True, slots=True)
class TaskFolder:
    """What is kept of a task's session: its results, its patch, its clone."""

    fleet: FleetFolder
    id: str
    session: str

    @property
    def path(self) -> Path:
        return self.fleet.path / "tasks" / self.id / self.session

    @property
    def lock(self) -> Path:
        """The file that is locked as long as an agent runs for the task, no matter who started
        it."""
        return self.path / "lock"

    @property
    def place(self) -> Path:
        """The clone of a repository, or the empty folder, that the task is done in."""
        return self.path / "place"

    @property
    def base(self) -> Path:
        """The file with the commit that the task began from."""
        return self.path / "base"

    @property
    def patch(self) -> Path:
        return self.path / PATCH_NAME

    @property
    def stderr(self) -> Path:
        """What the agent, or the engine of its container, has said next to its result."""
        return self.path / "stderr.txt"

    @property
    def own_state(self) -> Path:
        """The agent's state folder in a container, which sees no other's."""
        return self.path / "state"

    def state_of(self, image: str | None) -> Path:
        """Return the state folder of the agent, which may run in a container."""
        return self.own_state if image else self.fleet.state

    def result_file(self, attempt: int) -> Path:
        """Return the file that the agent of an attempt writes its result into."""
        return self.path / f"result-{attempt}.json"

    def step_file(self, step: str, attempt: int, tries: int, suffix: str) -> Path:
        """Return a file of a step: its output, its errors or its exit code. The command after the
        score is run once in a session, however many attempts that has."""
        name = step if step == AFTER else f"{step}-{attempt}"
        return self.path / f"{name}{f'-{tries}' if tries else ''}.{suffix}"

    def result(self, attempt: int) -> dict[str, Any] | None:
        """Return the result of an attempt, None where there is none that is whole."""
        with suppress(OSError, ValueError):
            found = json.loads(self.result_file(attempt).read_bytes())
            return found if isinstance(found, dict) else None
        return None

    def find_log(self) -> Path | None:
        """Return the log of the session, None where there is none yet. All projects are searched:
        the ledger names the log too."""
        for state in (self.own_state, self.fleet.state):
            if log := logs_in(state).get(self.session):
                return log
        return None


def logs_in(state: Path) -> dict[str, Path]:
    """Return the logs in a state folder, by the names of their sessions."""
    found = dict[str, Path]()
    with suppress(OSError), os.scandir(state / "projects") as projects:
        for project in projects:
            with suppress(OSError):
                folder = f"{project.path}/sessions"
                found |= {name: Path(folder, name, LOG_NAME) for name in os.listdir(folder)}  # noqa: PTH208
    return found


def find_logs(folder: FleetFolder, records: Iterable[TaskRecord]) -> dict[str, Path]:
    """Return the logs of the newest sessions of tasks, by session, as far as they are there. All
    projects are searched, once, only for logs that are not where the ledger says."""
    found, missing = dict[str, Path](), list[TaskRecord]()
    for record in records:
        named = record.outcome.log if record.outcome else ""
        log = named if Path(named).parent.name == record.session else record.log
        if log and Path(log).exists():
            found[record.session] = Path(log)
        elif folder.task(record.id, record.session).stderr.exists():  # its agent was started
            missing.append(record)
    if missing:
        there = logs_in(folder.state)
        for record in missing:
            own = folder.task(record.id, record.session).own_state
            if path := there.get(record.session) or logs_in(own).get(record.session):
                found[record.session] = path
    return found


class FleetLedger:
    """The ledger of a fleet, held by one process and open to be appended to."""

    def __init__(self, folder: FleetFolder) -> None:
        """Open the ledger, and make it where there is none. Raises UsageError where another process
        has it, RecordError where it cannot be written."""
        self.folder = folder
        self.warnings: list[str] = []
        try:
            self._lock = acquire_lock(folder.ledger, self.warnings)
        except SessionBusy as busy:
            hint = "Wait for its end; `ctxagent fleet status` shows how far it is."
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
        self.records = read_records(folder)

    def begin(
        self,
        id: str,
        digest: str,
        session: str,
        attempt: int,
        log: str = "",
        share: float | None = None,
    ) -> None:
        """Record that an attempt begins, where the log of its session will be, and how many dollars
        it may cost. Raises RecordError, and then it must not begin."""
        more = {"attempt": attempt, "log": log, "share": share or 0.0}
        self._append("begun", task=id, digest=digest, session=session, **more)

    def end(self, id: str, session: str, attempt: int, outcome: AttemptOutcome) -> None:
        """Record how an attempt ended. Raises RecordError."""
        self._append("ended", task=id, session=session, attempt=attempt, **asdict(outcome))

    def retry(self, id: str, step: str = "") -> None:
        """Record that a task which had failed is to be tried again; where it failed by a step, and
        for a `step` that is given, only from that step on. Raises RecordError."""
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
                self._file.truncate(size)  # or the next line would be glued to a part of this one
            raise _unwritable(self.folder.ledger, error) from error
        _fold(self.records, line)

    def close(self) -> None:
        """Let go of the ledger."""
        self._file.close()
        os.close(self._lock)


def read_records(folder: FleetFolder) -> dict[str, TaskRecord]:
    """Return what the ledger says of each task that was begun, in the order of their beginnings. A
    line that is none is passed over. Raises RecordError where the ledger cannot be read."""
    reader = LedgerReader(folder)
    reader.catch_up()
    return reader.records


class LedgerReader:
    """Follows a ledger that another process writes."""

    def __init__(self, folder: FleetFolder) -> None:
        self._path = folder.ledger
        self._end = 0  # of the lines that were read
        self.records: dict[str, TaskRecord] = {}
        self.ended: deque[tuple[str, str]] = deque(maxlen=MAX_NEWEST)  # tasks, with the time

    def catch_up(self) -> bool:
        """Read the lines that are new; return whether there are any. A line that is none is passed
        over. Raises RecordError where the ledger cannot be read."""
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
    """Add a line. Raises ValueError, TypeError and LookupError for one that is none."""
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
        known = (each.name for each in fields(AttemptOutcome) if each.name in line)
        record, outcome = records[id], AttemptOutcome(**{name: line[name] for name in known})
        record.outcome, record.state, record.has_ended = outcome, outcome.state, True
        record.sums[line["session"]] = outcome.sums
        record.needs_no_agent |= outcome.exit_code == 0
    elif event == "retry":
        record, step = records[id], line.get("step", "")
        record.state, record.outcome, record.needs_no_agent = "stopped", None, bool(step)
        if step:
            record.tries[step] = record.tries.get(step, 0) + 1


def is_to_run(record: TaskRecord | None) -> bool:
    """Return True if the next run starts a task, by what the ledger says of it."""
    return record is None or record.state in ("running", "stopped")


def has_reply(log: Path, start: int) -> bool:
    """Return True if a log has a reply of the model behind its first `start` bytes."""
    with suppress(OSError), open_kept(log) as file:
        file.seek(start)
        return any(b'"kind": "assistant"' in line and b'"purpose": "attempt"' not in line
                   for line in file if line.endswith(b"\n"))  # fmt: skip
    return False


def bill(records: Iterable[TaskRecord]) -> float:
    """Return the dollars of all sessions, as far as prices are known."""
    return sum(record.cost_usd for record in records)


def _unwritable(path: Path, error: OSError) -> RecordError:
    why = "the disk is full" if error.errno in FULL else error.strerror
    return RecordError(
        f"cannot write {path}: {why}", hint="Nothing more is started until it can be written."
    )
