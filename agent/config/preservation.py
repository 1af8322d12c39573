"""The categories of what a compaction keeps or may clear, their meanings, and the user's rules
for them.
"""

from ..lazy import dataclass

# Names of the published protocols for the same categories.
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
class KeptCategory:
    """A category that is always kept."""

    help: str
    how: str
    heading: str = ""  # its section of the notes file, if any
    opening: str = ""  # first line of a new section


@dataclass(frozen=True, slots=True)
class CompactableCategory:
    """A category that may be removed from the context."""

    when: str
    replacement: str
    how: str


KEPT_CATEGORIES: dict[str, KeptCategory] = {
    "session_continuity": KeptCategory(
        "where the work stands, for whoever takes it up",
        "stands verbatim after every summary, read from disk",
        "Session Continuity",
        "Where the work stands, what comes next, and what a fresh session must know.",
    ),
    "decision_log": KeptCategory(
        "what was decided, and why",
        "stands verbatim after every summary, read from disk",
        "Decision Log",
        "What was decided, when and why; one line each, the newest last.",
    ),
    "trajectory": KeptCategory(
        "all that was said and done",
        "the session's log: never rewritten, Recall finds every entry by its #seq",
    ),
    "active_work": KeptCategory(
        "the todo list, and what was pinned",
        "the list is said again after every summary, pins stand in the summary",
    ),
    "sprint_context": KeptCategory(
        "the phase, and the unit of work that a run is at",
        "is said again after every summary",
    ),
    "run_state": KeptCategory(
        "a run that goes on by itself",
        "after every summary the work goes on without a question, within the permissions given",
    ),
}
COMPACTABLE_CATEGORIES: dict[str, CompactableCategory] = {
    "tool_results": CompactableCategory(
        "once they were used",
        "a line with tool, argument, outcome and #seq",
        "any result that is old and large; off the list, only those that another category names",
    ),
    "thinking_blocks": CompactableCategory(
        "once they are in the log",
        "nothing; the log keeps them",
        "goes with every edit of what stands before it, as the API demands: cannot be left out",
    ),
    "debug_output": CompactableCategory(
        "once the problem is solved",
        "a line with the outcome and #seq",
        "what a command printed that failed and later succeeded",
    ),
    "redundant_reads": CompactableCategory(
        "once the file was read again or changed",
        "a line with path, outcome and #seq; with preset ledger path and lines",
        "a Read that a later Read, Edit or Write of the same file superseded",
    ),
    "intermediate_outputs": CompactableCategory(
        "once their result is known",
        "a line with the outcome and #seq",
        "commands and searches that were repeated later, or are not among the newest",
    ),
}
ALWAYS = tuple(KEPT_CATEGORIES)
COMPACTABLE = tuple(COMPACTABLE_CATEGORIES)


@dataclass(frozen=True, slots=True)
class PreserveRules:
    """The rules in force."""

    always: tuple[str, ...] = ALWAYS
    compactable: tuple[str, ...] = COMPACTABLE
    strict: bool = False  # refuse to compact while a section is missing
    notes: str = "NOTES.md"  # a path within the project
    run_state: str = ".run/*.json"  # a glob within the project
    expected: bool = False  # whether a missing notes file counts as missing sections


DEFAULT_PRESERVE_RULES = PreserveRules()


def canonical_category(name: str) -> str:
    """Return a category's canonical name for any of its spellings. An unknown name is only
    normalised.
    """
    plain = name.strip().lower().replace("-", "_").replace(" ", "_")
    return _SYNONYMS.get(plain, plain)
