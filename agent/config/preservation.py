"""The categories of content that a compaction keeps or may clear, and the user's rules for them."""

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
        "the state of the work, for a later session",
        "inserted verbatim after every summary, read from disk",
        "Session Continuity",
        "Where the work stands, what comes next, and what a fresh session must know.",
    ),
    "decision_log": KeptCategory(
        "decisions and their reasons",
        "inserted verbatim after every summary, read from disk",
        "Decision Log",
        "What was decided, when and why; one line each, the newest last.",
    ),
    "trajectory": KeptCategory(
        "all messages and calls",
        "the session's log is never rewritten; Recall finds every entry by its #seq",
    ),
    "active_work": KeptCategory(
        "the todo list and pinned texts",
        "the list is inserted after every summary; pinned texts are part of the summary",
    ),
    "sprint_context": KeptCategory(
        "the phase, and the current unit of work of a run",
        "inserted after every summary",
    ),
    "run_state": KeptCategory(
        "the state of an unattended run",
        "after every summary the run continues without asking, within the given permissions",
    ),
}
COMPACTABLE_CATEGORIES: dict[str, CompactableCategory] = {
    "tool_results": CompactableCategory(
        "after their use",
        "a line with tool, argument, outcome and #seq",
        "all old and large results; if off, only results in the categories below",
    ),
    "thinking_blocks": CompactableCategory(
        "once they are in the log",
        "nothing; the log keeps them",
        "thinking after edited content, as the API requires; cannot be switched off",
    ),
    "debug_output": CompactableCategory(
        "once the problem is solved",
        "a line with the outcome and #seq",
        "the output of failed commands that later succeeded",
    ),
    "redundant_reads": CompactableCategory(
        "once the file was read again or changed",
        "a line with path, outcome and #seq; with preset ledger path and lines",
        "a Read that is superseded by a later Read, Edit or Write of the same file",
    ),
    "intermediate_outputs": CompactableCategory(
        "once their result is known",
        "a line with the outcome and #seq",
        "commands and searches that were repeated later or are not among the newest",
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
