"""The scope of the task, and a check whether calls have anything in common with it.

The subject, commands and written files of a call are read from its arguments. The calls of a
session are remembered, to detect repeated calls and reverted edits.

A decision can name alternatives, and a call can bring in another alternative than before. The code
does not read the sentence: which name was chosen depends on the language. It checks a name of a
decision only when a call installs it, imports it or names a file for it, for the first time and
without a request.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from ...lazy import dataclass, regex
from ...session.entries import Block
from ...session.ledger import Ledger
from ..document import SummaryDocument
from ..words import (
    MAX_LINE_CHARS,
    MIN_NAME_CHARS,
    STEM_CHARS,
    fit_line,
    folder_of,
    is_brief,
    paths_in,
    terms,
)

CHANGING = ("Edit", "Write")
MAX_ARGUMENT_CHARS = 300  # read from one argument
MAX_WRITTEN_CHARS = 20_000  # read from a command or a written text

_BODIES = ("content", "old_string", "new_string", "todos")
_QUOTED = regex(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"")
_HEREDOC = regex(r"((?<!<)<<-?\s*['\"\\]?\w[^\n]*)\n.*", re.DOTALL)
_REDIRECTED = regex(r"(?<![-=])>{1,2}\|?\s*([^\s;&|<>()]+)")
_PREFIXES = {"sudo", "time", "nohup", "command", "then", "do", "else", "!", "env", "exec"}
_WRITERS = {"rm", "mv", "cp", "tee", "truncate", "touch", "chmod", "ln", "patch", "sed", "perl"}
_GIT_WRITERS = {"rm", "mv", "checkout", "restore"}
_BARE_WORD = regex(r"[a-z]+")


def arguments_of(call: Block) -> Mapping[str, Any]:
    arguments = call.get("input")
    return arguments if isinstance(arguments, Mapping) else {}


def path_argument(call: Block) -> str:
    arguments = arguments_of(call)
    return str(arguments.get("path") or arguments.get("file_path") or "")


def command_of(call: Block) -> str:
    """Return the shell command of a Bash call, "" for other tools."""
    return str(arguments_of(call).get("command", "")) if call.get("name") == "Bash" else ""


def call_line(call: Block) -> str:
    """Return a call in one line: the tool and its command, path or subject."""
    what = arguments_of(call).get("command") or path_argument(call) or call_subject(call)
    return fit_line(f"{call.get('name')} {what}", MAX_LINE_CHARS)


def call_subject(call: Block) -> str:
    """Return the subject of a call: all its arguments except the texts that it writes. For a
    command, leave out the names of programs, subcommands and flags.
    """
    if command := command_of(call):
        pieces = map(_operands, simple_commands(command[:MAX_ARGUMENT_CHARS]))
        return "\n".join(" ".join(piece) for piece in pieces)
    arguments = arguments_of(call).items()
    return "\n".join(
        str(value)[:MAX_ARGUMENT_CHARS] for name, value in arguments if name not in _BODIES
    )


def _operands(words: Sequence[str]) -> list[str]:
    first = 2 if len(words) > 1 and _BARE_WORD.fullmatch(words[1]) else 1
    return [word for word in words[first:] if not word.startswith("-")]


def written_text(call: Block) -> str:
    """Return the text that a call writes to a file."""
    arguments = arguments_of(call)
    text = arguments.get("content") or arguments.get("new_string") or ""
    return str(text)[:MAX_WRITTEN_CHARS]


def simple_commands(command: str) -> list[list[str]]:
    """Split a shell command into simple commands, each a list of words. Approximate."""
    found = []
    for piece in re.split(r"[;&|\n()]+", _bare(command)):
        words = piece.split()
        while words and (words[0] in _PREFIXES or re.match(r"\w+=", words[0])):
            del words[0]
        if words:
            found.append(words)
    return found


def _bare(command: str) -> str:
    """Return a command without the bodies of here-documents. A quoted text with spaces becomes one
    placeholder word.
    """
    head = _HEREDOC.sub(r"\1", command[:MAX_WRITTEN_CHARS])
    return _QUOTED.sub(lambda q: "_" if re.search(r"\s", q[0]) else q[0][1:-1], head)


def written_paths(call: Block) -> list[str]:
    """Return the paths that a call writes to, as far as its arguments name them."""
    if call.get("name") in CHANGING:
        return [path] if (path := path_argument(call)) else []
    command = command_of(call)
    redirected = _REDIRECTED.findall(_bare(command))
    found = [path for path in redirected if not path.startswith(("&", "/dev/"))]
    for words in simple_commands(command):
        program, rest = words[0].rpartition("/")[2], words[1:]
        if program == "git" and rest and rest[0] in _GIT_WRITERS:
            found += rest[1:]
        elif program in ("sed", "perl") and not any(w.startswith(("-i", "-pi")) for w in rest):
            continue
        elif program in _WRITERS:
            found += rest[-1:] if program in ("cp", "ln") else rest
    return [path for path in found if not path.startswith("-")]


MIN_ALTERNATIVE_CHARS = 3
MAX_DECISION_CHARS = 1_000
MAX_NAMES = 4  # of a decision between alternatives; more names are a list

_ADDING = ("install", "add", "get", "i", "require", "create", "init", "new", "download", "clone")
_ADDING_PLACES = 4  # first words of a command that may say what it adds: `python -m pip install`
_NAME = regex(r"[^\W\d_][\w+#-]*(?:\.[^\W\d_][\w+#-]*)*")
_CODE = regex(r"`([^`\s]+)`")
_SENTENCE = regex(r"(?:^|[.!?:;]\s+|\n)\W*")
_IMPORT = regex(
    r"\s*(?:import|from|export|use|using|#include|require|(?:const|let|var)\b.*\brequire)\b"
)
_MODULE = regex(r"['\"<]([^'\"<>\s]+)['\">]|\b(?:import|from|use|using)\s+([\w.]+)")
_DOCUMENTS = (".md", ".rst", ".txt")  # endings of files that are not code
_LISTS_PACKAGES = regex(
    r"(?:package|requirements[\w-]*|pyproject|cargo|go|gemfile|pom|build|composer"
    r"|(?:docker-)?compose|dockerfile)(?:\.\w+)?"
)
_PARTS = regex(r"[^\W_]+")
_PACKAGE = regex(r"@|[\w.-]*\.[\w-]+/|[^-/][^/]*$")  # not an option, a path or a branch
_VERSION = regex(r"[=<>~!^\[;].*|(?<=.)@.*")


@dataclass(frozen=True, slots=True)
class Alternatives:
    """A decision, and the names in it after the first, in lower case."""

    text: str
    names: tuple[str, ...]


def alternatives_in(decisions: Iterable[str]) -> list[Alternatives]:
    """Return the decisions that name two to four things."""
    found = ((text, [*dict.fromkeys(_names(text[:MAX_DECISION_CHARS]))]) for text in decisions)
    return [
        Alternatives(text, tuple(names[1:])) for text, names in found if 1 < len(names) <= MAX_NAMES
    ]


def _names(text: str) -> Iterator[str]:
    """Yield the names in a text, in lower case: code, and words with a capital letter that no
    sentence begins with.
    """
    coded = {found[1] for found in _CODE.finditer(text)}
    starts = {found.end() for found in _SENTENCE.finditer(text)}
    for word in _NAME.finditer(text):
        name = word[0]
        is_cased = any(char.isupper() for char in (name[1:] if word.start() in starts else name))
        if len(name) >= MIN_ALTERNATIVE_CHARS and (is_cased or name in coded):
            yield name.casefold()


def brought_in(call: Block) -> set[str]:
    """Return the names that a call installs, imports or names a file for, in lower case."""
    found = set[str]()
    for words in simple_commands(command_of(call)):
        verbs = [place for place in range(1, len(words)) if words[place] in _ADDING]
        if verbs and verbs[0] < _ADDING_PLACES:
            for word in words[verbs[0] + 1 :]:
                found |= _forms(_VERSION.sub("", word)) if _PACKAGE.match(word) else set()
    if text := written_text(call):
        before = set(str(arguments_of(call).get("old_string", "")).splitlines())
        base = path_argument(call).rpartition("/")[2].casefold()
        found |= set(_PARTS.findall(base.rpartition(".")[0]))
        lists_packages = _LISTS_PACKAGES.fullmatch(base)
        for line in text.splitlines():
            if line in before:
                continue
            if lists_packages:
                found |= {form for name in _NAME.findall(line) for form in _forms(name)}
            elif _IMPORT.match(line) and not base.endswith(_DOCUMENTS):
                found |= _forms(_module(line))
    return found


def _module(line: str) -> str:
    """Return the module that an import names; "" for a file of the project."""
    found = _MODULE.search(line)
    name = (found[1] or found[2]) if found else ""
    return "" if name.startswith((".", "/")) else name


def adds_something(words: list[str]) -> bool:
    """Return True if a simple command installs, downloads or creates something."""
    return any(word in _ADDING for word in words[1:_ADDING_PLACES])


def _forms(name: str) -> set[str]:
    """Return a name and its parts, in lower case."""
    name = name.casefold()
    return {name, *_PARTS.findall(name)} - {""}


MAX_CALLS = 2_000  # remembered, the newest
MIN_LINE_CHARS = 8  # shorter lines, such as a brace, occur in many edits

_REMEMBERED = (*CHANGING, "Bash")


@dataclass(frozen=True, slots=True)
class _Call:
    ref: int  # of the newest fact before it
    identity: int  # hash of tool and arguments
    path: str
    removed: frozenset[int]  # hashes of lines
    added: frozenset[int]


@dataclass(slots=True)
class CallMemory:
    """The earlier calls that change files or run commands, as hashes."""

    _calls: list[_Call] = field(default_factory=list)
    names: set[str] = field(default_factory=set)  # that calls installed or imported
    asked_user: bool = False  # the newest calls asked the user questions

    def add(self, calls: Sequence[Block], ref: int) -> None:
        """Remember the calls of a reply. `ref` is the ref of the newest fact before them."""
        self._calls += [_summarized(call, ref) for call in calls if call.get("name") in _REMEMBERED]
        del self._calls[:-MAX_CALLS]
        for call in calls:
            self.names |= brought_in(call)
        self.asked_user = any(call.get("name") == "AskUser" for call in calls)

    def copy(self) -> "CallMemory":
        return replace(self, _calls=list(self._calls), names=set(self.names))

    def has(self, call: Block) -> bool:
        """Return True if exactly this call was made before."""
        identity = _identity(call)
        return any(before.identity == identity for before in self._calls)

    def find_reverted_edit(self, call: Block) -> int | None:
        """Return the `ref` of the newest edit that a call reverts exactly, else None. The call must
        write all lines that the edit removed, remove all lines that it added, and touch no other
        lines.
        """
        edit = _summarized(call, 0)
        undone = (edit.path, edit.added, edit.removed)
        refs = (c.ref for c in reversed(self._calls) if (c.path, c.removed, c.added) == undone)
        return next(refs, None) if edit.added else None


def _identity(call: Block) -> int:
    return hash((str(call.get("name")), json.dumps(call.get("input"), sort_keys=True, default=str)))


def _summarized(call: Block, ref: int) -> _Call:
    """Return the hashes of a call's edit. The lines that a Write removes are unknown and count as
    none.
    """
    arguments = arguments_of(call)
    old, new = (_lines(str(arguments.get(key, ""))) for key in ("old_string", "new_string"))
    return _Call(ref, _identity(call), path_argument(call), old - new, new - old)


def _lines(text: str) -> frozenset[int]:
    lines = (line.strip() for line in text.splitlines())
    return frozenset(hash(line) for line in lines if len(line) >= MIN_LINE_CHARS)


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
