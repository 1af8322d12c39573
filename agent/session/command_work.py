"""The programs that a shell command runs, and what its exit code means.

`npm run build`, `cd app && npm run build 2>&1 | tail -20` and `CI=1 npm run build > log` do the
same work: they differ only in set-up and in how the output is shown. A command that cannot be split
with certainty has no work to compare: substitutions, here-documents, groups, and commands longer
than MAX_COMMAND_CHARS.

This is not the parser in agent/permissions/shell: a resume reads every recorded command, and that
parser took 8 to 11 times as long (docs/internals/decisions/two-shell-readers.md).
"""

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import field
from functools import lru_cache

from ..lazy import dataclass, regex

MAX_COMMAND_CHARS = 10_000  # longer commands are not parsed


def word_set(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(text.split())


# Each alternative begins with different characters, so that there is only one way to match.
_IN_WORD = r"\\[^\n]|\$(?=\w|\?|\{\w+\})"
_TOKEN = regex(
    rf"""(?P<blank>(?:[ \t]|\\\n)+|(?<![^\s;&|])\#[^\n]*)
    |(?P<redirect>(?:\d+|&)?(?:>>|>\||>(?!\()|<(?![<(]))(?:&(?:\d+|-))?)
    |(?P<end>\|\||&&|\|&?|;|\n|&)
    |(?P<word>(?:[^\s'"\\;&|<>()`$]|{_IN_WORD}|'[^']*'|"(?:[^"\\`$]|{_IN_WORD})*")+)""",
    re.VERBOSE,
)
_QUOTING = regex(r"""\\(.)|'([^']*)'|"((?:[^"\\]|\\.)*)\"""", re.DOTALL)
_ASSIGNMENT = regex(r"[A-Za-z_]\w*=.*", re.DOTALL)
_PIPES = ("|", "|&")

# Programs that start the program named after them, some after a subcommand.
_WRAPPERS = word_set("env time timeout nice nohup sudo stdbuf xvfb-run npx bunx") | {
    "uv run", "poetry run", "pdm run", "hatch run", "pipenv run", "rye run", "bundle exec",
    "coverage run",
}  # fmt: skip
_PYTHON = regex(r"python[\d.]*|pypy[\d.]*|py")  # with -m, or a script
_WRAPPER_ARGUMENT = regex(r"-.*|[A-Za-z_]\w*=.*|\d+(?:\.\d+)?[smhd]?", re.DOTALL)

SETUP_PROGRAMS = word_set("cd pushd export set source . echo printf mkdir true : sleep unset")
DISPLAY_PROGRAMS = word_set(
    "cat tail head tee grep egrep fgrep rg sed awk sort uniq wc cut less nl"
)
_END_DISPLAY_PROGRAMS = word_set("cat tail tee")
_TO_FILE = regex(r">(?!&)")

# Exit codes that mean the answer "no" and not a failure, by program.
_NO_EXIT_CODES = {
    **dict.fromkeys(
        word_set(
            "grep egrep fgrep zgrep rg ag ack diff cmp test [ [[ which type command hash pgrep"
            " pidof lsof fuser cat head tail stat file readlink find jq expr nc"
        ),
        (1,),
    ),
    "ls": (1, 2),
    "systemctl": (1, 3, 4),
}
_GIT_QUERY_COMMANDS = word_set(
    "diff grep check-ignore merge-base show-ref config ls-files cat-file"
)
_GIT_OPTION_WITH_VALUE = ("-C", "-c")
_SEPARATOR = regex(r"[;&|\n]")


@dataclass(slots=True)
class CommandPart:
    """A simple command, with the operators before and after it."""

    before: str = ""
    after: str = ""
    words: list[str] = field(default_factory=list)


def succeeds_only_with(simple: Sequence[CommandPart], place: int, *, piped: bool) -> bool:
    """Return True if a command succeeds only if the simple command at `place` does. `piped`: a
    pipeline fails if any part fails.
    """
    after = [each.after for each in simple[place:]]
    while piped and after[0] in _PIPES and len(after) > 1:
        del after[0]
    on = all(end == "&&" or end in _PIPES for end in after[:-1])
    return on and simple[place].before != "||" and after[0] not in _PIPES and after[-1] != "&"


def unwrapped_words(words: Sequence[str]) -> tuple[Sequence[str], tuple[str, ...]]:
    """Return the words of the program inside wrappers, and the variables set for it."""
    variables: list[str] = []
    while words:
        if _ASSIGNMENT.fullmatch(words[0]):
            variables.append(words[0])
            words = words[1:]
            continue
        name = _program(words)
        if " ".join((name, *words[1:2])) in _WRAPPERS:
            words = words[2:]
        elif name in _WRAPPERS or _PYTHON.fullmatch(name):
            words = words[1:]
        else:
            break
        while words and _WRAPPER_ARGUMENT.fullmatch(words[0]):
            variables += [words[0]] if _ASSIGNMENT.fullmatch(words[0]) else []
            words = words[1:]
    return words, tuple(variables)


def _program(words: Sequence[str]) -> str:
    return words[0].rpartition("/")[2] if words else ""


@lru_cache(maxsize=8)  # a failed command is parsed twice: for its work and for its exit code
def simple_commands(command: str) -> tuple[CommandPart, ...]:
    """Return the simple commands of a command in order, or () if they are not certain."""
    if len(command) > MAX_COMMAND_CHARS:
        return ()
    found = [CommandPart()]
    place, to_file = 0, False
    while place < len(command):
        token = _TOKEN.match(command, place)
        if token is None:
            return ()
        place = token.end()
        if token["redirect"]:
            to_file = token["redirect"][-1] in "<>|"
        elif token["word"]:
            if not to_file:
                found[-1].words.append(_QUOTING.sub(_unquoted, token["word"]))
            to_file = False
        elif token["end"] and found[-1].words:
            found[-1].after = token["end"]
            found.append(CommandPart(before=token["end"]))
    return tuple(each for each in found if each.words)


def _unquoted(quoted: re.Match[str]) -> str:
    return quoted[1] or quoted[2] or quoted[3] or ""


@dataclass(frozen=True, slots=True)
class Work:
    """One program that a command runs, without its set-up and without the display of its output."""

    folder: str  # working directory, as given to `cd`
    variables: tuple[str, ...]
    words: tuple[str, ...]
    decides_success: bool  # the whole command succeeds only if this program does
    is_shown: bool  # the end of its output is visible
    # The exit code of the command is that of a program which only displays this one's output.
    is_exit_code_hidden: bool


def find_work(command: str) -> tuple[Work, ...]:
    """Return the work in a command, in order. Return () if the command cannot be split with
    certainty.
    """
    simple = simple_commands(command)
    found, folder, piped = [], "", False
    for place, each in enumerate(simple):
        words, variables = unwrapped_words(each.words)
        name = _program(words)
        if name in ("cd", "pushd"):
            folder = posixpath.join(folder, words[-1])
        elif name == "set" and "pipefail" in words:
            piped = True
        elif (
            words
            and name not in SETUP_PROGRAMS
            and not (name in DISPLAY_PROGRAMS and each.before in _PIPES)
        ):
            decides_success = succeeds_only_with(simple, place, piped=piped)
            is_shown = not _TO_FILE.search(command) and all(
                _program(words) in _END_DISPLAY_PROGRAMS for words in _piped_words(simple, place)
            )
            is_hidden = not piped and _is_hidden(simple, place)
            found.append(
                Work(folder, variables, tuple(words), decides_success, is_shown, is_hidden)
            )
    return tuple(found)


def _is_hidden(simple: Sequence[CommandPart], place: int) -> bool:
    """Return True if the rest of a command only displays the output of the part at `place`, which
    does more than look something up.
    """
    shown = [each.before in _PIPES for each in simple[place + 1 :]]
    only_looks = _program(simple[place].words) in DISPLAY_PROGRAMS
    return any(shown) and all(shown) and not only_looks and not _is_answer_no(simple[place], 1)


def _piped_words(simple: Sequence[CommandPart], place: int) -> Iterator[Sequence[str]]:
    """Yield the words of each program that the output of the part at `place` is piped through."""
    for each in simple[place + 1 :]:
        if each.before not in _PIPES:
            return
        yield each.words


def answers_no(command: str, exit_code: int | None) -> bool:
    """Return True if this exit code means the answer "no" and not a failure, e.g. a search without
    a match or a missing file. Every part that may have set the exit code must be such a question.
    """
    simple = simple_commands(command)
    if not simple and not _SEPARATOR.search(command):
        simple = (CommandPart(words=command.split()),)
    deciding: list[CommandPart] = []
    for each in simple:
        if each.before in _PIPES and deciding and "pipefail" not in command:
            deciding[-1] = each
        elif each.before in ("&&", "||", *_PIPES):
            deciding.append(each)
        else:
            deciding = [each]
    asked = [_is_answer_no(each, exit_code) for each in deciding]
    return any(asked) and None not in asked


def _is_answer_no(simple: CommandPart, exit_code: int | None) -> bool | None:
    """Return True if this exit code means the answer "no" from a simple command. Return False if
    the command only prepares another command, and None otherwise.
    """
    words = [word for word in unwrapped_words(simple.words)[0] if word != "!"]
    name = _program(words)
    if name == "git":
        rest = [w for n, w in enumerate(words) if n and words[n - 1] not in _GIT_OPTION_WITH_VALUE]
        subcommand = next((word for word in rest if not word.startswith("-")), "")
        return True if subcommand in _GIT_QUERY_COMMANDS and exit_code == 1 else None
    if exit_code in _NO_EXIT_CODES.get(name, ()):
        return True
    return False if not words or name in SETUP_PROGRAMS else None
