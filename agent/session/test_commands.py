"""Detection of test runs in shell commands: the runner, its arguments and its directory.

A command is parsed word by word where that is certain: lists and pipelines of simple commands, with
wrappers such as `uv run` skipped. Anything else is ignored: substitutions, here-documents, groups,
commands longer than MAX_COMMAND_CHARS, and programs that only name a runner (`pip install pytest`).

This is not the parser in agent/permissions/shell: a resume reads every recorded command, and that
parser took 8 to 11 times as long (1.5 to 2.4 s for 10,000 commands; this one takes 0.2 s).
"""

import posixpath
import re
from collections.abc import Sequence
from dataclasses import field, replace
from functools import lru_cache
from itertools import pairwise

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
_RUNNERS = word_set("pytest py.test unittest jest vitest mocha rspec prove ctest phpunit tox nox")
_ARGUMENT_FOR_ALL = {"vitest": "run", "unittest": "discover"}  # the first argument
_SCRIPTS = word_set("npm pnpm yarn bun")  # programs that run scripts from package.json
_RUN_SCRIPT = word_set("run run-script exec dlx x")
_SCRIPT = regex(r"t|test(?:[:_-][\w:-]+)?")
_MAKES = word_set("make gmake just rake mvn mvnw gradle gradlew")
_TARGET = regex(r"(?:[\w:-]*:)?(?:tests?|check|spec|verify)(?:[:_-][\w:-]+)?")
_OPTIONS_WITH_VALUE_MAKE = word_set("-C -f -I -o -W -j --directory --file")
_COMMANDS = dict.fromkeys(word_set("go dotnet mix manage.py"), word_set("test"))
_COMMANDS["cargo"] = word_set("test t")
_RUN_NO_TESTS = word_set(
    "--version -V --help -h --collect-only --co --fixtures --markers --no-run --list -list "
    "--listTests --show-only --dry-run --just-print"
)

# Options that do not change which tests run.
_SAME_TESTS = regex(
    r"--?|-[qvxslbi]+|-r[a-zA-Z]+|-(?:n|W|j)\w*|-p no:\w+|-(?:race|cover|failfast)"
    r"|-(?:timeout|count|parallel|shuffle)(?:=.*)?"
    r"|--(?:tb|cov|no-|verbose|quiet|ci$|silent|watch|runInBand|reporter|coverage|maxfail"
    r"|durations|colou?r|ff$|failed-first|exitfirst|bail|run$|release|locked|offline|nocapture"
    r"|keepdb|parallel|timeout|disable-warnings|strict|junit|show|capture|log-|numprocesses|dist"
    r"|import-mode|fail-fast).*",
    re.DOTALL,
)
# Those of them that have a value in the next word.
_OPTIONS_WITH_VALUE = word_set(
    "-n -W -j -timeout -count -parallel --tb --maxfail --durations --color --timeout --reporter "
    "--numprocesses --dist --log-level --import-mode"
)
# Options that select fewer tests.
_FEWER_TESTS = regex(
    r"-k.*|-t|-g|-run\b.*|-short|--(?:grep|testNamePattern|lf|last-failed|sw|stepwise|ignore|deselect"
    r"|shard|onlyChanged|changed)\b.*",
    re.DOTALL,
)
_MORE_TESTS = word_set("--workspace --all --all-features --runslow")  # select more tests
_EVERYTHING = word_set(". ...")
_GO_RECURSIVE = word_set("...")  # without it, go tests a single folder

# Programs that may print the output of another test run. A filter does not if it reads a pipe.
_FILTERS = word_set("cat tac nl bat head tail less more grep egrep fgrep rg ag sed awk cut sort jq")
_MAY_SHOW_TESTS = word_set(
    "xargs find ssh docker podman kubectl gh curl wget bash sh zsh eval popd"
)


@dataclass(frozen=True, slots=True)
class TestCommand:
    """A test run that a command starts."""

    runner: str = ""  # with its target or script, if any; "" if no known runner
    arguments: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()  # set only for this program
    folder: str = ""  # working directory, as given to `cd`
    single: bool = False  # the command runs no other tests
    is_only_printer: bool = False  # no other program in the command may print test output
    decides_success: bool = False  # the command succeeds only if the run does

    def covers(self, name: str, failed: "TestCommand") -> bool:
        """Return True if this run certainly repeats the test `name` that failed in the run
        `failed`. A run that names files or tests covers only these; a run with unknown options
        covers only a run with the same options.
        """
        if not (self.single and failed.single) or self.variables != failed.variables:
            return False
        options, places = _selection(self.arguments)
        others, where = _selection(failed.arguments)
        if (options, places) == (others, where):
            return True
        if options - _MORE_TESTS or any(
            not _FEWER_TESTS.fullmatch(each) for each in others - options
        ):
            return False
        if self.runner == "go":
            return bool(places & _GO_RECURSIVE)
        named = name.removeprefix("./")
        return places <= _EVERYTHING or any(_is_part_of(named, place) for place in places)


@dataclass(slots=True)
class CommandPart:
    """A simple command, with the operators before and after it."""

    before: str = ""
    after: str = ""
    words: list[str] = field(default_factory=list)


def find_test_command(command: str) -> TestCommand:
    """Return the first test run in a command. It has no runner if no known runner is found."""
    simple = simple_commands(command)
    found: TestCommand | None = None
    folder, single, is_only_printer, piped = "", True, True, False
    for place, each in enumerate(simple):
        words, variables = unwrapped_words(each.words)
        name = _base(words)
        if name in ("cd", "pushd"):
            folder = posixpath.join(folder, words[-1])
        elif name == "set" and "pipefail" in words:
            piped = True
        elif run := _run(words):
            single = found is None
            decides_success = succeeds_only_with(simple, place, piped=piped)
            found = found or TestCommand(*run, variables, folder, decides_success=decides_success)
        elif name in _MAY_SHOW_TESTS or (name in _FILTERS and each.before not in _PIPES):
            is_only_printer = False
    return (
        replace(found, single=single, is_only_printer=is_only_printer) if found else TestCommand()
    )


def succeeds_only_with(simple: Sequence[CommandPart], place: int, *, piped: bool) -> bool:
    """Return True if a command succeeds only if the simple command at `place` does. `piped`: a
    pipeline fails if any part fails.
    """
    after = [each.after for each in simple[place:]]
    while piped and after[0] in _PIPES and len(after) > 1:
        del after[0]
    on = all(end == "&&" or end in _PIPES for end in after[:-1])
    return on and simple[place].before != "||" and after[0] not in _PIPES and after[-1] != "&"


def _run(words: Sequence[str]) -> tuple[str, tuple[str, ...]] | None:
    """Return the runner and its arguments if a program runs tests, else None."""
    name, rest = _base(words), list(words[1:])
    if _RUN_NO_TESTS & set(rest):
        return None
    if name in _MAKES:
        near = pairwise(("", *rest))
        targets = [w for b, w in near if b not in _OPTIONS_WITH_VALUE_MAKE and _TARGET.fullmatch(w)]
        others = tuple(word for word in rest if word not in targets)
        return (" ".join((name, *targets)), others) if targets else None
    if name in _RUNNERS:
        return _runner_and_arguments(name, rest)
    options = []
    while rest and rest[0][:1] in ("-", "+"):
        options.append(rest.pop(0))
    if name in _SCRIPTS and rest and rest[0] in _RUN_SCRIPT:
        del rest[0]
    if name == "cargo" and rest[:2] == ["nextest", "run"]:
        return "nextest", (*options, *rest[2:])
    if name in _SCRIPTS and rest and rest[0] in _RUNNERS:
        return _runner_and_arguments(rest[0], [*rest[1:], *options])
    if name in _SCRIPTS and rest and _SCRIPT.fullmatch(rest[0]):
        script = "test" if rest[0] == "t" else rest[0]
        return f"{name} {script}", (*options, *rest[1:])
    return (name, (*options, *rest[1:])) if rest and rest[0] in _COMMANDS.get(name, ()) else None


def _runner_and_arguments(name: str, arguments: list[str]) -> tuple[str, tuple[str, ...]]:
    if arguments and arguments[0] == _ARGUMENT_FOR_ALL.get(name):
        del arguments[0]
    return "pytest" if name == "py.test" else name, tuple(arguments)


def unwrapped_words(words: Sequence[str]) -> tuple[Sequence[str], tuple[str, ...]]:
    """Return the words of the program inside wrappers, and the variables set for it."""
    variables: list[str] = []
    while words:
        if _ASSIGNMENT.fullmatch(words[0]):
            variables.append(words[0])
            words = words[1:]
            continue
        name = _base(words)
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


def _base(words: Sequence[str]) -> str:
    return words[0].rpartition("/")[2] if words else ""


@lru_cache(maxsize=8)  # each command is parsed twice: for its tests and for its work
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


def _selection(arguments: Sequence[str]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the options that may change which tests run, and the paths or tests named."""
    options, places = set(), set()
    for before, word in pairwise(("", *arguments)):
        if before == "-p" or (word.startswith("-") and word != "-p"):
            option = f"-p {word}" if before == "-p" else word
            if not _SAME_TESTS.fullmatch(option):
                options.add(option)
        elif word != "-p" and before not in _OPTIONS_WITH_VALUE:
            places.add(word.removeprefix("./").rstrip("/") or ".")
    return frozenset(options), frozenset(places)


def _is_part_of(name: str, place: str) -> bool:
    """Return True if a test name begins with a place: a path or a part of a test's name."""
    return name.startswith(place) and not re.match(r"[\w-]", name[len(place) :])
