"""Watch the agent's replies after a summary for signs that it has lost its way.

`detector` has the indicators and `monitor` acts on them. `scope` knows the task, `constraints` what
calls must not do, `memory` earlier calls; `calls` reads a call, `notices` writes the texts.
"""

from .detector import WATCHED_TURNS, DriftDetector, prepare_reading

__all__ = ["WATCHED_TURNS", "DriftDetector", "prepare_reading"]
