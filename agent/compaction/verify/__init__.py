"""Check a summary against recorded facts, and add missing facts.

`probes` chooses questions and decides whether a text answers them. `repair` adds missing facts.
`exam` puts the same questions to a model.
"""

from .probes import (
    Probe,
    ProbeTally,
    add_missed_facts,
    choose_probes,
    probed_facts_test,
    tally_probes,
)

__all__ = [
    "Probe",
    "ProbeTally",
    "add_missed_facts",
    "choose_probes",
    "probed_facts_test",
    "tally_probes",
]
