"""What holds for all tests: the same run finds the same, so that a failure can be found again, and
how busy the machine is, how pytest was started and which test came before makes no difference."""

import ctypes
import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, settings

from ctxagent.tools.system import programs

SLOW = (HealthCheck.too_slow,)
settings.register_profile("same", derandomize=True, deadline=None, suppress_health_check=SLOW)
settings.load_profile("same")

# Each worker imports all tests: whoever is first compiles them for the others and the next run.
sys.dont_write_bytecode = False

# A shell starts what runs in the background with interrupts ignored, nohup what shall outlive a
# terminal with hang-ups; children would inherit that.
for each, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(each) is signal.SIG_IGN:
        signal.signal(each, usual)


# glibc keeps the memory of large texts, for each thread apart: a worker grew to 1.2 GB.
M_MMAP_THRESHOLD, M_ARENA_MAX = -3, -8
with suppress(AttributeError):  # other libraries have no mallopt
    ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, 1 << 20)  # what is larger is given back
    ctypes.CDLL(None).mallopt(M_ARENA_MAX, 2)

MAX_FOLDER_CHARS = 24  # of the folder for temporary files; sockets and lines on screens need room


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Give the tests a short folder of their own where that for temporary files is long, and each
    worker its own process group.

    Within a group, a process whose descriptors are hidden counts as a writer of any pipe. A test
    can hide those of its worker.
    """
    if hasattr(config, "workerinput"):
        os.setpgid(0, 0)
        return
    if len(tempfile.gettempdir()) <= MAX_FOLDER_CHARS:
        return
    folder = tempfile.mkdtemp(prefix="t", dir="/tmp")
    os.environ["TMPDIR"] = tempfile.tempdir = folder  # also for the workers
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with `variants` as `full`, except for the first one of its function."""
    seen = set[str]()
    for item in items:
        if item.get_closest_marker("variants"):
            function = item.nodeid.partition("[")[0]
            if function in seen:
                item.add_marker("full")
            seen.add(function)


def pytest_collection_finish() -> None:
    """Leave all collected tests out of each later collection of garbage.

    A full collection waits until the objects have grown by a quarter. The one made here counts them
    without the tests: large texts in cycles would not be freed for a long time otherwise.
    """
    gc.freeze()
    gc.collect()


@pytest.fixture(autouse=True)
def trusted_folders() -> Iterator[None]:
    """Forget the folders that a test made this process distrust."""
    before = set(programs._distrusted)
    yield
    programs._distrusted.clear()
    programs._distrusted.update(before)
