"""Where bash evaluates a text: expansions, arithmetic and tests look into variables and
subscripts, and run the commands that they find there. Each function tells by the text of a piece
of syntax whether that can happen; what is not known to be harmless is not."""

import re

_SIMPLE = re.compile(r"\$\{#?\w+\}|\$\(\([\d\s+*/%()<>=!&|^~-]*\)\)|\$\[[\d\s+*/%()<>=!&|^~-]*\]")
# `[[ x -gt y ]]` and `-v` evaluate their operands, subscripts and what is in them included.
_EVALUATING = re.compile(r"\s-(?:eq|ne|lt|le|gt|ge)\s|[\s!(&|]-[vR]\s")
_QUOTED = re.compile(r"""'[^']*'|"(?:\\.|[^"\\])*"|\\.""", re.DOTALL)
# `~`, `~/x` and `~name` are homes; `~+`, `~-` and `~1` are folders that only the shell knows.
_FOLDER_OF_THE_SHELL = re.compile(r"(?:^|[=:])~(?![A-Za-z_/]|$)")


def computes(expansion: str) -> bool:
    """Whether an expansion does more than to fill in a variable or a sum of plain numbers."""
    return not _SIMPLE.fullmatch(expansion)


def test_evaluates(test: str) -> bool:
    """Whether a test evaluates what it compares, or may come to be one that does: in `[`, a
    variable or a pattern outside quotes can turn into operators."""
    if _EVALUATING.search(test):
        return True
    return not test.startswith("[[") and bool(re.search(r"[$*?\[]", _QUOTED.sub("", test[1:])))


def names_shell_folder(word: str) -> bool:
    """Whether a word's source may begin in a folder that only the running shell knows."""
    return bool(_FOLDER_OF_THE_SHELL.search(word))


def hides_a_bracket(word: str) -> bool:
    """Whether a pattern's source has quotes, so that its brackets may be meant or not."""
    return "[" in word and bool(re.search(r"""[\\'"]""", word))
