"""The scope of the task, and a check whether calls have anything in common with it."""

from collections.abc import Iterable, Sequence

from ...session.entries import Block
from ...session.ledger import Ledger
from ..document import SummaryDocument
from ..language.words import MIN_NAME_CHARS, STEM_CHARS, folder_of, is_brief, paths_in, terms
from .calls import (
    CHANGING,
    call_line,
    call_subject,
    command_of,
    path_argument,
    simple_commands,
    written_paths,
    written_text,
)
from .decisions import adds_something

UNRELATED_POINTS = 8  # limit for consecutive calls; a file change has 2 points, other calls 1
MIN_TASK_TERMS = 3  # of the request; with fewer, no call counts as unrelated
MIN_KNOWN_TERMS = 12  # of the task, needed to judge a single new file
MIN_TEXT_TERMS = 3  # of the text before it, needed to judge a single new file
MAX_CLARITY_CHARS = 2_000  # read from each text of the request
MIN_COMMANDS = 5  # of the session, to compare commands with, without known files
MAX_COMMANDS = 100  # the newest commands

_TASKS = ("Todo", "Plan")  # calls that define the task
_NEUTRAL = ("Recall", "Job", "AskUser")


class TaskScope:
    """The terms and folders of the task. The terms and folders of each related call are added."""

    def __init__(self, document: SummaryDocument, ledger: Ledger, messages: Sequence[str]) -> None:
        self._ledger = ledger
        self._asked = [document.intent, *messages]
        self._goal = all_terms(_goal(document, ledger, messages))
        context = [*_goal(document, ledger, messages), *_context(document, ledger, messages)]
        self._known = all_terms(context)
        self._names = all_terms(context, MIN_NAME_CHARS)
        self._folders = {folder_of(path) for path in (*ledger.files, *ledger.read)}
        self._has_files = bool(self._folders)
        ran = (fact.command for fact in ledger.commands[-MAX_COMMANDS:])
        self._programs = {words[0] for text in ran for words in simple_commands(text)}
        self._points, self._is_new_request = 0, False
        self._unrelated: list[str] = []

    def add_message(self, text: str) -> None:
        """Add a user message."""
        self._asked.append(text)
        self._goal |= terms(text)
        self._known |= terms(text)
        self._names |= terms(text, MIN_NAME_CHARS)
        self._points, self._unrelated = 0, []
        self._is_new_request = self._is_new_request or not is_brief(text)

    def unrelated_calls(self, text: str, calls: Sequence[Block]) -> list[str]:
        """Return the newest consecutive unrelated calls, one line each, once there are enough of
        them. A call is unrelated if it and the text before it share no term and no folder with the
        task.
        """
        explained = len(terms(text) & self._goal) > 1
        for call in calls:
            about = self._subject(call)
            found, folders = terms(about), {folder_of(path) for path in paths_in(about)}
            is_task = call.get("name") in _TASKS
            if explained or is_task or folders & self._folders or found & self._names:
                self._known |= found
                self._names |= found
                self._folders |= folders
                self._points, self._unrelated = 0, []
            elif (
                found and call.get("name") not in _NEUTRAL and (weight := self._weight(text, call))
            ):
                self._points += weight
                self._unrelated.append(call_line(call))
        limit = UNRELATED_POINTS * (2 if self._is_new_request else 1)
        return self._unrelated if self._points >= limit and self._is_clear(text) else []

    def _weight(self, text: str, call: Block) -> int:
        """Return the points of an unrelated call. A new file reaches the limit at once if a text
        explains it and neither the text nor the file has a term of the task. Other calls have no
        points if the session knows no files to compare with.
        """
        said, written = terms(text), terms(written_text(call))
        tells = len(said) >= MIN_TEXT_TERMS and len(self._known) >= MIN_KNOWN_TERMS
        if tells and self._is_new_file(call) and not (said | written) & self._known:
            return UNRELATED_POINTS
        if commands := simple_commands(command_of(call)):
            is_known = self._has_files or len(self._ledger.commands) >= MIN_COMMANDS
            return self._command_weight(call, commands) if is_known else 0
        return (2 if call.get("name") in CHANGING else 1) if self._has_files else 0

    def _command_weight(self, call: Block, commands: Sequence[list[str]]) -> int:
        """Return the points of an unrelated command. Half of the limit each: it writes a file, and
        it creates or installs something with a program that is new to the session.
        """
        new = (words for words in commands if words[0] not in self._programs)
        starts = any(map(adds_something, new))
        return max(1, UNRELATED_POINTS // 2 * (starts + bool(written_paths(call))))

    def _is_new_file(self, call: Block) -> bool:
        path = self._ledger.display_path(path_argument(call))
        known = path in self._ledger.files or path in self._ledger.read
        return call.get("name") in CHANGING and not known

    def _subject(self, call: Block) -> str:
        if call.get("name") in _TASKS:
            return str(call.get("input"))
        cwd, subject = self._ledger.cwd.rstrip("/"), call_subject(call)
        return subject.replace(f"{cwd}/", "").replace(cwd, ".") if cwd else subject

    def _is_clear(self, text: str) -> bool:
        """Return True if the request has enough terms to compare calls with. If the request is
        mostly in non-ASCII letters, the text must be too, since calls have few of these letters.
        """
        asked = [each[:MAX_CLARITY_CHARS] for each in self._asked[:6]]
        comparable = not _is_foreign("".join(asked)) or _is_foreign(text)
        return comparable and len(all_terms(asked)) >= MIN_TASK_TERMS


def _is_foreign(text: str) -> bool:
    """Return True if more than a quarter of a text's letters are not ASCII, for example Cyrillic.
    Paths and commands rarely have these letters.
    """
    letters = [char for char in text[:MAX_CLARITY_CHARS] if char.isalpha()]
    return sum(not char.isascii() for char in letters) * 4 > len(letters)


def all_terms(texts: Iterable[str], least: int = STEM_CHARS) -> set[str]:
    """Return the terms of several texts."""
    return set[str]().union(*(terms(text, least) for text in texts))


def agreed_plan(ledger: Ledger) -> list[str]:
    """Return the plan that the user approved, as a list of one text; empty without such a plan."""
    return [ledger.plan.text] if ledger.plan and ledger.plan.agreed else []


def _goal(document: SummaryDocument, ledger: Ledger, messages: Sequence[str]) -> list[str]:
    """Return the texts that describe the goal of the current work."""
    todos = [todo["content"] for todo in ledger.todos]
    steps = (*document.in_progress, *document.next_steps)
    return [document.intent, *steps, *todos, *agreed_plan(ledger), *messages[-2:]]


def _context(document: SummaryDocument, ledger: Ledger, messages: Sequence[str]) -> list[str]:
    """Return the other texts that describe the task."""
    rows = [f"{row.path} {row.change}" for row in document.modified]
    commands = (fact.command for fact in ledger.commands[-MAX_COMMANDS:])
    return [
        *messages, *rows, *(row.path for row in document.read), *document.decisions, document.phase,
        *document.done, *document.blocked, *document.errors,
        *(fact.text for fact in document.facts),
        *ledger.files, *ledger.read, *ledger.pins.values(),
        *(call_subject({"name": "Bash", "input": {"command": each}}) for each in commands),
    ]  # fmt: skip
