"""The output of a shell command, with its signs of success and errors, and its purpose.

Most outputs are never read because the exit code is enough. The output is split into lines only on
demand, because the ledger receives every output in a log.
"""

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import field
from functools import lru_cache
from itertools import islice

from ..lazy import dataclass, regex
from .entries import ToolResult
from .store import content_text

MAX_ERROR_LINES = 6  # kept of a failed command's output
LAST_LINES_DIVISOR = 3  # this part of them are the last lines, and this part named ones
MAX_ERROR_LINE_CHARS = 300  # characters kept of each

# Compared with the output in lower case, like the other signs.
_ERROR_SIGNS = (
    "error", "exception", "traceback", "assert", "denied", "refused", "undefined", "not found",
    "no such", "timed out",
)  # fmt: skip
_ERROR_WORD_BEGINNINGS = ("err!", "fail", "fatal", "panic")
_SIGNS = (*_ERROR_SIGNS, *_ERROR_WORD_BEGINNINGS)
_ERROR_WORD = regex(rf"\b(?:{'|'.join(_ERROR_WORD_BEGINNINGS)})")
_NO_ERRORS = regex(r"\b(?:0|no) (?:errors?|failures?|failed|failing)\b")
_SUCCESS_SIGN = regex(
    r"\b(?:done|ok|pass|passed|success|successful|successfully|succeeded|built|compiled|complete"
    r"|completed|finished)\b|✓|✔|\b(?:0|no) (?:errors?|failures?)\b"
)


_HAS_TEXT = regex(r"\w")
_NOTE = regex(r"\[.*\]")
_FIRST_NAME = regex(r"([\w.+-]+): ")
_WORD = regex(r"[\w.+-]+")


@dataclass(slots=True)
class CommandOutput:
    """The output of a command: the result of its call, or lines."""

    source: ToolResult | Sequence[str]  # a call's result, or lines
    _lines: Sequence[str] | None = field(default=None, init=False)

    @property
    def lines(self) -> Sequence[str]:
        """The lines of the output. For an offloaded output, the lines of its preview."""
        if self._lines is None:
            source = self.source
            if isinstance(source, ToolResult):
                text = content_text(source.content)
                source = lines_of(text, is_preview=bool(source.offloaded))
            self._lines = source
        return self._lines

    def has_success_sign(self) -> bool:
        """Return True if the output has a sign of success and no sign of an error."""
        text = "\n".join(self.lines).lower()
        return not _tells_error(text) and bool(_SUCCESS_SIGN.search(text))

    def ends_with_error(self) -> bool:
        """Return True if the last line that the program printed has a sign of an error."""
        return any(_tells_error(line.lower()) for line in printed_lines(self.lines, 0)[-1:])


def telling_lines(
    lines: Sequence[str],
    exit_code: int | None = None,
    command: str = "",
    count: int = MAX_ERROR_LINES,
) -> tuple[str, ...]:
    """Return the `count` lines that tell most about a failure, in order: the last lines that the
    program printed, the last lines that begin with the name of a program in `command`, and the last
    lines with a sign of an error.

    Each line is cut to MAX_ERROR_LINE_CHARS. Every output has telling lines, in any language: names
    and signs only decide which lines come before the last ones.
    """
    printed = printed_lines(lines, exit_code)
    text = "\n".join(printed).lower()
    signs = [sign for sign in _SIGNS if sign in text]
    places, share = range(len(printed) - 1, -1, -1), count // LAST_LINES_DIVISOR
    names = set(_WORD.findall(command)) if command else ()
    named = (n for n in places if names and (m := _FIRST_NAME.match(printed[n])) and m[1] in names)
    signed = (n for n in places if signs and _has_sign(printed[n].lower(), signs))
    first = (*places[:share], *islice(named, share))
    order = dict.fromkeys((*first, *islice(signed, count), *places[:count]))
    chosen = sorted(islice(order, count))
    return tuple(printed[n][:MAX_ERROR_LINE_CHARS] for n in chosen)


def printed_lines(lines: Sequence[str], exit_code: int | None) -> list[str]:
    """Return the lines that a program printed, without blank lines and lines of punctuation.

    The notes of the Bash tool are left out: the lines in brackets from `[exit N]` on. So is the
    first or last line of another agent's result, if it only repeats the exit code in words.
    """
    shown = [line for line in lines if _HAS_TEXT.search(line)]
    notes = len(shown)
    while notes and _NOTE.fullmatch(shown[notes - 1].strip()):
        notes -= 1
    if exit_code is None:
        return shown
    repeats = regex(rf"[\[(<]*(?:[^\W\d_]+:? ){{1,6}}{exit_code}(?: \([^()]*\))?[\])>.]*")
    for place in range(notes, len(shown)):
        if exit_code < 0 or repeats.fullmatch(shown[place]):
            return shown[:place]
    for place in (0, -1):
        if len(shown) > 1 and repeats.fullmatch(shown[place]):
            del shown[place]
            break
    return shown


def _tells_error(text: str) -> bool:
    """Return True if a text in lower case has a sign of an error, other than a count of zero."""
    return has_error_sign(text) and has_error_sign(_NO_ERRORS.sub("", text))


def has_error_sign(text: str) -> bool:
    """Return True if a text has a sign of an error."""
    return _has_sign(text.lower(), _SIGNS)


def _has_sign(text: str, signs: Sequence[str]) -> bool:
    """Return True if a text contains one of these signs. Separate searches take a tenth of the time
    of one regular expression with all signs.
    """
    for sign in signs:
        if sign in text and (sign in _ERROR_SIGNS or _ERROR_WORD.search(text)):
            return True
    return False


def lines_of(text: str, *, is_preview: bool) -> list[str]:
    """Return the lines of an output. `is_preview` means that the output went to a file, so that the
    text quotes only some of its lines.
    """
    lines = [line.rstrip() for line in text.split("\n")]
    if is_preview:
        lines = [line.removeprefix("> ") for line in lines if line.startswith("> ")]
    return lines


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
