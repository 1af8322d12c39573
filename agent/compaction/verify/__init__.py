"""Checks a summary against the facts, and puts back what it misses.

`probes` chooses what is asked and decides whether a text answers it, `repair` adds what was
missed, `exam` puts the same questions to a model.
"""

from .probes import Probe, choose_probes
from .repair import ProbeTally, add_missed_facts, probed_facts_test, tally_probes

__all__ = [
    "Probe",
    "ProbeTally",
    "add_missed_facts",
    "choose_probes",
    "probed_facts_test",
    "tally_probes",
]
