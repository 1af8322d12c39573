"""One attempt at a task: create its working directory, run the agent there, keep the result, then
run the steps of the task (`steps.py`).

`run_attempt` runs in a thread of this process or in a worker on another machine. Everything
important survives the death of that process. The agent has its own process group and writes its
result to a file. The lock of the task's folder is held as long as the agent runs. The next process
waits for an agent that is still running and takes over its result.
"""

import errno
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ...api.base import CtxagentError
from ...api.files import make_private_folder, private_opener, write_private
from ...api.programs import isolated_python
from ...api.session import as_flags
from ...api.text import as_sentences, cut_at_word
from . import ledger, places
from .ledger import AFTER, FLEET_BUDGET, REFUSED, SCORE, UNKNOWN, AttemptOutcome, SessionSums
from .orders import AttemptOrder
from .outages import DISK, KEY, SERVER
from .steps import CODE, in_container, pin_step_files, remove_container, run_steps
from .summary import find_place

CHECK_EVERY_S = 0.25  # between two checks for a stop or a free lock
INTERRUPT_GRACE_S = 30.0  # between the interrupt of an agent and its kill
MAX_MESSAGE_CHARS = 400  # of a failure, in the ledger
KINDS = {1: "error", 2: "usage", 3: "denied", 4: "limit", 5: "rejected", 130: "interrupted"}
# The kinds of failure that can be retried, see the options of `ctxagent fleet`.
FAILURES = ("error", "usage", "denied", "limit", "rejected", "unreachable", "time limit", "place",
            "container", "killed", SCORE, AFTER, UNKNOWN)  # fmt: skip
# Causes that affect other tasks too, by type of error.
CAUSES = {"NoCredentials": KEY, "KeyRefused": KEY, "ModelUnavailable": SERVER, "RecordError": DISK}
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)
LOST = "lost"  # kind of an attempt whose agent or worker was killed: its outcome is unknown
ENGINE_CODES = (125, 126, 127)  # exit codes of a container engine that could not run the command


def run_attempt(order: AttemptOrder) -> AttemptOutcome:
    """Make an attempt at a task and return its outcome. If the attempt already finished but was not
    recorded, return the existing outcome. Blocking.
    """
    began = time.monotonic()
    try:
        make_private_folder(order.folder.path)
        with _locked_task_folder(order) as (lock, late):
            outcome = None if lock is None else _read_outcome(order)
            if outcome is not None and late:
                outcome = _timed_out(order, outcome)
            elif outcome is None and lock is not None:
                outcome = _run(order, lock)
            if outcome is not None and lock is not None:
                outcome = run_steps(order, outcome, lock)
                _record_left(order, outcome)
    except (CtxagentError, OSError) as error:
        kind = "place" if isinstance(error, places.PlaceError) else "error"
        outcome = replace(outcome_of_log(order, kind, str(error)), cause=_cause_of(error))
    if outcome is None:
        outcome = outcome_of_log(order, "interrupted", "before it began")
    if not outcome.kind and outcome.log:
        places.remove_caches(Path(outcome.log))
    seconds = round(time.monotonic() - began, 3)
    return replace(outcome, seconds=seconds, host=socket.gethostname())


@contextmanager
def _locked_task_folder(order: AttemptOrder) -> Iterator[tuple[int | None, bool]]:
    """Acquire the lock of the task's folder; yield (lock, late). If an agent is still running
    there, wait for its end. Interrupt it when its time limit is reached (`late`) or the fleet stops
    (lock None).
    """
    path = order.folder.lock
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        if ledger.take(fd):
            yield fd, False
        else:
            watch = _Watch(order, path.stat().st_mtime)
            watch.wait(lambda: ledger.take(fd, CHECK_EVERY_S), ledger.holder(fd))
            yield None if watch.stopped else fd, watch.late
    finally:
        os.close(fd)


class _Watch:
    """Watch for the two reasons to end an agent early: its time limit and the stop of the fleet."""

    def __init__(self, order: AttemptOrder, began: float) -> None:
        limit = order.task.time_limit
        self._until = None if limit is None else began + limit
        self._stop = order.fleet.stop_file
        self._asked_at: float | None = None  # monotonic time of the interrupt
        self.stopped = self.late = False

    def wait(self, has_ended: Callable[[], bool], pid: int | None) -> None:
        """Wait until an agent has ended; interrupt, then kill its process group if necessary. `pid`
        is None for an agent that cannot be signalled.
        """
        while not has_ended():
            if self._asked_at is None:
                self.late = self._until is not None and time.time() >= self._until
                self.stopped = self._stop.exists()
                if self.late or self.stopped:
                    self._asked_at = time.monotonic()
                    _signal_group(pid, signal.SIGINT)
            elif time.monotonic() - self._asked_at > INTERRUPT_GRACE_S:
                _signal_group(pid, signal.SIGKILL)


def _signal_group(pid: int | None, number: signal.Signals) -> None:
    if pid is not None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, number)


def _run(order: AttemptOrder, lock: int) -> AttemptOutcome:
    """Start the agent and wait for its end. Raises CtxagentError and OSError."""
    if order.fleet.stop_file.exists():
        return outcome_of_log(order, "interrupted", "before it began")
    env = {**os.environ, **order.env}
    place = places.prepare(order.task, order.folder, env)
    pin_step_files(order, place)
    command = _command(order, place, env)
    with (
        open(order.folder.result_file(order.attempt), "wb", opener=private_opener) as out,
        open(order.folder.stderr, "ab", opener=private_opener) as err,
    ):
        agent = subprocess.Popen(
            command,
            cwd=order.folder.path,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
            pass_fds=(lock,),
        )
    ledger.name_holder(lock, agent.pid)
    watch = _Watch(order, time.time())
    with _exit_poll(agent.pid) as has_ended:
        watch.wait(has_ended, agent.pid)
    code = agent.wait()
    outcome = _read_outcome(order) or _outcome_without_result(order, code)
    return _timed_out(order, outcome) if watch.late else outcome


def _timed_out(order: AttemptOrder, outcome: AttemptOutcome) -> AttemptOutcome:
    """Return the outcome of an agent that exceeded its time limit; a successful outcome is
    unchanged.
    """
    if not outcome.kind:
        return outcome
    message = f"more than {order.task.time_limit:g} s"
    return replace(outcome, kind="time limit", message=message, cause="")


def _command(order: AttemptOrder, place: Path, env: Mapping[str, str]) -> list[str]:
    """Return the command line of the agent. Raises PlaceError if a container is needed and there is
    no container engine.
    """
    task = order.task
    settings = {**task.settings, "state.dir": order.state, "model.wait_file": order.fleet.wait_file}
    flags = [*as_flags(settings), *(f"bash.keep_env={name}" for name in task.env)]
    words = [
        "-p", "--session-id", order.session, "--output-format", "json",
        "--cwd", str(place), *order.options, *(part for flag in flags for part in ("-c", flag)),
    ]  # fmt: skip
    if task.dir is not None and task.worktree and task.image is None:
        words += ["--worktree", places.worktree_name(order.folder)]
    if order.dollars is not None:
        words += ["--max-budget-usd", f"{order.dollars:.6f}"]
    words += ["--", task.prompt]
    if task.image is None:
        return [*isolated_python(), "-m", "ctxagent", *words]
    return [*in_container(order, place, env), "ctxagent", *words]


@contextmanager
def _exit_poll(pid: int) -> Iterator[Callable[[], bool]]:
    """Yield a function that waits up to CHECK_EVERY_S and returns True if a child has ended."""
    fd = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        yield lambda: bool(poll.poll(CHECK_EVERY_S * 1_000))
    finally:
        os.close(fd)


def _read_outcome(order: AttemptOrder) -> AttemptOutcome | None:
    """Return the outcome of this attempt from the agent's result file, and write the patch; None
    without a complete result file.
    """
    result = order.folder.result(order.attempt)
    if result is None:
        return None
    code = int(result["exit_code"])
    error, compaction = result.get("error") or {}, result.get("compaction") or {}
    kind = "" if code == 0 else KINDS.get(code, "error")
    reason = {name: error[name] for name in ("limit", "value") if error.get(name) is not None}
    if kind == "denied":
        denials = [each for each in result.get("denials") or () if not each["remedy"]]
        reason["rules"] = [*dict.fromkeys(each["rule"] for each in denials if each["rule"])]
    if kind == "limit" and order.is_share and reason.get("limit") == "budget":
        kind = FLEET_BUDGET
    cause = CAUSES.get(str(error.get("type")), "")
    if cause == SERVER:
        kind = "unreachable"
    elif cause == KEY:
        kind, cause = ("rejected", "") if order.task.has_own_model else (REFUSED, cause)
    return AttemptOutcome(
        exit_code=code,
        kind=kind,
        message=_reason(str(error.get("message") or "")),
        cause=cause,
        reason=reason,
        cost_usd=result.get("cost_usd"),
        calls=result.get("calls") or 0,
        tool_calls=result.get("tool_calls") or 0,
        tokens=sum((result.get("usage") or {}).values()),
        tokens_saved=compaction.get("tokens_saved") or 0,
        patch_bytes=_patch_bytes(order, result),
        log=str(result.get("log") or ""),
    )


def _patch_bytes(order: AttemptOrder, result: Mapping[str, Any]) -> int | None:
    """Write the patch of the agent's changes, before a step changes more files; return its size, or
    None without a repository.
    """
    folder = order.folder
    steps = (folder.step_file(step, order.attempt, 0, CODE) for step in (SCORE, AFTER))
    if any(map(Path.exists, steps)) and folder.patch.exists():
        return folder.patch.stat().st_size
    worktree = result.get("worktree") or {}
    place = Path(worktree.get("path") or order.task.dir or folder.place)
    if folder.place.exists():
        place = folder.place
    try:
        return places.write_patch(place, folder, {**os.environ, **order.env})
    except (CtxagentError, OSError) as why:
        with open(folder.stderr, "a", opener=private_opener) as err:
            err.write(f"the patch cannot be written: {why}\n")
        return None


def _record_left(order: AttemptOrder, outcome: AttemptOutcome) -> None:
    """Record how the steps of a task left its place, because they may change files too."""
    place = find_place(Path(outcome.log)) if outcome.log else None
    if place is not None and (order.task.score or order.task.after):
        with suppress(CtxagentError, OSError):
            patch = places.diff_of(place, order.folder, {**os.environ, **order.env})
            write_private(order.folder.left, places.digest_of(patch or b"").encode())


def _reason(text: str) -> str:
    """Return a reason for the ledger: one line, cut at a word."""
    return cut_at_word(as_sentences(text), MAX_MESSAGE_CHARS)


def _cause_of(error: Exception) -> str:
    """Return the cause of an error that other tasks would have too, such as a full disk; "" for
    other errors.
    """
    is_disk = isinstance(error, OSError) and error.errno in DISK_ERRORS
    is_disk = is_disk or os.strerror(errno.ENOSPC) in str(error)  # in an error message of git
    return DISK if is_disk else ""


def _outcome_without_result(order: AttemptOrder, code: int) -> AttemptOutcome:
    """Return the outcome of an agent that left no result."""
    if order.task.image:
        remove_container(order)  # it may outlive the engine's command
    said = order.folder.stderr.read_bytes()[-MAX_MESSAGE_CHARS:].decode("utf-8", "replace")
    if order.task.image and code in ENGINE_CODES:
        return outcome_of_log(order, "container", said, code)
    if code >= 0:
        outcome = outcome_of_log(order, KINDS.get(code, "error"), said, code)
        return replace(outcome, cause=_cause_of(OSError(said)))
    return outcome_of_log(order, LOST, f"the agent was ended by signal {-code}")


def outcome_of_log(
    order: AttemptOrder, kind: str, message: str, code: int | None = None
) -> AttemptOutcome:
    """Return an outcome with the sums from the session's log."""
    log = order.find_log()
    return AttemptOutcome(
        exit_code=code,
        kind=kind,
        message=_reason(message),
        log=str(log or ""),
        **asdict(SessionSums.of_log(log)),
    )
