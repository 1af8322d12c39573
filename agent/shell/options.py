"""Options as a rule that forbids means them: `rm -rf` is `rm -r -f x`, `rm x -fr` and
`rm --recursive --force x` too. In any order, in bundles, behind the operands, cut short."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from .syntax import Word

# Long options whose letters are the same with all programs that have them.
_LETTERS = {"--recursive": "r", "--force": "f"}
_BUNDLE = re.compile(r"-[A-Za-z]{1,8}")


def has_options(words: Sequence[str]) -> bool:
    return any(re.match(r"--?\w", word) for word in words)


def meets(wanted: Sequence[str], words: "Sequence[Word]") -> Literal["yes", "maybe", "no"]:
    """Whether a command has the plain words that are wanted first, and their options anywhere."""
    end = next((at for at, word in enumerate(words) if word.text == "--"), len(words))
    options = [word.text for word in words[:end] if word.text.startswith("-") and word.fixed]
    plain = [w for at, w in enumerate(words) if at > end or not w.text.startswith("-")]
    names = [word for word in wanted if not word.startswith("-")]
    for name, word in zip(names, plain, strict=False):
        if word.fixed and not word.glob and word.text != name:
            return "no"
    vague = any(not word.fixed or word.glob for word in words)
    if len(plain) < len(names) or not _given([w for w in wanted if w.startswith("-")], options):
        return "maybe" if vague else "no"
    named = plain[: len(names)]
    return "yes" if all(word.fixed and not word.glob for word in named) else "maybe"


def _given(wanted: Sequence[str], options: Sequence[str]) -> bool:
    letters = {_one(letter) for each in options if _BUNDLE.fullmatch(each) for letter in each[1:]}
    letters |= {_LETTERS[long] for each in options for long in _LETTERS if _abbreviates(each, long)}
    return all(
        any(_abbreviates(each, option) for each in options) or _LETTERS.get(option) in letters
        if option.startswith("--")
        else option in options
        or (bool(_BUNDLE.fullmatch(option)) and {_one(letter) for letter in option[1:]} <= letters)
        for option in wanted
    )


def _one(letter: str) -> str:
    return "r" if letter == "R" else letter


def _abbreviates(word: str, option: str) -> bool:
    """`--forc` and `--force=x` are `--force`."""
    name, _, value = word.partition("=")
    wanted, _, fixed = option.partition("=")
    return len(name) > 2 and wanted.startswith(name) and name[:2] == "--" and fixed in ("", value)
