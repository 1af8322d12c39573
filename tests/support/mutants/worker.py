"""Run selected tests, each time in a new process that already has the libraries imported.

Reads one request per line from stdin: first the libraries, then {"tests": […], "seconds": …} for
each run. Answers each run with a line: "passed", "failed" or "timeout". This process has one thread
and imports no module of the project, so that it can fork and each child imports the changed
modules.
"""

import importlib
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
import warnings
from contextlib import suppress

import pytest

from .coverage_map import QUIET, ROOT

MAX_MEMORY_BYTES = 8 << 30  # address space limit, for mutants that allocate without end
POLL_SECONDS = 0.01


class Chosen:
    """Pytest plugin that runs only these tests, in this order."""

    def __init__(self, tests: list[str]) -> None:
        self._places = {test: at for at, test in enumerate(tests)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        chosen = [item for item in items if item.nodeid in self._places]
        items[:] = sorted(chosen, key=lambda item: self._places[item.nodeid])


def run_in_child(tests: list[str], folder: str) -> None:
    """Run tests, then exit this process with pytest's exit code."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    files = dict.fromkeys(test.partition("::")[0] for test in tests)
    status = pytest.main([*QUIET, *files], plugins=[Chosen(tests)])
    os._exit(status)


def wait(child: int, seconds: float) -> str:
    """Wait for a child, kill it on timeout, and return the outcome of its tests."""
    end = time.monotonic() + seconds
    found, status = os.waitpid(child, os.WNOHANG)
    while not found and time.monotonic() < end:
        time.sleep(POLL_SECONDS)
        found, status = os.waitpid(child, os.WNOHANG)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # also what the tests left running
    if not found:
        os.waitpid(child, 0)
        return "timeout"
    return "failed" if status else "passed"


def main() -> None:
    """Serve requests until stdin ends."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in json.loads(sys.stdin.readline()):
            with suppress(Exception):  # the child imports it where a test needs it
                importlib.import_module(name)
    assert threading.active_count() == 1
    os.chdir(ROOT)
    for line in sys.stdin:
        request = json.loads(line)
        folder = tempfile.mkdtemp(prefix="t")
        if not (child := os.fork()):
            run_in_child(request["tests"], folder)
        print(wait(child, request["seconds"]), flush=True)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
