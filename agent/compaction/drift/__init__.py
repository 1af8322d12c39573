"""Watches the agent's replies after a summary for signs that it has lost its way.

`detector` has the indicators, `constraints` and `decisions` what replies are held against, and
`monitor` tells the person and the model what was found.
"""

from .detector import WATCHED_TURNS, DriftDetector, prepare_reading

__all__ = ["WATCHED_TURNS", "DriftDetector", "prepare_reading"]
