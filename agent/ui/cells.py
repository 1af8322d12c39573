"""Fitting text into the cells of a terminal."""

import textwrap

from prompt_toolkit.utils import get_cwidth

from ..lazy import regex

MIN_HANGING_CELLS = 30  # for a text beside its label
SHORT_INDENT_CELLS = 4  # of a text below its label

_LABEL = regex(r" *(?:\S+(?: \S+)* {2,})*")  # of a line: what its text stands beside


def first_cells(text: str, cells: int) -> str:
    """Return as much of the beginning of a text as fits."""
    filled = 0
    for place, character in enumerate(text):
        filled += get_cwidth(character)
        if filled > cells:
            return text[:place]
    return text


def cut_to_cells(text: str, cells: int) -> str:
    """Return the text in at most `cells` cells, with an ellipsis where something is cut off."""
    if get_cwidth(text) <= cells:
        return text
    return f"{first_cells(text, cells - 1)}…" if cells else ""


def wrap_words(line: str, width: int, indent: str = "") -> str:
    """Wrap a line between words; the terminal itself folds a word that is longer than a line."""
    return textwrap.fill(
        line,
        max(width, 8),
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
        replace_whitespace=False,
    )


def hang_lines(text: str, width: int) -> str:
    """Wrap each line of a text under its beginning, or under what stands next to its label; where
    that leaves too little room the text goes below the label."""
    return "\n".join(_hang(line, width) for line in text.split("\n"))


def _hang(line: str, width: int) -> str:
    found = _LABEL.match(line)
    label = found[0] if found else ""
    if width - len(label) >= MIN_HANGING_CELLS or len(line) <= width:
        return wrap_words(line, width, " " * len(label))
    indent = " " * SHORT_INDENT_CELLS
    below = wrap_words(indent + line[len(label) :], width, indent)
    return f"{label.rstrip()}\n{below}" if label.strip() else below
