"""Verification: a summary is checked against the facts, and what it misses is put back (S2
"Validate with Probes"). `probe` says what is asked and whether a text answers it, from what
`evidence` finds in the texts; `expansion` adds what was missed; `quality` puts the same questions
to a model."""

from .expansion import KINDS, Tally, expanded, facts_of, tally
from .probe import Kind, Probe, answered, probes, reading

__all__ = [
    "KINDS",
    "Kind",
    "Probe",
    "Tally",
    "answered",
    "expanded",
    "facts_of",
    "probes",
    "reading",
    "tally",
]
