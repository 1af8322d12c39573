"""What holds for all tests: the same run finds the same, so that a failure can be found again, and
how busy the machine is makes no difference."""

import sys

from hypothesis import HealthCheck, settings

SLOW = (HealthCheck.too_slow,)
settings.register_profile("same", derandomize=True, deadline=None, suppress_health_check=SLOW)
settings.load_profile("same")

# Each worker imports all tests: whoever is first compiles them for the others and the next run.
sys.dont_write_bytecode = False
