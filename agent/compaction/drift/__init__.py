"""Watch the agent's replies after a summary for signs of drift from the task.

`detector` has the indicators, and `monitor` acts on them. `scope` knows the task, `constraints` the
user's rules and denied calls, and `memory` earlier calls. `calls` parses a call, and `notices`
writes the texts.
"""

from .detector import WATCHED_TURNS, DriftDetector, terms_preloader

__all__ = ["WATCHED_TURNS", "DriftDetector", "terms_preloader"]
