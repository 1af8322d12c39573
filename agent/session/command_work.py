"""The work that a shell command does, so that the same work is known in other words.

`npm run build`, `cd app && npm run build 2>&1 | tail -20` and `CI=1 npm run build > log` differ in
what prepares and shows it. A command whose parts are not certain has no work that can be compared.
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

_PREPARES = word_set("cd pushd export set source . echo printf mkdir true : sleep unset")
_SHOWS = word_set("cat tail head tee grep egrep fgrep rg sed awk sort uniq wc cut less nl")
_SHOWS_END = word_set("cat tail tee")
_PIPES = ("|", "|&")
_TO_FILE = regex(r">(?!&)")

# Programs that answer "no" by their exit code, each with the codes that say so.
_QUESTIONS = {
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
_GIT_QUESTIONS = word_set("diff grep check-ignore merge-base show-ref config ls-files cat-file")
_GIT_OPTION_WITH_VALUE = ("-C", "-c")
_SEPARATOR = regex(r"[;&|\n]")


@dataclass(frozen=True, slots=True)
class Work:
    """One program that a command runs, without what prepares it and shows its output."""

    folder: str  # where it runs, as `cd` names it
    variables: tuple[str, ...]
    words: tuple[str, ...]
    decides: bool  # the whole command succeeds only if this does
    is_shown: bool  # the end of its output is shown


def works_of(command: str) -> tuple[Work, ...]:
    """Return the work in a command, in order; none where that is not certain."""
    simple = simple_commands(command)
    found, folder, piped = [], "", False
    for place, each in enumerate(simple):
        words, variables = unwrapped_words(each.words)
        name = _program(words)
        if name in ("cd", "pushd"):
            folder = posixpath.join(folder, words[-1])
        elif name == "set" and "pipefail" in words:
            piped = True
        elif words and name not in _PREPARES and not (name in _SHOWS and each.before in _PIPES):
            decides = succeeds_only_with(simple, place, piped=piped)
            is_shown = not _TO_FILE.search(command) and all(
                _program(words) in _SHOWS_END for words in _piped_words(simple, place)
            )
            found.append(Work(folder, variables, tuple(words), decides, is_shown))
    return tuple(found)


def _piped_words(simple: Sequence[CommandPart], place: int) -> Iterator[Sequence[str]]:
    """Yield the words of the programs that one's output goes through."""
    for each in simple[place + 1 :]:
        if each.before not in _PIPES:
            return
        yield each.words


def _program(words: Sequence[str]) -> str:
    return words[0].rpartition("/")[2] if words else ""


def answers_no(command: str, exit_code: int | None) -> bool:
    """Return whether a command that ended so only asked something: a search without a match, a file
    that is not there. All the parts that may have decided its exit code must be such questions."""
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
    asked = [_asks(each, exit_code) for each in deciding]
    return any(asked) and None not in asked


def _asks(simple: CommandPart, exit_code: int | None) -> bool | None:
    """Return whether a simple command asks and says "no" by this code; False where it only prepares
    another one, None where it does neither."""
    words = [word for word in unwrapped_words(simple.words)[0] if word != "!"]
    name = _program(words)
    if name == "git":
        rest = [w for n, w in enumerate(words) if n and words[n - 1] not in _GIT_OPTION_WITH_VALUE]
        subcommand = next((word for word in rest if not word.startswith("-")), "")
        return True if subcommand in _GIT_QUESTIONS and exit_code == 1 else None
    if exit_code in _QUESTIONS.get(name, ()):
        return True
    return False if not words or name in _PREPARES else None
