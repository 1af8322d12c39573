"""Fitting text into the cells of a terminal."""

import textwrap

from prompt_toolkit.utils import get_cwidth

from ..lazy import regex

MIN_HANGING_CELLS = 30  # minimum for a text next to its label
SHORT_INDENT_CELLS = 4  # for a text below its label

_LABEL = regex(r" *(?:\S+(?: \S+)* {2,})*")  # the label before a line's text


def first_cells(text: str, cells: int) -> str:
    """Return the longest beginning of `text` that fits into `cells`."""
    filled = 0
    for place, character in enumerate(text):
        filled += get_cwidth(character)
        if filled > cells:
            return text[:place]
    return text


def cut_to_cells(text: str, cells: int) -> str:
    """Return the text in at most `cells` cells, with an ellipsis if it was cut."""
    if get_cwidth(text) <= cells:
        return text
    return f"{first_cells(text, cells - 1)}…" if cells else ""


def wrap_words(line: str, width: int, indent: str = "") -> str:
    """Wrap a line between words. The terminal folds a word that is longer than a line."""
    return textwrap.fill(
        line,
        max(width, 8),
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
        replace_whitespace=False,
    )


def hang_lines(text: str, width: int) -> str:
    """Wrap each line with a hanging indent: continuation lines start below the text after the
    label. If too little room remains, put the text on the lines below the label.
    """
    return "\n".join(_hang(line, width) for line in text.split("\n"))


def _hang(line: str, width: int) -> str:
    found = _LABEL.match(line)
    label = found[0] if found else ""
    if width - len(label) >= MIN_HANGING_CELLS or len(line) <= width:
        return wrap_words(line, width, " " * len(label))
    indent = " " * SHORT_INDENT_CELLS
    below = wrap_words(indent + line[len(label) :], width, indent)
    return f"{label.rstrip()}\n{below}" if label.strip() else below
