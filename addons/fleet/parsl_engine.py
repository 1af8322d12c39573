"""Run attempts with Parsl, on the workers of any Parsl configuration. Only this module imports
Parsl, which is an extra (`ctxagent[fleet]`).
"""

import os
import runpy
import shlex
import sys
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...api.base import UsageError
from ...api.programs import isolated_python
from . import pool_supervisor
from .attempt import run_attempt
from .ledger import AttemptOutcome, FleetFolder
from .orders import AttemptOrder

# Starts a program that ends with its parent process and does not get Ctrl-C from the terminal. It
# gets no PYTHONPATH, since Parsl's own programs must not import the user's modules.
_LEASH = (
    "import ctypes, os, signal, sys;"
    "ctypes.CDLL(None).prctl(1, signal.SIGTERM);"
    "os.setsid();"
    "os.environ.pop('PYTHONPATH', None);"
    "os.execvp(sys.argv[1], sys.argv[1:])"
)
_RENEWAL = "-renewed-"  # part of the label of an executor that replaces another one
# Exceptions that the user's configuration file may raise.
_FAULTS = (
    ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, NameError, OSError,
    RuntimeError, SyntaxError, TypeError, ValueError,
)  # fmt: skip


class ParslEngine:
    """Engine that runs attempts with Parsl."""

    def __init__(self, path: Path, folder: FleetFolder) -> None:
        """Load the variable `config` from a Python file. Parsl writes its files to the fleet's
        folder unless the configuration names another folder. Raises UsageError.
        """
        try:
            import parsl
        except ImportError:
            hint = "Install it: pip install 'ctxagent[fleet]'"
            raise UsageError("--config needs Parsl", hint=hint) from None
        self._path, self._lock, self._renewals = path, folder.lock, 0
        config = _read_config(path, folder.lock)
        config.retries = 0  # the fleet decides about retries, because a retry continues the session
        if config.run_dir == "runinfo":
            config.run_dir = str(folder.path / "parsl")
        # Parsl finds its programs by name.
        os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"
        self._kernel: Any = parsl.load(config)
        self._app = parsl.python_app(run_attempt, data_flow_kernel=self._kernel)

    def submit(self, order: AttemptOrder) -> "Future[AttemptOutcome]":
        """Start an attempt on a worker. The future raises if the worker is lost."""
        future: Future[AttemptOutcome] = self._app(order)
        return future

    def is_lost(self, error: BaseException) -> bool:
        """Return True for all Parsl errors except WorkerLost, because the task itself may have
        killed its worker.
        """
        from parsl.executors.high_throughput.errors import WorkerLost

        return not isinstance(error, WorkerLost)

    def renew(self) -> None:
        """Replace executors that Parsl has given up and never uses again with new ones from the
        configuration. Raises UsageError.
        """
        kernel = self._kernel
        bad = [each for each in kernel.executors.values() if getattr(each, "bad_state_is_set", 0)]
        if not bad:
            return
        self._renewals += 1
        lost = {executor.label.partition(_RENEWAL)[0] for executor in bad}
        new = [
            each for each in _read_config(self._path, self._lock).executors if each.label in lost
        ]
        for executor in bad:
            with suppress(ValueError):
                kernel.job_status_poller._executors.remove(executor)
            del kernel.executors[executor.label]
            executor.shutdown()
        for executor in new:
            executor.label += f"{_RENEWAL}{self._renewals}"
        kernel.add_executors(new)

    def close(self) -> None:
        """Stop the workers and Parsl."""
        import parsl

        self._kernel.cleanup()
        parsl.clear()


def _read_config(path: Path, lock: Path) -> Any:
    """Return the configuration in a file. Its programs are changed to exit when the fleet that
    holds `lock` ends. Raises UsageError.
    """
    hint = "A Python file with `config = parsl.config.Config(…)`: see `ctxagent guide fleet`."
    try:
        found: Any = runpy.run_path(str(path)).get("config")
    except _FAULTS as error:
        raise UsageError(f"--config {path}: {type(error).__name__}: {error}", hint=hint) from error
    if not hasattr(found, "executors"):
        raise UsageError(f"--config {path} has no configuration called `config`", hint=hint)
    for executor in found.executors:
        if command := getattr(executor, "interchange_launch_cmd", None):
            executor.interchange_launch_cmd = [*isolated_python(), "-c", _LEASH, *command]
            script = [sys.executable, "-I", "-S", pool_supervisor.__file__]
            started = shlex.join([*script, str(lock), str(os.getpid())])
            # Parsl formats the text twice.
            leash = started.replace("{", "{{{{").replace("}", "}}}}")
            executor.launch_cmd = f"{leash} {executor.launch_cmd}"
    return found
