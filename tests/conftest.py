"""What holds for all tests: the same run finds the same, so that a failure can be found again."""

from hypothesis import settings

settings.register_profile("same", derandomize=True, deadline=None)
settings.load_profile("same")
