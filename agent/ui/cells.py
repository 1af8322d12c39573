"""Fitting text into the cells of a terminal."""

import textwrap

from prompt_toolkit.utils import get_cwidth


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
