"""The work that a shell command does, to recognize the same work in a different command line.

`npm run build`, `cd app && npm run build 2>&1 | tail -20` and `CI=1 npm run build > log` differ
only in set-up and in how the output is shown. A command that cannot be split with certainty has no
work to compare.
"""

import posixpath
from collections.abc import Iterator, Sequence

from ..lazy import dataclass, regex
from .test_commands import (
    CommandPart,
    simple_commands,
    succeeds_only_with,
    unwrapped_words,
    word_set,
)

SETUP_PROGRAMS = word_set("cd pushd export set source . echo printf mkdir true : sleep unset")
DISPLAY_PROGRAMS = word_set(
    "cat tail head tee grep egrep fgrep rg sed awk sort uniq wc cut less nl"
)
_END_DISPLAY_PROGRAMS = word_set("cat tail tee")
_PIPES = ("|", "|&")
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


@dataclass(frozen=True, slots=True)
class Work:
    """One program that a command runs, without its set-up and without the display of its output."""

    folder: str  # working directory, as given to `cd`
    variables: tuple[str, ...]
    words: tuple[str, ...]
    decides_success: bool  # the whole command succeeds only if this program does
    is_shown: bool  # the end of its output is visible


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
            found.append(Work(folder, variables, tuple(words), decides_success, is_shown))
    return tuple(found)


def _piped_words(simple: Sequence[CommandPart], place: int) -> Iterator[Sequence[str]]:
    """Yield the words of each program that the output of the part at `place` is piped through."""
    for each in simple[place + 1 :]:
        if each.before not in _PIPES:
            return
        yield each.words


def _program(words: Sequence[str]) -> str:
    return words[0].rpartition("/")[2] if words else ""


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
