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

_GIT_GLOBAL_OPTIONS = name_set("-c --config-env --exec-path --help")
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
}
_GIT_SHORT_OPTIONS = {"grep": "O", "rebase": "x", "clone": "uc"}
_GIT_VALUED_OPTIONS = ("-C", "-c", "--git-dir", "--work-tree", "--namespace", "--config-env")
_MAKES = name_set("make gmake")
_MAKE_PATH_OPTIONS = ("--eval", "--file", "--makefile", "--directory", "--include-dir")
_MAKE_VARIABLE = re.compile(r"(?:\.?SHELL\w*|G?(?:NU)?MAKE\w*)[:+?]*=.*|[^=]*!=.*", re.DOTALL)
_PROJECT_PATH = re.compile(r"(?!.*(?:^|/)\.\.(?:/|$))[\w.,:+@%][\w.,:+@%/-]*|")
_PYTEST_NAMES = name_set("pytest py.test")
# Long options whose letters are the same with all programs that have them.
_OPTION_LETTERS = {"--recursive": "r", "--force": "f"}
_OPTION_BUNDLE = re.compile(r"-[A-Za-z]{1,8}")


def stray_word(part: SimpleCommand, start: int, spelled: str = "") -> str:
    """Return the first word, from place `start` on, that makes a command do more than its kind; ""
    if there is none. `spelled` is the text of a rule: the words in it are meant."""
    test = _stray_test(part)
    if test is None:
        return ""
    for place, word in enumerate(part.words[start:], start):
        if word.text in spelled.split():
            continue
        ended = part.name == "git" and any(each.text == "--" for each in part.words[:place])
        # What tests are run with can hardly do more than the tests themselves.
        sure = ended or test is _strays_in_pytest or _is_surely_no_option(word)
        if not sure or test(part.words[:place], word.text):
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


def _stray_test(part: SimpleCommand) -> StrayTest | None:
    """Return the test for stray words of this kind of command, None if no word strays."""
    words = [word.text for word in part.words]
    name = words[0].rpartition("/")[2]
    if name == "git":
        place = first_operand(["git", *words[1:]])
        return _git_stray_test(words[place] if place < len(words) else "")
    if name in _MAKES:
        return _strays_in_make
    beginning = " ".join([name, *words[1:3]])
    if name in _PYTEST_NAMES or re.fullmatch(r"python[\d.]* -m pytest", beginning):
        return _strays_in_pytest
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
        if subcommand not in texts:
            return word.partition("=")[0] in _GIT_GLOBAL_OPTIONS
        return is_option(word, long, short)

    return strays if long or not subcommand else None


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


def _strays_in_pytest(before: Sequence[Word], word: str) -> bool:
    """Tell whether a word names tests, settings or reports outside the project."""
    last = before[-1].text
    if last in ("-k", "-m") or word.startswith(("-k", "-m")):
        return False
    if last in ("-o", "--override-ini") or word.startswith(("-o", "--override")):
        return True
    value = word.partition("=")[2] if word.startswith("--") else word
    value = re.sub(r"^(?:-[cp]|@)", "", value).partition("::")[0]
    return value.startswith(("/", "~")) or ".." in value.split("/")


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
