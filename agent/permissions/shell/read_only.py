"""The simple commands that only look: the table of commands that need no question.

A command is in the table when nothing it can do, with the options it is given, changes a file,
starts another program or talks to the network. What it may look at is judged elsewhere:
`path_arguments` returns the words of a command that may be files. `touched_paths` serves to watch
what a command changes; no permission depends on it.
"""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ..paths import expand_glob
from .parser import Script, SimpleCommand, Word
from .text_programs import awk_only_prints, sed_only_prints
from .wrappers import name_set

MAX_TOUCHED_PATHS = 64  # of one command
# Commands that work on everything in a folder that they are given.
_WHOLE_FOLDER_COMMANDS = name_set("rm mv cp ln install rsync tar unzip chmod chown")


@dataclass(frozen=True, slots=True)
class _ReadOnlyForm:
    """The form in which a command only looks."""

    short: str = ""  # letters of options with which it does more
    long: tuple[str, ...] = ()  # long options with which it does more
    lists: str = ""  # a long option that has it read files which are not named
    paths: bool = True  # its arguments may name files
    check: Callable[[Sequence[str]], bool] | None = None  # has the last word on the arguments

    @property
    def strict(self) -> bool:
        """Whether an argument that is not known beforehand could be one that does harm."""
        return bool(self.short or self.long or self.check)

    def allows(self, arguments: Sequence[str]) -> bool:
        long = (*self.long, self.lists)
        if any(is_option(word, long, self.short) for word in arguments):
            return False
        return self.check is None or self.check(arguments)


def is_option(word: str, long: Sequence[str], short: str) -> bool:
    """Tell whether a word may be one of these options. Long options may be cut short (`--out`),
    short ones stand in bundles (`-uo`)."""
    if word.startswith("--"):
        name = word.partition("=")[0]
        return len(name) > 2 and any(each.startswith(name) for each in long)
    return word.startswith("-") and any(letter in word for letter in short)


FIND_SIDE_EFFECTS = ("-exec", "-ok", "-delete", "-fprint", "-fls", "-files0")
_STRICTNESS = re.compile(r"[-+][euxo]+|pipefail|errexit|nounset|xtrace")
_DATE_SHOWN = re.compile(r"-u|-R|-I\w*|--(?:utc|iso-8601|rfc-\w+|date)(?:=.*)?|\+.*")


def _no_second_file(arguments: Sequence[str]) -> bool:
    end = arguments.index("--") if "--" in arguments else len(arguments)
    before = [word for word in arguments[:end] if word == "-" or not word.startswith("-")]
    return len(before) + len(arguments[end + 1 :]) <= 1


def _stores_nothing(arguments: Sequence[str]) -> bool:
    """Tell whether a printf format sets no variable, such as PATH, with `%n`."""
    return not any(re.search(r"%[-+ #0'*.\d]*[hlLjztq]*n", word) for word in arguments)


def _loads_no_module(arguments: Sequence[str]) -> bool:
    """Tell whether a jq program reads no module, which may come from any folder that it names."""
    return not any(re.search(r"\b(?:import|include|modulemeta)\b", word) for word in arguments)


_PS_WORD = re.compile(
    r"-[efAaFlNT]+|a?u?x|aux?f?|axu?f?|--(?:no-headers|forest|sort=[-+\w,%]+)|\d+(?:,\d+)*"
)
_PS_VALUED = ("-o", "-p", "-u", "-C", "--pid", "--format")


def _shows_processes(arguments: Sequence[str]) -> bool:
    """Tell whether ps shows no environment of a process, which may hold keys (`ps eww`)."""
    words = list(arguments)
    while words:
        word = words.pop(0)
        if word in _PS_VALUED and words and re.fullmatch(r"(?!.*env)[\w,=%.-]+", words[0]):
            del words[0]
        elif not _PS_WORD.fullmatch(word):
            return False
    return True


_GIT_READ_ONLY = name_set(
    "status diff log show shortlog blame describe rev-parse rev-list ls-files ls-tree cat-file "
    "name-rev merge-base for-each-ref show-ref grep count-objects diff-tree diff-index diff-files "
    "whatchanged version check-ignore cherry range-diff"
)
_GIT_OPTIONS = _ReadOnlyForm(
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
    """Tell whether branches or tags are only listed: a bare name creates one unless it selects."""
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


def _is_git_read_only(arguments: Sequence[str]) -> bool:
    words = list(arguments)
    while words and words[0] in ("--no-pager", "-P", "--no-optional-locks"):
        del words[0]
    if words == ["--version"]:
        return True
    if not words or not _GIT_OPTIONS.allows(words):
        return False
    lists = _GIT_LISTS.get(words[0])
    return lists(words[1:]) if lists else words[0] in _GIT_READ_ONLY


_READS_FILES, _READS_NO_FILES = _ReadOnlyForm(), _ReadOnlyForm(paths=False)
_TABLE: dict[str, _ReadOnlyForm] = {
    **dict.fromkeys(
        name_set(
            "ls cat head tail grep egrep fgrep stat cut nl tac rev fold expand paste column "
            "cmp comm diff realpath readlink md5sum sha1sum sha256sum cksum od hexdump"
        ),
        _READS_FILES,
    ),
    **dict.fromkeys(
        name_set(
            "pwd echo true false : which type basename dirname tr seq sleep df id whoami uname "
            "nproc groups lscpu free"
        ),
        _READS_NO_FILES,
    ),
    **dict.fromkeys(("wc", "du"), _ReadOnlyForm(lists="--files0-from")),
    "test": _ReadOnlyForm(paths=False, check=lambda words: not {"-v", "-R"} & set(words)),
    # On macOS, arch starts the program that it is given.
    "arch": _ReadOnlyForm(paths=False, check=lambda words: not words),
    "printf": _ReadOnlyForm(short="v", paths=False, check=_stores_nothing),
    "date": _ReadOnlyForm(paths=False, check=lambda words: all(map(_DATE_SHOWN.fullmatch, words))),
    "command": _ReadOnlyForm(paths=False, check=lambda words: words[:1] in (["-v"], ["-V"])),
    "set": _ReadOnlyForm(
        paths=False, check=lambda words: bool(words) and all(map(_STRICTNESS.fullmatch, words))
    ),
    "cd": _ReadOnlyForm(check=lambda words: len(words) == 1 and not words[0].startswith("-")),
    "rg": _ReadOnlyForm("z", ("--pre", "--hostname-bin", "--search-zip")),
    "find": _ReadOnlyForm(
        check=lambda words: not any(word.startswith(FIND_SIDE_EFFECTS) for word in words)
    ),
    "file": _ReadOnlyForm(
        "CzZf", ("--compile", "--uncompress", "--uncompress-noreport", "--files-from")
    ),
    "sort": _ReadOnlyForm(
        "oT", ("--output", "--compress-program", "--temporary-directory", "--files0-from")
    ),
    "uniq": _ReadOnlyForm(check=_no_second_file),
    **dict.fromkeys(
        ("exit", "wait"),
        _ReadOnlyForm(paths=False, check=lambda words: all(map(str.isdecimal, words))),
    ),
    "sed": _ReadOnlyForm(check=sed_only_prints),
    **dict.fromkeys(name_set("awk gawk mawk nawk"), _ReadOnlyForm(check=awk_only_prints)),
    "ps": _ReadOnlyForm(paths=False, check=_shows_processes),
    "uptime": _ReadOnlyForm(paths=False, check=lambda words: set(words) <= {"-p", "-s"}),
    "hostname": _ReadOnlyForm(
        paths=False, check=lambda words: set(words) <= {"-s", "-f", "-d", "-i", "-I", "-A"}
    ),
    "jq": _ReadOnlyForm("Lf", ("--library-path", "--from-file"), check=_loads_no_module),
    "tree": _ReadOnlyForm("oR"),
    "git": _ReadOnlyForm(check=_is_git_read_only),
    **dict.fromkeys(
        ("python", "python3", "node"),
        _ReadOnlyForm(check=lambda words: list(words) in (["--version"], ["-V"], ["-v"])),
    ),
}
_MOSTLY_READ_ONLY = name_set("rg sort tree file uniq wc du")
_GREPS = frozenset(("grep", "egrep", "fgrep"))
# The first operand of these is a pattern, unless an option brings the pattern, or takes the
# operand for a file.
_SEARCHES = _GREPS | {"rg", "sed", "awk", "gawk", "mawk", "nawk"}
_TAKES_OPERAND = re.compile(r"-(?!-).*[ef].*|--(?:re|f|exclude-f|ignore-f).*")
_FILE_OPTION_LETTERS = frozenset("fmSX")  # short options whose value is a file, with some command
_RECURSIVE = re.compile(r"-(?!-).*[drR].*|--(?:de|di|r).*")
# Options that surely take no operand for their value.
_VALUELESS_OPTIONS = {
    **dict.fromkeys(_GREPS, r"-[acEFGHhiIlLnoPqRrsUvwxZz]+|--[\w-]+=.*"),
    "rg": r"-[acFhHiIlnNopPqsSuUvwx]+|--[\w-]+=.*",
}
_LINK_FOLLOWING_OPTIONS = {
    **dict.fromkeys(_GREPS, r"-(?!-).*R.*|--de.*"),
    "rg": r"-(?!-).*L.*|--follow",
}


def has_read_only_form(name: str) -> bool:
    """Tell whether a command only looks with some arguments."""
    return name in _TABLE


def reads_files(name: str) -> bool:
    """Tell whether a command is known to read the files that it is given."""
    return name in _TABLE and _TABLE[name].paths


def side_effect_check(name: str) -> Callable[[Sequence[str]], bool] | None:
    """Return, for a command that writes files or starts programs with few of its options only, the
    function that tells whether arguments do so; None for other commands."""
    if name not in _MOSTLY_READ_ONLY:
        return None
    return lambda arguments: not _TABLE[name].allows(arguments)


def is_read_only(part: SimpleCommand) -> bool:
    """Tell whether the command changes nothing, wherever the files are that it names."""
    safe = _TABLE.get(part.name)
    if safe is None or part.doubt:
        return False
    unknown = [word for word in part.words[1:] if not word.fixed]
    if part.name == "printf" and part.words[1:2] and _is_plain_format(part.words[1]):
        return True
    if unknown and (safe.strict or safe.paths):
        return False
    if any(word.glob and _glob_may_harm(word.text, safe) for word in part.words[1:]):
        return False
    return safe.allows([word.text for word in part.words[1:]])


def _is_plain_format(word: Word) -> bool:
    """Tell whether a printf format is known, is no option and sets no variable."""
    return word.fixed and not word.glob and word.text[:1] != "-" and _stores_nothing([word.text])


def _glob_may_harm(pattern: str, safe: _ReadOnlyForm) -> bool:
    """Tell whether what a pattern finds may do harm. A file's name may be an option (`sort *` in a
    folder that holds one named `-oX`), and there may be more than one file."""
    if safe.check:
        return True
    if re.fullmatch(r"--[\w-]+=[^/]*", pattern):
        return False
    return pattern[0] in "*?[-" if safe.strict else safe.paths and pattern[0] == "-"


def searched_folders(part: SimpleCommand) -> list[Word]:
    """Return the folders in which a command reads files that it is not given by name; [] if it
    reads only what it is told. The current folder is among them unless it is certain that others
    are meant."""
    options, operands = _options_and_operands(part)
    if part.name == "diff":  # it goes into folders unasked, one level at least
        return list(path_arguments(part))
    recursive = part.name in _GREPS and any(_RECURSIVE.fullmatch(word.text) for word in options)
    if part.name == "git":
        if any(word.text == "diff" for word in operands):  # perhaps of folders that git knows not
            return operands
        recursive = any(word.text == "grep" for word in operands)
    if not recursive and part.name != "rg":
        return []
    flags = _VALUELESS_OPTIONS.get(part.name)
    if operands and flags and all(re.fullmatch(flags, word.text) for word in options):
        return operands
    return [*operands, Word(".")]


def follows_links(part: SimpleCommand, bases: Sequence[str]) -> bool:
    """Tell whether a command may read what links below a folder lead to, wherever that is. `bases`
    are the folders that its words may be relative to."""
    if part.name == "diff":
        return any(_may_be_folder(word, base) for word in path_arguments(part) for base in bases)
    following = _LINK_FOLLOWING_OPTIONS.get(part.name)
    return following is not None and any(
        re.fullmatch(following, word.text) for word in part.words[1:]
    )


def _may_be_folder(word: Word, base: str) -> bool:
    """Tell whether a word names a folder, or may."""
    found = expand_glob(word.text, base) if word.glob else [word.text]
    if found is None or "\0" in word.text:
        return True
    there = (os.path.join(base, os.path.expanduser(path)) for path in found)  # noqa: PTH111, PTH118
    return any(os.path.isdir(path) for path in there)  # noqa: PTH112


def path_arguments(part: SimpleCommand) -> Iterator[Word]:
    """Yield the arguments that may be files, as far as they can be seen, including glued ones
    (`--file=x`). For a command that is known to take no files these are the patterns, for which the
    shell lists folders."""
    safe = _TABLE.get(part.name)
    if safe and not safe.paths:
        yield from (word for word in part.words[1:] if word.glob)
        return
    options, operands = _options_and_operands(part)
    for word in options:
        for value in _glued_values(word.text):
            yield Word(value, word.fixed, word.glob)
    for word in operands:
        if word.text:
            yield word
        for separator in ("=", ":"):  # dd if=x, git show HEAD:x
            if tail := word.text.partition(separator)[2]:
                yield Word(tail, word.fixed, word.glob)


def _options_and_operands(part: SimpleCommand) -> tuple[list[Word], list[Word]]:
    """Return the words that look like options, and the others with all behind `--`. A pattern to
    search for is left out. The value of an option may be among the operands."""
    words = part.words[1:]
    end = next((i for i, word in enumerate(words) if word.text == "--"), len(words))
    options = [word for word in words[:end] if word.text.startswith("-")]
    operands = [word for word in words[:end] if not word.text.startswith("-")]
    operands += words[end + 1 :]
    if part.name in _SEARCHES and not any(_TAKES_OPERAND.fullmatch(w.text) for w in options):
        del operands[:1]
    return options, operands


def _glued_values(option: str) -> Iterator[str]:
    """Yield the values that may be glued to an option: `--file=x`, `-fx`, `-nfx`."""
    if value := option.partition("=")[2]:
        yield value
    if option.startswith("--"):
        return
    for place, letter in enumerate(option[1:], 2):
        if not letter.isalnum():
            return
        if letter in _FILE_OPTION_LETTERS and option[place:]:
            yield option[place:]


def changes_no_file(script: Script) -> bool:
    """Tell whether it is certain that a command changes no file."""
    return not (script.doubt or script.writes) and all(
        part.wrapper or part.feeds or is_read_only(part) for part in script.parts
    )


def touched_paths(script: Script, cwd: str) -> list[str]:
    """Return the absolute paths of what a command may change: files, existing or not, and the
    folders that it works on as a whole. Links are followed except in the last component."""
    found: dict[str, None] = {}
    for path, whole in _candidate_paths(script, cwd):
        if len(found) == MAX_TOUCHED_PATHS:
            break
        folder, name = os.path.split(os.path.normpath(path))
        there = os.path.isdir(path) and not os.path.islink(path)  # noqa: PTH112, PTH114
        if name and _can_exist(folder) and (whole or not there):
            found[os.path.join(os.path.realpath(folder), name)] = None  # noqa: PTH118
    return list(found)


def _can_exist(folder: str) -> bool:
    """Tell whether a folder exists, or could be created."""
    while not os.path.lexists(folder) and folder != os.path.dirname(folder):  # noqa: PTH120
        folder = os.path.dirname(folder)  # noqa: PTH120
    return os.path.isdir(folder)  # noqa: PTH112


def _candidate_paths(script: Script, cwd: str) -> Iterator[tuple[str, bool]]:
    """Yield what may be a path, from every folder it may start from, and whether a folder counts
    whole."""
    bases = [cwd]
    for part in script.parts:
        if part.name in ("cd", "pushd") and len(part.words) == 2:
            bases += [path for base in bases[-2:] for path in _absolute_paths(part.words[1], base)]
    words = [(word, False) for word in script.writes]
    for part in script.parts:
        if part.name != "cd" and not is_read_only(part):
            whole = part.name.rpartition("/")[2] in _WHOLE_FOLDER_COMMANDS
            words += [(word, whole) for word in path_arguments(part)]
    for word, whole in words:
        for base in dict.fromkeys(bases):
            yield from ((path, whole) for path in _absolute_paths(word, base))


def _absolute_paths(word: Word, base: str) -> list[str]:
    if not word.fixed or not word.text or "\0" in word.text:
        return []
    texts = (expand_glob(word.text, base) or []) if word.glob else [word.text]
    return [os.path.join(base, os.path.expanduser(text)) for text in texts]  # noqa: PTH111, PTH118
