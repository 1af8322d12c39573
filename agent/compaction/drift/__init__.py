"""Watch the agent's replies after a summary for signs of drift from the task.

`detector` has the indicators, the user's rules and the denied calls. `scope` knows the task and the
earlier calls. `monitor` tells the user and the model.
"""

from .detector import WATCHED_TURNS, DriftDetector, terms_preloader

__all__ = ["WATCHED_TURNS", "DriftDetector", "terms_preloader"]
