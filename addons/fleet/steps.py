"""Run the steps of a task after its agent has ended: the score, and the command after the score.

Both commands come from the manifest's author. The score runs code from the model, so it runs in the
sandbox of the agent's commands, or in the container of the task. The command after the score has
the network and the user's keys and is started at most once: its start is synced to disk first. A
step survives a killed fleet; the next run reads its exit code from a file.
"""

import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

from ...api import guard  # names are imported on first use
from ...api.base import CtxagentError, dataclass
from ...api.files import private_opener, sync_file, write_private
from ...api.models import is_provider_variable
from ...api.programs import Enclosed, child_environment, git_variables, program
from ...api.session import as_flags, launch_options, load
from ...api.text import cut_at_word
from ...api.tools import CommandLimits
from . import ledger
from .ledger import AFTER, SCORE, SCORED_KINDS, UNKNOWN, AttemptOutcome
from .manifest import TaskStep
from .orders import AttemptOrder
from .places import PlaceError, start_of
from .summary import find_place

ENGINES = ("docker", "podman")
MAX_ANSWER_S = 10.0  # timeout of `info`, which checks that an engine works


def in_container(
    order: AttemptOrder, place: Path, env: Mapping[str, str], more: Iterable[str] = ()
) -> list[str]:
    """Return the command that runs another command in a container. The container has the task's
    folder and working directory at the same paths, and the variables named in `more`. A container
    left by a killed run is removed. Raises PlaceError.
    """
    engine, task, home = remove_container(order), order.task, order.folder.path / "home"
    home.mkdir(mode=0o700, exist_ok=True)
    order.fleet.wait_file.touch(mode=0o600)
    given = [name for name in env if is_provider_variable(name)]
    is_mapped = Path(engine).name == "podman" and os.getuid() != 0  # rootless Podman maps user IDs
    user = "--userns=keep-id" if is_mapped else f"--user={os.getuid()}:{os.getgid()}"
    seen = dict.fromkeys([order.folder.path, place, order.fleet.wait_file])
    return [
        engine, "run", "--rm", "--init", "--name", _container_name(order), user,
        "--workdir", str(place),
        *(f"--mount=type=bind,source={path},target={path}" for path in seen),
        *(f"--env={name}" for name in dict.fromkeys([*given, *task.env, *more])),
        f"--env=HOME={home}",
        *([f"--cpus={task.cores}"] if task.cores > 1 else []),
        *([f"--memory={task.memory_mb}m"] if task.memory_mb else []),
        task.image or "",
    ]  # fmt: skip


def _container_name(order: AttemptOrder) -> str:
    return f"ctxagent-{order.session}"


def remove_container(order: AttemptOrder) -> str:
    """Stop and remove the container of a session, if it exists; return the container engine. Raises
    PlaceError without an engine.
    """
    engine = _engine()
    command = [engine, "rm", "--force", _container_name(order)]
    subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL)
    return engine


@cache
def _engine() -> str:
    """Return the first working container engine, or the first installed one if none works. Raises
    PlaceError without an engine.
    """
    found = [*filter(None, map(shutil.which, ENGINES))]
    if not found:
        hint = f"Install one of {', '.join(ENGINES)}, or leave image out."
        raise PlaceError("there is no container engine", hint=hint)
    if len(found) == 1:
        return found[0]
    return next(filter(_works, found), found[0])


def _works(engine: str) -> bool:
    try:
        asked = subprocess.run([engine, "info"], capture_output=True, timeout=MAX_ANSWER_S)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.returncode == 0


CHECK_EVERY_S = 0.1
MAX_OUTPUT_CHARS = 400  # of a step's output in the ledger
MAX_READ_BYTES = 65_536  # read from the end of an output
OUT, ERR, CODE, STARTED = "out", "err", "code", "up"  # files of a step
TOO_LATE = "late"  # exit code of a step that exceeded its time limit
# Stdin, stdout and stderr are the files for the output, the exit code and the errors. $0 is the
# stdin of the command: a sandbox reports there that it has started.
_SCRIPT = '"$@" >&0 <>"$0"; echo $?'


class StepError(CtxagentError):
    """A step has failed; `kind` is the kind of failure."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class ScoreVerdict:
    """The verdict of a score."""

    score: float
    passed: bool
    metrics: dict[str, Any]


def run_steps(order: AttemptOrder, outcome: AttemptOutcome, lock: int) -> AttemptOutcome:
    """Run the steps of a task whose agent has ended, unless they ran before; return the final
    outcome. Blocking.
    """
    task = order.task
    if outcome.kind not in SCORED_KINDS or not (task.score or task.after):
        return outcome
    try:
        place = find_place(Path(outcome.log) if outcome.log else order.find_log())
        if place is None or not place.is_dir():
            raise StepError(SCORE if task.score else AFTER, "its working directory is missing")
        if task.score is not None:
            run = _StepRun(order, SCORE, task.score, place, lock)
            found = parse_verdict(*_score(run))
            outcome = replace(
                outcome, score=found.score, passed=found.passed, metrics=found.metrics
            )
        if task.after is not None and not outcome.kind and outcome.passed is not False:
            run = _StepRun(order, AFTER, task.after, place, lock)
            outcome = replace(outcome, after=_run_after(run))
    except CtxagentError as error:
        kind = error.kind if isinstance(error, StepError) else SCORE
        message = f"{outcome.message}; {kind}: {error}" if outcome.kind else str(error)
        return replace(outcome, kind=outcome.kind or kind, message=message)
    return outcome


def try_score(order: AttemptOrder, place: Path) -> tuple[int, str]:
    """Run the score of a task in a place; return its exit code and the last line it printed.
    Raises CtxagentError and OSError.
    """
    step = order.task.score
    assert step is not None
    pin_step_files(order, place)
    with order.folder.lock.open("w") as lock:
        code, out, err = _score(_StepRun(order, SCORE, step, place, lock.fileno()))
    return code, (err.strip() or out.strip()).rpartition("\n")[2]


def pin_step_files(order: AttemptOrder, place: Path) -> None:
    """Record the files of the task's folder that steps outside of the sandbox run, unless they were
    recorded before. The model may change them later.
    """
    gate = _gate(order, place)
    for name, step in ((SCORE, order.task.score), (AFTER, order.task.after)):
        if step is not None and not _is_confined(order, name, step):
            gate.declare([_program(order, name, step, place.resolve())])


def _is_confined(order: AttemptOrder, name: str, step: TaskStep) -> bool:
    """Return True if a step has no more rights than the commands of the model."""
    return name == SCORE and (step.sandbox or order.task.image is not None)


def _gate(order: AttemptOrder, place: Path) -> guard.StartGate:
    return guard.StartGate(guard.PinnedFiles(order.folder.path), [os.path.realpath(place)])


def _program(order: AttemptOrder, name: str, step: TaskStep, place: Path) -> guard.ProgramStart:
    env = {**os.environ, **order.env}
    return guard.ProgramStart(f"the command {name}", step.command, place, env)


def parse_verdict(code: int, out: str, err: str) -> ScoreVerdict:
    """Return the verdict from the exit code and output of a score. Raises StepError."""
    if code == 1:
        return ScoreVerdict(0.0, False, {})
    last = out.strip().rpartition("\n")[2]
    if code != 0:
        error = err.strip().rpartition("\n")[2] or last
        raise StepError(SCORE, f"the score ended with exit code {code}: {error}".rstrip(": "))
    try:
        found = json.loads(last)
    except (ValueError, RecursionError):
        found = True
    metrics = {}
    passed = None
    if isinstance(found, dict):
        passed = found.pop("passed", None)
        metrics, found = found, found.pop("score", passed)
    if isinstance(found, bool | int | float) and 0 <= found <= 1:
        score = float(found)
        return ScoreVerdict(score, passed if isinstance(passed, bool) else score == 1, metrics)
    if not isinstance(found, bool | int | float | type(None)):
        return ScoreVerdict(1.0, True, {})  # ordinary output, not a verdict
    raise StepError(SCORE, f"the score must be from 0 to 1, but the last line is {last}")


def _score(run: "_StepRun") -> tuple[int, str, str]:
    """Return the exit code and the output of the score. Raises StepError and CtxagentError."""
    order, step, code = run.order, run.step, run.wait_for_code(can_stop=True)
    if not code:  # not begun or interrupted
        env, own = run.environment(), None
        if order.task.image is not None:
            container = in_container(order, run.place, env, run.facts())
            words = [*container, "sh", "-c", step.command]
            enclosed, given = Enclosed(words), env
        elif step.sandbox:
            own = _sandbox(run, env)
            words = run.shell(env)
            enclosed = Enclosed(words) if own.absent else own.enclose(words)
            given = own.environment(env)
        else:
            run.check_files()
            enclosed, given = Enclosed(run.shell(env)), env
        try:
            code = run.start(enclosed, given, can_stop=True)
        finally:
            if order.task.image is not None:
                remove_container(order)
            if own is not None and not own.absent:
                own.set_aside()
    if not run.has_started:
        raise StepError(SCORE, f"the sandbox did not start: {run.output_end(ERR).strip()}")
    if code == TOO_LATE:
        raise StepError(SCORE, f"the score took more than {step.time_limit:g} s")
    return int(code), run.output_end(OUT), run.output_end(ERR)


def _run_after(run: "_StepRun") -> str:
    """Return the end of the output of the command after the score. Raises StepError."""
    code = run.wait_for_code(can_stop=False)
    if code == "":
        raise StepError(UNKNOWN, "the command began, but its end is unknown: check its effects")
    if code is None:
        run.check_files()
        env = child_environment({**os.environ, **run.order.env, **run.facts()}, keep=["*"])
        env |= git_variables(
            {"core.hooksPath": os.devnull}, env
        )  # the model may have written hooks
        code = run.start(Enclosed(run.shell(env)), env, can_stop=False)
    output = cut_at_word(
        run.output_end(OUT).strip() or run.output_end(ERR).strip(), MAX_OUTPUT_CHARS
    )
    if code == TOO_LATE:
        raise StepError(
            AFTER, f"it took more than {run.step.time_limit:g} s and was ended: {output}"
        )
    if code != "0":
        why = run.output_end(ERR).strip()[-MAX_OUTPUT_CHARS:] or output
        raise StepError(AFTER, f"exit code {code}: {why}".rstrip(": "))
    return output or "done"


def _sandbox(run: "_StepRun", env: Mapping[str, str]) -> "guard.Sandbox":
    """Return the sandbox of the agent's commands, without network. Raises CtxagentError."""
    order = run.order
    options = order.options
    given = [value for name, value in pairwise(options) if name == "-c"]
    flags = [*given, *as_flags({**order.task.settings, "state.dir": order.state})]
    loaded = load(run.place, env, flags)
    log = order.find_log()
    session = log.parent if log else order.folder.path
    sandbox = guard.make_sandbox(launch_options(loaded, run.place, env), session)
    sandbox.own_temporary = run.temporary
    folder = order.fleet.path.parent  # may contain the score command
    if not guard.contains_home(str(folder), guard.home_folders(env)):
        sandbox.read = [*sandbox.read, folder]
    if sandbox.required and (why := sandbox.absent or sandbox.partial):
        raise StepError(SCORE, f'sandbox.mode is "require", and {why}')
    return sandbox.for_command(CommandLimits(offline=True))


class _StepRun:
    """A step of an attempt, and its files."""

    def __init__(
        self, order: AttemptOrder, name: str, step: TaskStep, place: Path, lock: int
    ) -> None:
        self.order, self.step, self.place = order, step, place
        self._name, self._lock = name, lock

    def check_files(self) -> None:
        """Raise StepError if files of the task's folder that the step runs have changed since the
        task began.
        """
        order, place = self.order, self.place.resolve()
        gate, start = _gate(order, place), start_of(order.task, order.folder).resolve()
        program = _program(order, self._name, self.step, place)
        if gate.pins.is_known(_program(order, self._name, self.step, start).key):
            gate.pins.copy_pins(start, place)  # the agent may have started in a worktree
            gate.pins.accept(program.key, ())
        try:
            gate.clear_unasked(program)
        except guard.StartRefused as refused:
            raise StepError(self._name, str(refused)) from None

    def file(self, suffix: str) -> Path:
        """Return a file of the step."""
        tries = self.order.tries.get(self._name, 0)
        return self.order.folder.step_file(self._name, self.order.attempt, tries, suffix)

    @property
    def temporary(self) -> Path:
        """The sandbox's folder for temporary files."""
        return self.order.folder.path / f"{self._name}.tmp"

    def code(self) -> str | None:
        """Return the exit code; "" if the step began and left no code, None if it did not begin."""
        try:
            return self.file(CODE).read_text().strip()
        except FileNotFoundError:
            return None

    def wait_for_code(self, *, can_stop: bool) -> str | None:
        """Return the exit code. A step that a killed run left running on this machine is waited
        for; it is killed at its time limit or when the fleet stops. Raises StepError.
        """
        if self.code() == "" and ledger.holder(self._lock) is not None:
            until = self.file(CODE).stat().st_mtime + self.step.time_limit
            self._wait(lambda: ledger.holder(self._lock), until, can_stop)
        return self.code()

    @property
    def has_started(self) -> bool:
        """True if the step's sandbox has started, or if the step has no sandbox."""
        try:
            return bool(self.file(STARTED).read_bytes())
        except FileNotFoundError:
            return True

    def output_end(self, suffix: str) -> str:
        """Return the end of an output, with secrets redacted."""
        with suppress(OSError), self.file(suffix).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - MAX_READ_BYTES))
            text = file.read().decode("utf-8", "replace")
            env = {**os.environ, **self.order.env}
            return guard.redaction_for(env, shapes=True).clean_text(text)
        return ""

    def facts(self) -> dict[str, str]:
        """Return environment variables that describe the task to a command."""
        order = self.order
        return {
            "FLEET_DIR": str(order.fleet.path.parent),
            "FLEET_TASK": order.task.line,
            "FLEET_ID": order.task.id,
            "FLEET_CELL": order.task.cell,
            "FLEET_PATCH": str(order.folder.patch),
            "FLEET_RESULT": str(order.folder.result_file(order.attempt)),
        }

    def environment(self) -> dict[str, str]:
        """Return the environment of the agent's commands."""
        env = child_environment({**os.environ, **self.order.env}, self.order.task.env)
        return {**env, **self.facts()}

    def shell(self, env: Mapping[str, str]) -> list[str]:
        """Return the command line of the step."""
        return [program("bash", env.get("PATH")) or "/bin/sh", "-c", "--", self.step.command]

    def start(self, enclosed: Enclosed, env: Mapping[str, str], *, can_stop: bool) -> str:
        """Run the step to its end; return its exit code, or TOO_LATE. Raises OSError, and StepError
        if it was stopped, killed or could not start.
        """
        started_file = self.file(STARTED) if enclosed.reports else Path(os.devnull)
        command = ["/bin/sh", "-c", _SCRIPT, str(started_file), *enclosed.command]
        try:
            with ExitStack() as files:
                out, code, err = (files.enter_context(self._opened(s)) for s in (OUT, CODE, ERR))
                if enclosed.reports:
                    files.enter_context(self._opened(STARTED))
                sync_file(code.fileno())
                self._sync_folder()
                child = _begin(
                    command, enclosed, cwd=self.place, env=env, stdin=out, stdout=code, stderr=err,
                    start_new_session=True, pass_fds=enclosed.passed,
                )  # fmt: skip
        except (OSError, ValueError) as error:
            self.file(CODE).unlink(missing_ok=True)
            raise StepError(self._name, f"it cannot be started: {error}") from error
        finally:
            for descriptor in enclosed.passed:
                os.close(descriptor)
        ledger.name_holder(self._lock, child.pid)
        try:
            until = time.time() + self.step.time_limit
            self._wait(lambda: child.pid if child.poll() is None else None, until, can_stop)
        finally:
            _kill(child.pid)  # ends processes it left running
            shutil.rmtree(self.temporary, ignore_errors=True)
        found = self.code() or ""
        if found == "":
            kind = UNKNOWN if self._name == AFTER else self._name
            raise StepError(kind, "it was killed, and its effects are unknown")
        return found

    def _opened(self, suffix: str) -> IO[bytes]:
        return open(self.file(suffix), "wb+", buffering=0, opener=private_opener)

    def _sync_folder(self) -> None:
        folder = os.open(self.order.folder.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _wait(self, running: Callable[[], int | None], until: float, can_stop: bool) -> None:
        """Wait until the process of the step has ended; kill it at its time limit or when the fleet
        stops. Raises StepError if it was stopped.
        """
        stopped = late = False
        while (pid := running()) is not None:
            late = late or time.time() >= until
            stopped = stopped or (can_stop and self.order.fleet.stop_file.exists())
            if stopped or late:
                _kill(pid)
            time.sleep(CHECK_EVERY_S)
        if late and not self.code():
            write_private(self.file(CODE), f"{TOO_LATE}\n".encode())
        elif stopped and not self.code():
            raise StepError("interrupted", f"during the {self._name}")


def _kill(group: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def _begin(command: Sequence[str], enclosed: Enclosed, **options: Any) -> "subprocess.Popen[bytes]":
    """Start a command from a thread that has dropped its privileges as the sandbox requires and
    that lives as long as the command. Raises the errors of both.
    """
    begun, found = threading.Event(), list[Any]()

    def work() -> None:
        try:
            if enclosed.restrict:
                enclosed.restrict()
            found.append(subprocess.Popen(command, **options))
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            found.append(error)
        begun.set()
        if isinstance(found[0], subprocess.Popen):
            found[0].wait()

    threading.Thread(target=work, name="step", daemon=True).start()
    begun.wait()
    if isinstance(found[0], Exception):
        raise found[0]
    child: subprocess.Popen[bytes] = found[0]
    return child
