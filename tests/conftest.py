"""What holds for all tests: the same run finds the same, so that a failure can be found again, and
how busy the machine is makes no difference."""

from hypothesis import HealthCheck, settings

SLOW = (HealthCheck.too_slow,)
settings.register_profile("same", derandomize=True, deadline=None, suppress_health_check=SLOW)
settings.load_profile("same")
