"""Which simple commands only look: the table of commands that need no question.

A command is in the table when nothing it can do, with the options it is given, changes a file,
starts another program or talks to the network. What it may look at is judged elsewhere: `paths`
names the words of a command that may be files.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from .syntax import Part, Word
from .wrappers import names


@dataclass(frozen=True, slots=True)
class _Safe:
    """`short` and `long` are the options that take a command off the table; `paths`: whether its
    arguments may name files; `check` has the last word on the arguments."""

    short: str = ""
    long: tuple[str, ...] = ()
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
            return len(name) > 2 and any(each.startswith(name) for each in self.long)
        return word.startswith("-") and any(letter in word for letter in self.short)


_DATE_SHOWN = re.compile(r"-u|-R|-I\w*|--(?:utc|iso-8601|rfc-\w+|date)(?:=.*)?|\+.*")


def _only_shows_date(arguments: Sequence[str]) -> bool:
    return all(_DATE_SHOWN.fullmatch(word) for word in arguments)


def _no_second_file(arguments: Sequence[str]) -> bool:
    return sum(not word.startswith("-") for word in arguments) <= 1


def _only_finds(arguments: Sequence[str]) -> bool:
    return not any(
        word.startswith(("-exec", "-ok", "-delete", "-fprint", "-fls")) for word in arguments
    )


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
    long=("--output", "--ext-diff", "--textconv", "--filters", "--open-files-in-pager", "--exec"),
)
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
            "ls cat head tail wc grep egrep fgrep stat du cut nl tac rev fold expand paste column "
            "cmp comm diff realpath readlink md5sum sha1sum sha256sum cksum od hexdump"
        ),
        _FILES,
    ),
    **dict.fromkeys(
        names(
            "pwd echo true false : which type basename dirname tr seq sleep df id whoami uname "
            "nproc arch"
        ),
        _TEXT,
    ),
    "test": _Safe(paths=False, check=_evaluates_nothing),
    "printf": _Safe(short="v", paths=False),
    "date": _Safe(paths=False, check=_only_shows_date),
    "command": _Safe(paths=False, check=_only_looks_up),
    "set": _Safe(paths=False, check=_only_sets_strictness),
    "cd": _Safe(check=_one_folder),
    "rg": _Safe("z", ("--pre", "--hostname-bin", "--search-zip")),
    "find": _Safe(check=_only_finds),
    "file": _Safe("CzZ", ("--compile", "--uncompress", "--uncompress-noreport")),
    "sort": _Safe("oT", ("--output", "--compress-program", "--temporary-directory")),
    "uniq": _Safe(check=_no_second_file),
    "sed": _Safe(check=_only_prints_lines),
    "jq": _Safe("Lf", ("--library-path", "--from-file")),
    "tree": _Safe("oR"),
    "git": _Safe(check=_git_only_looks),
    **dict.fromkeys(("python", "python3", "node"), _Safe(check=_asks_version)),
}
# Their first argument is a pattern, unless an option brings the pattern.
_SEARCHES = frozenset(("grep", "egrep", "fgrep", "rg"))
_BRINGS_PATTERN = re.compile(r"-[A-Za-z]*[ef].*|--(?:re|f).*")
_GLUED_FILE = re.compile(r"-[A-Za-z]*[fXm](?P<value>[/~.].*)")


def is_read_only(part: Part) -> bool:
    """Whether the command changes nothing, wherever the files are that it names."""
    safe = _TABLE.get(part.name)
    if safe is None or part.doubt:
        return False
    unknown = [word for word in part.words[1:] if not word.fixed]
    if unknown and (safe.strict or safe.paths):
        return False
    # A file's name may be an option: `sort *` in a folder that holds one named `-oX`.
    if safe.strict and any(word.glob and word.text[0] in "*?[" for word in part.words[1:]):
        return False
    return safe.allows([word.text for word in part.words[1:]])


def reads_below(part: Part) -> bool:
    """Whether it reads what is below a folder without being given its files by name."""
    if part.name == "rg":
        return True
    words = [word.text for word in part.words[1:]]
    if part.name == "git":
        return "grep" in words
    recursive = r"-[A-Za-z]*[rR][A-Za-z]*|--(?:de|r).*"
    return part.name in ("grep", "egrep", "fgrep", "diff") and any(
        re.fullmatch(recursive, word) for word in words
    )


def paths(part: Part) -> Iterator[Word]:
    """The arguments that may be files, as far as they can be seen, glued ones (`--file=x`)
    included. A command that is known to take no files has none."""
    safe = _TABLE.get(part.name)
    if safe and not safe.paths:
        return
    arguments = list(part.words[1:])
    if part.name in _SEARCHES:
        arguments = _without_pattern(arguments)
    for word in arguments:
        if word.text.startswith("-"):
            glued = _GLUED_FILE.fullmatch(word.text)
            value = glued["value"] if glued else word.text.partition("=")[2]
            if value:
                yield Word(value, word.fixed, word.glob)
            continue
        if word.text:
            yield word
        for separator in ("=", ":"):  # dd if=x, git show HEAD:x
            if tail := word.text.partition(separator)[2]:
                yield Word(tail, word.fixed, word.glob)


def _without_pattern(arguments: list[Word]) -> list[Word]:
    for place, word in enumerate(arguments):
        if _BRINGS_PATTERN.fullmatch(word.text):
            return arguments
        if not word.text.startswith("-"):
            return arguments[:place] + arguments[place + 1 :]
    return arguments
