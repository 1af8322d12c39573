"""What a compaction keeps in any case, and what it may take: the categories by name, what each
means here, and the rules that a person sets over them (S3 "Preservation Categories"). Names are
also taken as S3 writes them."""

from dataclasses import dataclass
from typing import Literal, get_args

Always = Literal[
    "session_continuity",
    "decision_log",
    "trajectory",
    "active_work",
    "sprint_context",
    "run_state",
]
Compactable = Literal[
    "tool_results",
    "thinking_blocks",
    "debug_output",
    "redundant_reads",
    "intermediate_outputs",
]
ALWAYS: tuple[str, ...] = get_args(Always)
COMPACTABLE: tuple[str, ...] = get_args(Compactable)

_SYNONYMS = {
    "notes_session_continuity": "session_continuity",
    "notes_decision_log": "decision_log",
    "trajectory_entries": "trajectory",
    "active_beads": "active_work",
    "run_mode_state": "run_state",
    "verbose_debug": "debug_output",
    "redundant_file_reads": "redundant_reads",
}


@dataclass(frozen=True, slots=True)
class Kept:
    """A category that is always kept. One with a `heading` is a section of the notes file, in
    which `opening` is the first line of a new one."""

    help: str
    how: str
    heading: str = ""
    opening: str = ""


@dataclass(frozen=True, slots=True)
class Taken:
    """A category that may go: when, what stands in its place, and how that is done here."""

    when: str
    replacement: str
    how: str


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules in force. `notes` is a path and `run_state` a glob, both within the project.
    `strict` lets a missing section block a compaction. `expected`: the sections are missed also
    where there is no notes file at all."""

    always: tuple[str, ...] = ALWAYS
    compactable: tuple[str, ...] = COMPACTABLE
    strict: bool = False
    notes: str = "NOTES.md"
    run_state: str = ".run/*.json"
    expected: bool = False


STANDARD = Rules()
KEPT: dict[str, Kept] = {
    "session_continuity": Kept(
        "where the work stands, for whoever takes it up",
        "stands verbatim after every summary, read from disk",
        "Session Continuity",
        "Where the work stands, what comes next, and what a fresh session must know.",
    ),
    "decision_log": Kept(
        "what was decided, and why",
        "stands verbatim after every summary, read from disk",
        "Decision Log",
        "What was decided, when and why; one line each, the newest last.",
    ),
    "trajectory": Kept(
        "all that was said and done",
        "the session's log: never rewritten, Recall finds every entry by its #seq",
    ),
    "active_work": Kept(
        "the todo list, and what was pinned",
        "the list is said again after every summary, pins stand in the summary",
    ),
    "sprint_context": Kept(
        "the phase, and the unit of work that a run is at",
        "is said again after every summary",
    ),
    "run_state": Kept(
        "a run that goes on by itself",
        "after every summary the work goes on without a question, within the permissions given",
    ),
}
TAKEN: dict[str, Taken] = {
    "tool_results": Taken(
        "once they were used",
        "a line with tool, argument, outcome and #seq",
        "any result that is old and large; off the list, only those that another category names",
    ),
    "thinking_blocks": Taken(
        "once they are in the log",
        "nothing; the log keeps them",
        "goes with every edit of what stands before it, as the API demands: cannot be left out",
    ),
    "debug_output": Taken(
        "once the problem is solved",
        "a line with the outcome and #seq",
        "what a command printed that failed and later succeeded",
    ),
    "redundant_reads": Taken(
        "once the file was read again or changed",
        "a line with path, outcome and #seq; with preset ledger path and lines",
        "a Read that a later Read, Edit or Write of the same file superseded",
    ),
    "intermediate_outputs": Taken(
        "once their result is known",
        "a line with the outcome and #seq",
        "commands and searches that were repeated later, or are not among the newest",
    ),
}


def canonical(name: str) -> str:
    """A category's own name for any way of writing it; an unknown name stays one."""
    plain = name.strip().lower().replace("-", "_").replace(" ", "_")
    return _SYNONYMS.get(plain, plain)
