"""Match a command's words against a deny or ask rule.

The options of the rule match in any order: `rm -rf` also matches `rm -r -f x`, `rm x -fr` and `rm
--recursive --force x`.
"""

import re
from collections.abc import Sequence
from typing import Literal

from ...lazy import regex
from .parser import Word

RuleMatch = Literal["yes", "maybe", "no"]  # maybe: known only when the command runs

# Long options that have the same short letter in all programs.
_OPTION_LETTERS = {"--recursive": "r", "--force": "f"}
_OPTION_BUNDLE = regex(r"-[A-Za-z]{1,8}")


def has_options(words: Sequence[str]) -> bool:
    return any(re.match(r"--?\w", word) for word in words)


def match_in_any_order(wanted: Sequence[str], words: Sequence[Word]) -> RuleMatch:
    """Return "yes" if a command starts with the wanted plain words and has the wanted options
    anywhere.
    """
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
    """Return True if the options include all wanted options in any spelling."""
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
    """Return True if a word is a long option, shortened or with a value: `--forc`, `--force=x`."""
    name, _, value = word.partition("=")
    wanted, _, fixed = option.partition("=")
    return len(name) > 2 and wanted.startswith(name) and name[:2] == "--" and fixed in ("", value)
