"""The phases of work, and the form of the summary at the end of each phase.

A phase is a name in the log. Names other than the three built-in ones are handled like
implementation. The form uses the sections of the summary document, so it is parsed, merged and
checked like any other summary.
"""

from ..lazy import dataclass

PHASE_TOPIC = "phase"

_CODE = (
    "Names, signatures and code that must not be lost stand verbatim; a block of code is indented "
    "under its bullet."
)


@dataclass(frozen=True, slots=True)
class PhaseForm:
    """The form of the summary that ends a phase."""

    name: str
    word_limits: tuple[int, int] | None  # minimum and maximum; None: only the summary's cap applies
    description: str  # the form in one line, for display
    instructions: str  # appended to the question for the summary


RESEARCH = PhaseForm(
    "research",
    (500, 1_000),
    "the problem, the findings, the files that matter and the constraints",
    "The research phase ends here. Make the record its analysis, 500 to 1,000 words if the "
    "limit allows. Under Critical Facts, one bullet each: the problem statement; every key "
    "finding with what supports it; the relevant paths with what each holds; the constraints "
    f"that were discovered. {_CODE} What was looked at and led nowhere is one line.",
)
PLANNING = PhaseForm(
    "planning",
    (1_000, 2_000),
    "function signatures, type definitions, API contracts and data models",
    "The planning phase ends here. Make the record the specification that the implementation "
    "will follow, 1,000 to 2,000 words if the limit allows. Under Critical Facts: the function "
    "signatures, type definitions, API contracts and data models. Under Key Decisions: each "
    "choice of the design, its reason, and what was turned down. Under Next Steps: the order "
    f"in which to build it. {_CODE}",
)


def _work(name: str) -> PhaseForm:
    return PhaseForm(
        name,
        None,
        "the session summary; the work that goes on stays as it is",
        f"The {name} phase ends here. Compress the work that is complete: under Done one line "
        "each, under Files Modified what changed in each file and why. Work that is not finished "
        "is not compressed: say under In progress, with its exact files, names, commands and error "
        "messages, where it stands.",
    )


PHASES = {f.name: f for f in (RESEARCH, PLANNING, _work("implementation"))}


def phase_form(phase: str) -> PhaseForm:
    """Return the form of a phase. Any name is valid."""
    return PHASES.get(phase) or _work(phase)
