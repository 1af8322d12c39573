"""The phases of work, and the form in which the work of each is compressed when it is left (S2
"Compression by Phase"). A phase is a name in the log; besides the three that S2 describes any other
may be given, and its work then takes the form of implementation. A form is said in the sections of
the summary document, so that it is parsed, merged and checked like any other."""

from dataclasses import dataclass

TOPIC = "phase"

_CODE = (
    "Names, signatures and code that must not be lost stand verbatim; a block of code is indented "
    "under its bullet."
)


@dataclass(frozen=True, slots=True)
class Form:
    """What the work of a phase is compressed into. `words` are the least and the most of the
    record, None for as the summary's own limit has it; `asks` is the form in one line, for people;
    `instructions` go with the question for the summary."""

    name: str
    words: tuple[int, int] | None
    asks: str
    instructions: str


RESEARCH = Form(
    "research",
    (500, 1_000),
    "the problem, the findings, the files that matter and the constraints",
    "The research phase ends here. Make the record its analysis, 500 to 1,000 words if the "
    "limit allows. Under Critical Facts, one bullet each: the problem statement; every key "
    "finding with what supports it; the relevant paths with what each holds; the constraints "
    f"that were discovered. {_CODE} What was looked at and led nowhere is one line.",
)
PLANNING = Form(
    "planning",
    (1_000, 2_000),
    "function signatures, type definitions, API contracts and data models",
    "The planning phase ends here. Make the record the specification that the implementation "
    "will follow, 1,000 to 2,000 words if the limit allows. Under Critical Facts: the function "
    "signatures, type definitions, API contracts and data models. Under Key Decisions: each "
    "choice of the design, its reason, and what was turned down. Under Next Steps: the order "
    f"in which to build it. {_CODE}",
)


def _work(name: str) -> Form:
    return Form(
        name,
        None,
        "the session summary; the work that goes on stays as it is",
        f"The {name} phase ends here. Compress the work that is complete: under Done one line "
        "each, under Files Modified what changed in each file and why. Work that is not finished "
        "is not compressed: say under In progress, with its exact files, names, commands and error "
        "messages, where it stands.",
    )


PHASES = {f.name: f for f in (RESEARCH, PLANNING, _work("implementation"))}


def form(phase: str) -> Form:
    """The form of a phase, any name being one."""
    return PHASES.get(phase) or _work(phase)
