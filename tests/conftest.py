"""What holds for all tests: the same run finds the same, so that a failure can be found again, and
how busy the machine is, how pytest was started and which test came before makes no difference."""

import signal
import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from ctxagent.tools.system import programs

SLOW = (HealthCheck.too_slow,)
settings.register_profile("same", derandomize=True, deadline=None, suppress_health_check=SLOW)
settings.load_profile("same")

# Each worker imports all tests: whoever is first compiles them for the others and the next run.
sys.dont_write_bytecode = False

# A shell starts what it runs in the background with interrupts ignored, and children inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def trusted_folders() -> Iterator[None]:
    """Forget the folders that a test made this process distrust."""
    before = set(programs._distrusted)
    yield
    programs._distrusted.clear()
    programs._distrusted.update(before)
