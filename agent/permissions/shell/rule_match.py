"""The match of a command's words with a rule.

A rule that allows a kind of command does not allow stray words, which make it do more. A rule that
denies or asks means its options in any order: `rm -rf` is `rm -r -f x`, `rm x -fr` and `rm
--recursive --force x` too.
"""

import re
from collections.abc import Callable, Sequence
from typing import Literal

from .parser import SimpleCommand, Word
from .read_only import FIND_SIDE_EFFECTS, is_option, side_effect_check
from .wrappers import name_set

# Tells of the words before a word, and of that word, whether it is a stray one.
StrayTest = Callable[[Sequence[Word], str], bool]
RuleMatch = Literal["yes", "maybe", "no"]  # maybe: what decides is known only when it runs

_GIT_GLOBAL_OPTIONS = name_set("-c --config-env --exec-path --help --git-dir --work-tree")
_GIT_LONG_OPTIONS = {
    **dict.fromkeys(
        name_set(
            "diff log show whatchanged reflog shortlog stash format-patch diff-tree diff-index "
            "diff-files blame range-diff rev-list"
        ),
        ("--output", "--ext-diff", "--textconv", "--no-index", "--submodule", "--help"),
    ),
    "grep": ("--open-files-in-pager", "--ext-grep", "--textconv", "--help"),
    "cat-file": ("--textconv", "--filters", "--help"),
    "status": ("--help",),
    "rebase": ("--exec", "--help"),
    "clone": ("--upload-pack", "--config", "--template", "--help"),
    **dict.fromkeys(("fetch", "pull", "ls-remote"), ("--upload-pack", "--help")),
    "push": ("--receive-pack", "--exec", "--help"),
    "archive": ("--exec", "--output", "--remote", "--help"),
    "format-patch": (
        "--output", "--output-directory", "--ext-diff", "--textconv", "--no-index", "--help",
    ),
}  # fmt: skip
_GIT_SHORT_OPTIONS = {"grep": "O", "rebase": "x", "clone": "uc", "archive": "o",
                      "format-patch": "o"}  # fmt: skip
# Subcommands that run nothing but git itself, the project's hooks, and what their own options
# name. Others, and names that are no subcommand of git's, may run whatever settings say.
_GIT_KNOWN = name_set(
    "add am apply archive blame branch cat-file check-ignore checkout cherry cherry-pick clean "
    "clone commit count-objects describe diff diff-files diff-index diff-tree fetch for-each-ref "
    "format-patch fsck gc grep init log ls-files ls-remote ls-tree merge merge-base mv name-rev "
    "notes pull push range-diff rebase reflog reset restore rev-list rev-parse revert rm shortlog "
    "show show-branch show-ref sparse-checkout stash status switch tag version whatchanged "
    "worktree write-tree"
)
_GIT_VALUED_OPTIONS = ("-C", "-c", "--git-dir", "--work-tree", "--namespace", "--config-env")
_MAKES = name_set("make gmake")
_MAKE_PATH_OPTIONS = ("--eval", "--file", "--makefile", "--directory", "--include-dir")
_MAKE_VARIABLE = re.compile(r"(?:\.?SHELL\w*|G?(?:NU)?MAKE\w*)[:+?]*=.*|[^=]*!=.*", re.DOTALL)
_PROJECT_PATH = re.compile(r"(?!.*(?:^|/)\.\.(?:/|$))[\w.,:+@%][\w.,:+@%/-]*|")
# Commands that run a project's tests, as a rule would name them.
_TESTS = re.compile(
    r"(?:pytest|py\.test|tox|nox|jest|vitest|mocha|phpunit|rspec|ctest|trial"
    r"|python[\d.]* -m (?:pytest|unittest|tox|nox)|(?:npx|bunx|pnpm exec) (?:jest|vitest|mocha)"
    r"|(?:uv|poetry|pdm|hatch|pipenv) run (?:pytest|tox|nox)|(?:bundle exec) rspec"
    r"|(?:go|cargo|npm|pnpm|yarn|bun|deno|dotnet|mix|swift|zig) test|(?:\S*/)?vendor/bin/phpunit) "
)
# Options of these whose value selects tests by a name or a number, and is no path.
_SELECTING_OPTIONS = ("-k", "-m", "-t", "-n", "--grep", "--maxfail", "--testNamePattern")
# Long options whose letters are the same with all programs that have them.
_OPTION_LETTERS = {"--recursive": "r", "--force": "f"}
_OPTION_BUNDLE = re.compile(r"-[A-Za-z]{1,8}")


def stray_word(part: SimpleCommand, start: int, spelled: str = "") -> str:
    """Return the first word, from place `start` on, that makes a command do more than its kind; ""
    if there is none. `spelled` is the text of a rule: the words in it are meant."""
    test = _stray_test(part)
    if test is None:
        return ""
    for place, word in enumerate(part.words[start : _end_of_strays(part)], start):
        if word.text in spelled.split():
            continue
        ended = part.name == "git" and any(each.text == "--" for each in part.words[:place])
        if test is _strays_in_tests and not _is_surely_no_path(part.words[:place], word):
            return word.text
        if not (ended or _is_surely_no_option(word)) or test(part.words[:place], word.text):
            return word.text
    return ""


def _is_surely_no_option(word: Word) -> bool:
    """Tell whether it is certain that a word is no option. It then begins plainly, and what the
    shell fills in is within quotes and cannot become words of its own."""
    if word.fixed and not (word.glob and word.text[0] in "*?[-"):
        return True
    if word.fixed:
        return False
    outside = re.sub(r'"(?:\\.|[^"\\])*"', "", word.text, flags=re.DOTALL)
    start = re.split(r"[$`{]", word.text.replace('"', ""), maxsplit=1)[0]
    plain = start[:1] not in ("", "-", "'", "\\") or bool(re.match(r"--[\w-]+=", start))
    return plain and not re.search(r"[$`{'\\]", outside)


def _end_of_strays(part: SimpleCommand) -> int | None:
    """Return the place behind the last word that can be a stray one; None for the end. Where no
    option of a subcommand of git's does more than its kind, that is the subcommand."""
    if part.name.rpartition("/")[2] != "git":
        return None
    place = first_operand(["git", *(word.text for word in part.words[1:])])
    subcommand = part.words[place].text if place < len(part.words) else ""
    has_strays = subcommand in _GIT_LONG_OPTIONS or subcommand in _GIT_SHORT_OPTIONS
    return None if has_strays else place + 1


def _is_surely_no_path(before: Sequence[Word], word: Word) -> bool:
    """Tell whether it is certain that a word of a test command names no file that only the running
    shell knows: it is known as it stands, or it is the one value of an option that takes none."""
    if word.fixed:
        return not (word.glob and word.text[0] in "*?[-")
    whole = re.fullmatch(r'"(?:\\.|[^"\\])*"', word.text, re.DOTALL) is not None
    return whole and before[-1].text in _SELECTING_OPTIONS


def _stray_test(part: SimpleCommand) -> StrayTest | None:
    """Return the test for stray words of this kind of command, None if no word strays."""
    words = [word.text for word in part.words]
    name = words[0].rpartition("/")[2]
    if name == "git":
        place = first_operand(["git", *words[1:]])
        return _git_stray_test(words[place] if place < len(words) else "")
    if name in _MAKES:
        return _strays_in_make
    if _TESTS.match(" ".join([name, *words[1:3], ""])):
        return _strays_in_tests
    if name == "find":
        return lambda before, word: word.startswith(FIND_SIDE_EFFECTS)
    beyond = side_effect_check(name)
    if beyond is None:
        return None
    return lambda before, word: beyond([*(w.text for w in before[1:]), word])


def first_operand(words: Sequence[str]) -> int:
    """Return the place of a program's first operand, the number of words if there is none."""
    place = 1
    while place < len(words) and words[place].startswith("-"):
        place += 2 if words[0] == "git" and words[place] in _GIT_VALUED_OPTIONS else 1
    return place


def _git_stray_test(subcommand: str) -> StrayTest | None:
    long, short = _GIT_LONG_OPTIONS.get(subcommand, ()), _GIT_SHORT_OPTIONS.get(subcommand, "")

    def strays(before: Sequence[Word], word: str) -> bool:
        texts = [each.text for each in before]
        if subcommand in texts:
            return is_option(word, long, short)
        if texts[-1] == "-C":
            return not _PROJECT_PATH.fullmatch(word)
        if word == subcommand:
            return word not in _GIT_KNOWN
        return word.partition("=")[0] in _GIT_GLOBAL_OPTIONS

    return strays


def _strays_in_make(before: Sequence[Word], word: str) -> bool:
    """Tell whether a word sets make's own variables, or names something outside the project."""
    last = before[-1].text
    if is_option(last, _MAKE_PATH_OPTIONS, "") or re.fullmatch(r"-[A-Za-z]*[fCI]", last):
        return not _PROJECT_PATH.fullmatch(word)
    if is_option(word, ("--eval",), "E") or _MAKE_VARIABLE.fullmatch(word):
        return True
    if glued := re.fullmatch(r"-[a-zA-Z]*?[fCI](.+)|--[a-z-]+=(.*)", word):
        return not _PROJECT_PATH.fullmatch(glued[1] or glued[2] or "")
    return "=" in word and not _PROJECT_PATH.fullmatch(word.partition("=")[2])


def _strays_in_tests(before: Sequence[Word], word: str) -> bool:
    """Tell whether a word names tests, settings or reports outside the project. What tests are run
    with can otherwise hardly do more than the tests themselves."""
    last = before[-1].text
    if last in ("-k", "-m") or word.startswith(("-k", "-m")):
        return False
    if last in ("-o", "--override-ini") or word.startswith(("-o", "--override")):
        return True
    value = word.partition("=")[2] if word.startswith("--") else word
    value = re.sub(r"^(?:-[cp]|@)", "", value).partition("::")[0]
    glued = re.sub(r"^-[A-Za-z]=?(?=[/~.])", "", value)
    return glued.startswith(("/", "~")) or ".." in glued.split("/")


def has_options(words: Sequence[str]) -> bool:
    return any(re.match(r"--?\w", word) for word in words)


def match_in_any_order(wanted: Sequence[str], words: Sequence[Word]) -> RuleMatch:
    """Tell whether a command has the wanted plain words first, and the wanted options anywhere."""
    end = next((at for at, word in enumerate(words) if word.text == "--"), len(words))
    options = [word.text for word in words[:end] if word.text.startswith("-") and word.fixed]
    plain = [w for at, w in enumerate(words) if at > end or not w.text.startswith("-")]
    names = [word for word in wanted if not word.startswith("-")]
    for name, word in zip(names, plain, strict=False):
        if word.fixed and not word.glob and word.text != name:
            return "no"
    vague = any(not word.fixed or word.glob for word in words)
    wanted_options = [word for word in wanted if word.startswith("-")]
    if len(plain) < len(names) or not _has_options(wanted_options, options):
        return "maybe" if vague else "no"
    named = plain[: len(names)]
    return "yes" if all(word.fixed and not word.glob for word in named) else "maybe"


def _has_options(wanted: Sequence[str], options: Sequence[str]) -> bool:
    """Tell whether the options include all that are wanted, spelled in any way."""
    bundles = (option[1:] for option in options if _OPTION_BUNDLE.fullmatch(option))
    letters = {_same_letter(letter) for bundle in bundles for letter in bundle}
    for long, letter in _OPTION_LETTERS.items():
        if any(_abbreviates(option, long) for option in options):
            letters.add(letter)
    return all(_has_option(each, options, letters) for each in wanted)


def _has_option(wanted: str, options: Sequence[str], letters: set[str]) -> bool:
    if wanted.startswith("--"):
        spelled_out = any(_abbreviates(option, wanted) for option in options)
        return spelled_out or _OPTION_LETTERS.get(wanted) in letters
    if wanted in options:
        return True
    return bool(_OPTION_BUNDLE.fullmatch(wanted)) and set(map(_same_letter, wanted[1:])) <= letters


def _same_letter(letter: str) -> str:
    return "r" if letter == "R" else letter


def _abbreviates(word: str, option: str) -> bool:
    """Tell whether a word is a long option, cut short or with a value: `--forc`, `--force=x`."""
    name, _, value = word.partition("=")
    wanted, _, fixed = option.partition("=")
    return len(name) > 2 and wanted.startswith(name) and name[:2] == "--" and fixed in ("", value)
