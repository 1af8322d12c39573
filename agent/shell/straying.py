"""Words by which a command does another thing than the kind it belongs to: `git log` looks, but
`git log --output=x` writes a file; `make test` runs what the project says, `make --eval=…` what the
command says. A rule for the kind (`Bash(git log:*)`) is not meant for them: they are asked about,
unless the rule itself names them.
"""

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from .readonly import FIND_BEYOND, goes_beyond_looking
from .wrappers import names

if TYPE_CHECKING:
    from .syntax import Part, Word

_GIT_EVERYWHERE = names("-c --config-env --exec-path --help")
_GIT_LONG = {
    **dict.fromkeys(
        names(
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
_GIT_SHORT = {"grep": "O", "rebase": "x", "clone": "uc"}
_GIT_VALUED = ("-C", "-c", "--git-dir", "--work-tree", "--namespace", "--config-env")
_MAKES = names("make gmake")
_MAKE_LONG = ("--eval", "--file", "--makefile", "--directory", "--include-dir")
_MAKE_OWN = re.compile(r"(?:\.?SHELL\w*|G?(?:NU)?MAKE\w*)[:+?]*=.*|[^=]*!=.*", re.DOTALL)
_INSIDE = re.compile(r"(?!.*(?:^|/)\.\.(?:/|$))[\w.,:+@%][\w.,:+@%/-]*|")
_TESTS = names("pytest py.test")


def straying(part: "Part", given: int, spelled: str = "") -> str:
    """The first word, from place `given` on, that makes a command more than its kind; "" for none.
    `spelled` is the text of a rule: what stands in it is meant."""
    test = _kind(part)
    if test is None:
        return ""
    for place, word in enumerate(part.words[given:], given):
        if word.text in spelled.split():
            continue
        ended = part.name == "git" and any(each.text == "--" for each in part.words[:place])
        # What tests are run with can hardly do more than the tests themselves.
        sure = ended or test is _test or _known(word)
        if not sure or test(part.words[:place], word.text):
            return word.text
    return ""


def _known(word: "Word") -> bool:
    """Whether it is certain that a word is no option: it begins plainly, and what the shell fills
    in is within quotes and cannot become words of its own."""
    if word.fixed and not (word.glob and word.text[0] in "*?[-"):
        return True
    if word.fixed:
        return False
    outside = re.sub(r'"(?:\\.|[^"\\])*"', "", word.text, flags=re.DOTALL)
    start = re.split(r"[$`{]", word.text.replace('"', ""), maxsplit=1)[0]
    plain = start[:1] not in ("", "-", "'", "\\") or bool(re.match(r"--[\w-]+=", start))
    return plain and not re.search(r"[$`{'\\]", outside)


def _kind(part: "Part") -> "Callable[[Sequence[Word], str], bool] | None":
    """Tells of a word, and of those before it, whether it strays."""
    words = [word.text for word in part.words]
    name = words[0].rpartition("/")[2]
    if name == "git":
        return _git(_subcommand(words))
    if name in _MAKES:
        return _make
    if name in _TESTS or re.fullmatch(r"python[\d.]* -m pytest", " ".join([name, *words[1:3]])):
        return _test
    if name == "find":
        return lambda before, word: word.startswith(FIND_BEYOND)
    beyond = goes_beyond_looking(name)
    if beyond is None:
        return None
    return lambda before, word: beyond([*(w.text for w in before[1:]), word])


def _subcommand(words: Sequence[str]) -> str:
    place = 1
    while place < len(words) and words[place].startswith("-"):
        place += 2 if words[place] in _GIT_VALUED else 1
    return words[place] if place < len(words) else ""


def _git(subcommand: str) -> "Callable[[Sequence[Word], str], bool] | None":
    long, short = _GIT_LONG.get(subcommand, ()), _GIT_SHORT.get(subcommand, "")

    def strays(before: "Sequence[Word]", word: str) -> bool:
        texts = [each.text for each in before]
        if subcommand not in texts:
            return word.partition("=")[0] in _GIT_EVERYWHERE
        return _is_option(word, long, short)

    return strays if long or not subcommand else None


def _make(before: "Sequence[Word]", word: str) -> bool:
    """make's own variables, and files or folders that are not the project's."""
    last = before[-1].text
    if _is_option(last, _MAKE_LONG, "") or re.fullmatch(r"-[A-Za-z]*[fCI]", last):
        return not _INSIDE.fullmatch(word)
    if _is_option(word, ("--eval",), "E") or _MAKE_OWN.fullmatch(word):
        return True
    if glued := re.fullmatch(r"-[a-zA-Z]*?[fCI](.+)|--[a-z-]+=(.*)", word):
        return not _INSIDE.fullmatch(glued[1] or glued[2] or "")
    return "=" in word and not _INSIDE.fullmatch(word.partition("=")[2])


def _test(before: "Sequence[Word]", word: str) -> bool:
    """Tests, settings and reports that are not in the project."""
    last = before[-1].text
    if last in ("-k", "-m") or word.startswith(("-k", "-m")):
        return False
    if last in ("-o", "--override-ini") or word.startswith(("-o", "--override")):
        return True
    value = word.partition("=")[2] if word.startswith("--") else word
    value = re.sub(r"^(?:-[cp]|@)", "", value).partition("::")[0]
    return value.startswith(("/", "~")) or ".." in value.split("/")


def _is_option(word: str, long: Sequence[str], short: str) -> bool:
    """Long options may be cut short (`--out`), short ones stand in bundles."""
    if word.startswith("--"):
        name = word.partition("=")[0]
        return len(name) > 2 and any(each.startswith(name) for each in long)
    return word.startswith("-") and any(letter in word for letter in short)
