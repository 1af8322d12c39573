"""Which simple commands only look: the table of commands that need no question.

A command is in the table when nothing it can do, with the options it is given, changes a file,
starts another program or talks to the network. What it may look at is judged elsewhere: `paths`
names the words of a command that may be files.
"""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from .patterns import expand
from .syntax import Part, Word
from .wrappers import names


@dataclass(frozen=True, slots=True)
class _Safe:
    """`short` and `long` are the options that take a command off the table, `lists` a long one that
    has it read files which are not named; `paths`: whether its arguments may name files; `check`
    has the last word on the arguments."""

    short: str = ""
    long: tuple[str, ...] = ()
    lists: str = ""
    paths: bool = True
    check: Callable[[Sequence[str]], bool] | None = None

    @property
    def strict(self) -> bool:
        """Whether an argument that is not known beforehand could be one that does harm."""
        return bool(self.short or self.long or self.check)

    def allows(self, arguments: Sequence[str]) -> bool:
        return not any(self._forbids(word) for word in arguments) and (
            self.check is None or self.check(arguments)
        )

    def _forbids(self, word: str) -> bool:
        """Long options may be cut short (`--out`), short ones stand in bundles (`-uo`)."""
        if word.startswith("--"):
            name = word.partition("=")[0]
            long = (*self.long, self.lists)
            return len(name) > 2 and any(each.startswith(name) for each in long)
        return word.startswith("-") and any(letter in word for letter in self.short)


_DATE_SHOWN = re.compile(r"-u|-R|-I\w*|--(?:utc|iso-8601|rfc-\w+|date)(?:=.*)?|\+.*")


def _only_shows_date(arguments: Sequence[str]) -> bool:
    return all(_DATE_SHOWN.fullmatch(word) for word in arguments)


def _no_second_file(arguments: Sequence[str]) -> bool:
    end = arguments.index("--") if "--" in arguments else len(arguments)
    before = [word for word in arguments[:end] if word == "-" or not word.startswith("-")]
    return len(before) + len(arguments[end + 1 :]) <= 1


def _takes_nothing(arguments: Sequence[str]) -> bool:
    return not arguments


def _stores_nothing(arguments: Sequence[str]) -> bool:
    """`%n` in a format of printf sets a variable, PATH for one."""
    return not any(re.search(r"%[-+ #0'*.\d]*[hlLjztq]*n", word) for word in arguments)


def _are_numbers(arguments: Sequence[str]) -> bool:
    return all(word.isdecimal() for word in arguments)


def _loads_no_module(arguments: Sequence[str]) -> bool:
    """jq reads a module from any folder that the program names."""
    return not any(re.search(r"\b(?:import|include|modulemeta)\b", word) for word in arguments)


FIND_BEYOND = ("-exec", "-ok", "-delete", "-fprint", "-fls", "-files0")


def _only_finds(arguments: Sequence[str]) -> bool:
    return not any(word.startswith(FIND_BEYOND) for word in arguments)


_SED_PRINT = re.compile(r"(?:(?:\d+|\$)(?:,\+?(?:\d+|\$))?p;?)+")


def _only_prints_lines(arguments: Sequence[str]) -> bool:
    return (
        len(arguments) >= 2
        and arguments[0] == "-n"
        and bool(_SED_PRINT.fullmatch(arguments[1]))
        and not any(word.startswith("-") for word in arguments[2:])
    )


def _only_looks_up(arguments: Sequence[str]) -> bool:
    return arguments[:1] in (["-v"], ["-V"])


def _only_sets_strictness(arguments: Sequence[str]) -> bool:
    return bool(arguments) and all(
        re.fullmatch(r"[-+][euxo]+|pipefail|errexit|nounset|xtrace", word) for word in arguments
    )


def _one_folder(arguments: Sequence[str]) -> bool:
    return len(arguments) == 1 and not arguments[0].startswith("-")


def _asks_version(arguments: Sequence[str]) -> bool:
    return list(arguments) in (["--version"], ["-V"], ["-v"])


def _evaluates_nothing(arguments: Sequence[str]) -> bool:
    return not any(word in ("-v", "-R") for word in arguments)


_GIT_LOOKS = names(
    "status diff log show shortlog blame describe rev-parse rev-list ls-files ls-tree cat-file "
    "name-rev merge-base for-each-ref show-ref grep count-objects diff-tree diff-index diff-files "
    "whatchanged version check-ignore cherry range-diff"
)
_GIT_RUNS = _Safe(
    short="O",
    long=(
        "--output", "--ext-diff", "--textconv", "--filters", "--open-files-in-pager", "--exec",
        "--help", "--submodule",
    ),
)  # fmt: skip
_LISTS = r"--(?:sort|format|points-at|contains|no-contains|merged|no-merged|column|color)(?:=.*)?"
_BRANCH = re.compile(rf"-a|-r|-v|-vv|--list|--all|--remotes|--verbose|--show-current|{_LISTS}")
_TAG = re.compile(rf"-l|--list|-n\d*|{_LISTS}")
_SELECTS = ("--list", "--contains", "--no-contains", "--merged", "--no-merged", "--points-at")


def _git_lists(known: re.Pattern[str], words: Sequence[str], selects: tuple[str, ...]) -> bool:
    """Listing branches or tags: a bare name would create one, unless an option selects."""
    named = [word for word in words if not word.startswith("-")]
    options = [word for word in words if word.startswith("-")]
    selecting = any(option.partition("=")[0] in selects for option in options)
    return all(known.fullmatch(option) for option in options) and (not named or selecting)


_GIT_LISTS: dict[str, Callable[[Sequence[str]], bool]] = {
    "branch": lambda words: _git_lists(_BRANCH, words, _SELECTS),
    "tag": lambda words: _git_lists(_TAG, words, (*_SELECTS, "-l")),
    "remote": lambda words: list(words) in ([], ["-v"]) or words[0] == "get-url",
    "stash": lambda words: words[:1] in (["list"], ["show"]),
    "reflog": lambda words: words[:1] in ([], ["show"]),
    "worktree": lambda words: words[:1] == ["list"],
    "config": lambda words: list(words) in (["--list"], ["-l"]) or (
        len(words) == 2 and words[0] == "--get"
    ),
}  # fmt: skip


def _git_only_looks(arguments: Sequence[str]) -> bool:
    words = list(arguments)
    while words and words[0] in ("--no-pager", "-P", "--no-optional-locks"):
        del words[0]
    if words == ["--version"]:
        return True
    if not words or not _GIT_RUNS.allows(words):
        return False
    lists = _GIT_LISTS.get(words[0])
    return lists(words[1:]) if lists else words[0] in _GIT_LOOKS


_FILES, _TEXT = _Safe(), _Safe(paths=False)
_TABLE: dict[str, _Safe] = {
    **dict.fromkeys(
        names(
            "ls cat head tail grep egrep fgrep stat cut nl tac rev fold expand paste column "
            "cmp comm diff realpath readlink md5sum sha1sum sha256sum cksum od hexdump"
        ),
        _FILES,
    ),
    **dict.fromkeys(
        names(
            "pwd echo true false : which type basename dirname tr seq sleep df id whoami uname "
            "nproc"
        ),
        _TEXT,
    ),
    **dict.fromkeys(("wc", "du"), _Safe(lists="--files0-from")),
    "test": _Safe(paths=False, check=_evaluates_nothing),
    "arch": _Safe(paths=False, check=_takes_nothing),  # on macOS it starts what it is given
    "printf": _Safe(short="v", paths=False, check=_stores_nothing),
    "date": _Safe(paths=False, check=_only_shows_date),
    "command": _Safe(paths=False, check=_only_looks_up),
    "set": _Safe(paths=False, check=_only_sets_strictness),
    "cd": _Safe(check=_one_folder),
    "rg": _Safe("z", ("--pre", "--hostname-bin", "--search-zip")),
    "find": _Safe(check=_only_finds),
    "file": _Safe("CzZf", ("--compile", "--uncompress", "--uncompress-noreport", "--files-from")),
    "sort": _Safe(
        "oT", ("--output", "--compress-program", "--temporary-directory", "--files0-from")
    ),
    "uniq": _Safe(check=_no_second_file),
    **dict.fromkeys(("exit", "wait"), _Safe(paths=False, check=_are_numbers)),
    "sed": _Safe(check=_only_prints_lines),
    "jq": _Safe("Lf", ("--library-path", "--from-file"), check=_loads_no_module),
    "tree": _Safe("oR"),
    "git": _Safe(check=_git_only_looks),
    **dict.fromkeys(("python", "python3", "node"), _Safe(check=_asks_version)),
}
_GREPS = frozenset(("grep", "egrep", "fgrep"))
# The first operand of these is a pattern, unless an option brings the pattern, or takes the
# operand for a file.
_SEARCHES = _GREPS | {"rg"}
_TAKES_OPERAND = re.compile(r"-(?!-).*[ef].*|--(?:re|f|exclude-f|ignore-f).*")
_BEFORE_FILE = frozenset("fmSX")  # short options whose value is a file, with some command


def may_look(name: str) -> bool:
    """Whether a command only looks with some arguments."""
    return name in _TABLE


def reads_files(name: str) -> bool:
    """Whether a command is known to read the files that it is given."""
    return name in _TABLE and _TABLE[name].paths


_NEAR = names("rg sort tree file uniq wc du")


def goes_beyond_looking(name: str) -> Callable[[Sequence[str]], bool] | None:
    """For a command that writes files or starts programs with few of its options only: whether
    it does with these arguments."""
    return (lambda arguments: not _TABLE[name].allows(arguments)) if name in _NEAR else None


def is_read_only(part: Part) -> bool:
    """Whether the command changes nothing, wherever the files are that it names."""
    safe = _TABLE.get(part.name)
    if safe is None or part.doubt:
        return False
    unknown = [word for word in part.words[1:] if not word.fixed]
    if unknown and (safe.strict or safe.paths):
        return False
    if any(word.glob and _may_turn(word.text, safe) for word in part.words[1:]):
        return False
    return safe.allows([word.text for word in part.words[1:]])


def _may_turn(pattern: str, safe: _Safe) -> bool:
    """Whether what a pattern finds may do harm: a file's name may be an option (`sort *` in a
    folder that holds one named `-oX`), and there may be more than one."""
    if safe.check:
        return True
    if re.fullmatch(r"--[\w-]+=[^/]*", pattern):
        return False
    return pattern[0] in "*?[-" if safe.strict else safe.paths and pattern[0] == "-"


def searched(part: Part) -> list[Word]:
    """The folders in which it reads files that it is not given by name; none when it reads just
    what it is told. The current one is among them unless it is certain that others are meant."""
    options, operands = _options_and_operands(part)
    if part.name == "diff":  # it goes into folders unasked, one level at least
        return list(paths(part))
    recursive = part.name in _GREPS and any(_RECURSIVE.fullmatch(word.text) for word in options)
    if part.name == "git":
        if any(word.text == "diff" for word in operands):  # perhaps of folders that git knows not
            return operands
        recursive = any(word.text == "grep" for word in operands)
    if not recursive and part.name != "rg":
        return []
    flags = _FLAGS.get(part.name)
    if operands and flags and all(re.fullmatch(flags, word.text) for word in options):
        return operands
    return [*operands, Word(".")]


_RECURSIVE = re.compile(r"-(?!-).*[drR].*|--(?:de|di|r).*")
# Options that surely take no operand for their value.
_FLAGS = {
    **dict.fromkeys(_GREPS, r"-[acEFGHhiIlLnoPqRrsUvwxZz]+|--[\w-]+=.*"),
    "rg": r"-[acFhHiIlnNopPqsSuUvwx]+|--[\w-]+=.*",
}
_FOLLOWING = {
    **dict.fromkeys(_GREPS, r"-(?!-).*R.*|--de.*"),
    "rg": r"-(?!-).*L.*|--follow",
}


def follows_links(part: Part, bases: Sequence[str]) -> bool:
    """Whether it may read what links below a folder lead to, wherever that is. `bases` are the
    folders that its words may be relative to."""
    if part.name == "diff":
        return any(_is_folder(word, base) for word in paths(part) for base in bases)
    following = _FOLLOWING.get(part.name)
    return following is not None and any(
        re.fullmatch(following, word.text) for word in part.words[1:]
    )


def _is_folder(word: Word, base: str) -> bool:
    """Whether a word names a folder, or may."""
    found = expand(word.text, base) if word.glob else [word.text]
    if found is None or "\0" in word.text:
        return True
    there = (os.path.join(base, os.path.expanduser(path)) for path in found)  # noqa: PTH111, PTH118
    return any(os.path.isdir(path) for path in there)  # noqa: PTH112


def paths(part: Part) -> Iterator[Word]:
    """The arguments that may be files, as far as they can be seen, glued ones (`--file=x`)
    included. A command that is known to take no files has none."""
    safe = _TABLE.get(part.name)
    if safe and not safe.paths:
        return
    options, operands = _options_and_operands(part)
    for word in options:
        for value in _glued(word.text):
            yield Word(value, word.fixed, word.glob)
    for word in operands:
        if word.text:
            yield word
        for separator in ("=", ":"):  # dd if=x, git show HEAD:x
            if tail := word.text.partition(separator)[2]:
                yield Word(tail, word.fixed, word.glob)


def _options_and_operands(part: Part) -> tuple[list[Word], list[Word]]:
    """Words that look like options, and the others, with all behind `--`; a pattern to search for
    is left out. The value of an option may be among the operands."""
    words = part.words[1:]
    end = next((i for i, word in enumerate(words) if word.text == "--"), len(words))
    options = [word for word in words[:end] if word.text.startswith("-")]
    operands = [word for word in words[:end] if not word.text.startswith("-")]
    operands += words[end + 1 :]
    if part.name in _SEARCHES and not any(_TAKES_OPERAND.fullmatch(w.text) for w in options):
        del operands[:1]
    return options, operands


def _glued(option: str) -> Iterator[str]:
    """The values that may be glued to an option: `--file=x`, `-fx`, `-nfx`."""
    if value := option.partition("=")[2]:
        yield value
    if option.startswith("--"):
        return
    for place, letter in enumerate(option[1:], 2):
        if not letter.isalnum():
            return
        if letter in _BEFORE_FILE and option[place:]:
            yield option[place:]
