"""Drift (S0, S1 "Goal Drift Detection"): after a summary the agent's replies are watched for signs
that it has lost its way. `watch` has the indicators, `constraints` and `decisions` what they are
held against, `signs` what the words of a reply and the arguments of a call tell."""

from .watch import (
    NOTICE,
    RECOMMENDATION,
    SEVERITY,
    TURNS,
    Drift,
    Indicator,
    Severity,
    Watch,
    reading,
    realignment,
    warning,
)

__all__ = [
    "NOTICE",
    "RECOMMENDATION",
    "SEVERITY",
    "TURNS",
    "Drift",
    "Indicator",
    "Severity",
    "Watch",
    "reading",
    "realignment",
    "warning",
]
