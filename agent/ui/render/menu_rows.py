"""Rows for the options of a menu, cut to width, with the search words marked."""

import re
from collections.abc import Iterable, Sequence

from prompt_toolkit.formatted_text import StyleAndTextTuples, fragment_list_width
from prompt_toolkit.utils import get_cwidth

from ....tools.system.unicode import clean
from ...lazy import dataclass
from ..cells import cut_to_cells, first_cells
from ..menu import Option, Styled

MIN_ONE_ROW_COLUMNS = 100  # at this width or more, an option with details takes one row
MIN_FACTS_COLUMNS = 60  # below this width, only one fact is shown
MAX_FACT_CELLS = 20  # longest fact
GAP = "  "


@dataclass(frozen=True, slots=True)
class MenuSpace:
    """The room of a menu on the terminal."""

    columns: int
    rows: int  # rows for options
    preview: int  # rows
    each: int  # rows per option


def option_row(
    option: Option,
    space: MenuSpace,
    columns: Sequence[int],
    words: re.Pattern[str] | None,
    *,
    chosen: bool,
) -> StyleAndTextTuples:
    """Return the rows of an option. `columns` are the widths of the facts; `words` matches the
    search text.
    """
    style = "class:chosen" if chosen else ""
    width = space.columns - 2
    facts: StyleAndTextTuples = []
    # On a narrow terminal, the title gets all room that the fact does not need.
    narrow = space.columns < MIN_FACTS_COLUMNS
    sizes = [*map(get_cwidth, option.facts[:1])] if narrow else columns
    for fact, size in zip(option.facts, sizes, strict=False):
        if size:
            text = GAP + _padded(fact, min(size, MAX_FACT_CELLS), None)
            facts += _marked(text, "class:dim", words if fact in option.words else None)
    left = max(10, width - fragment_list_width(facts))
    out: StyleAndTextTuples = [("class:prompt", "❯ ") if chosen else ("", "  ")]
    if space.each == 1 and space.columns >= MIN_ONE_ROW_COLUMNS - 1 and option.detail:
        title = left // 2
        detail = left - title - len(GAP)
        out += _marked(_padded(option.title, title, words), style, words)
        out += [("", GAP)]
        out += _marked(_padded(option.detail, detail, words), "class:dim", words)
    else:
        out += _marked(_padded(option.title, left, words), style, words)
    out += facts
    if space.each == 2:
        out += [("", "\n    ")]
        out += _marked(_cut_around(option.detail, width - 2, words), "class:dim", words)
    return out


def preview_rows(lines: Iterable[Styled], space: MenuSpace) -> list[Styled]:
    """Return the lines as preview rows. The last line takes as many rows as fit."""
    out: list[Styled] = []
    for role, text in lines:
        rest = " ".join(clean(text[: 20 * space.columns]).split())
        for _ in range(2 if role else space.preview):
            if not rest or len(out) == space.preview - 1:
                break
            row = first_cells(rest, space.columns)
            end = row.rfind(" ") if len(row) < len(rest) and " " in row else len(row)
            out.append((role, row[:end]))
            rest = rest[end:].lstrip()
    return out


def words_pattern(words: Sequence[str]) -> re.Pattern[str] | None:
    longest_first = sorted(map(re.escape, words), key=len, reverse=True)
    return re.compile("|".join(longest_first), re.IGNORECASE) if words else None


def _marked(text: str, style: str, words: re.Pattern[str] | None) -> StyleAndTextTuples:
    """Return the text with the matches of `words` highlighted."""
    out: StyleAndTextTuples = []
    at = 0
    for found in words.finditer(text) if words else ():
        out += [(style, text[at : found.start()]), (f"{style} class:match", found[0])]
        at = found.end()
    return [*out, (style, text[at:])]


def _cut_around(text: str, cells: int, words: re.Pattern[str] | None) -> str:
    """Return a cleaned text cut to `cells`, so that the first match of `words` stays visible."""
    text = clean(text)
    found = words.search(text) if words else None
    if found and get_cwidth(text[: found.end()]) >= cells and get_cwidth(text) > cells:
        text = f"…{text[max(0, found.start() - cells // 3) :]}"
    return cut_to_cells(text, cells)


def _padded(text: str, cells: int, words: re.Pattern[str] | None) -> str:
    text = _cut_around(text, cells, words)
    return text + " " * (cells - get_cwidth(text))
