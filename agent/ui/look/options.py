"""How the options of a menu look on a terminal: in rows of a given room, with what was looked for
marked in them, cut by cells."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from prompt_toolkit.formatted_text import StyleAndTextTuples, fragment_list_width
from prompt_toolkit.utils import get_cwidth

from ..screen.menu import Option, Styled
from ..visible import clean

WIDE = 100  # columns from which on an option is one row, however much there is to say of it
SLIM = 60  # columns below which one fact stands beside it
LONGEST = 18  # cells of a fact
GAP = "  "


@dataclass(frozen=True, slots=True)
class Room:
    """What fits: columns, rows of options and of the preview, rows of one option."""

    columns: int
    rows: int
    preview: int
    each: int


def row_of(
    option: Option,
    room: Room,
    columns: Sequence[int],
    marks: re.Pattern[str] | None,
    *,
    chosen: bool,
) -> StyleAndTextTuples:
    """An option in as many rows as it has; where it has one, what stands below comes after the
    title if there is room for it."""
    style = "class:chosen" if chosen else ""
    width = room.columns - 2
    sizes = columns[:1] if room.columns < SLIM else columns
    facts = [
        _marked(
            GAP + _padded(fact, min(size, LONGEST)),
            "class:dim",
            marks if fact in option.words else None,
        )
        for fact, size in zip(option.facts, sizes, strict=False)
        if size
    ]
    beside = [fragment for fact in facts for fragment in fact]
    left = max(10, width - fragment_list_width(beside))
    out: StyleAndTextTuples = [("class:prompt", "❯ ") if chosen else ("", "  ")]
    if room.each == 1 and room.columns >= WIDE - 1 and option.below:
        title = left // 2
        out += _marked(_padded(_around(option.title, title, marks), title), style, marks)
        below = left - title - len(GAP)
        out += [("", GAP)]
        out += _marked(_padded(_around(option.below, below, marks), below), "class:dim", marks)
    else:
        out += _marked(_padded(_around(option.title, left, marks), left), style, marks)
    out += beside
    if room.each == 2:
        out += [("", "\n    ")]
        out += _marked(_around(option.below, width - 2, marks), "class:dim", marks)
    return out


def folded(lines: Iterable[Styled], room: Room) -> list[Styled]:
    """The lines in rows of the preview, the last one as long as it fits."""
    out: list[Styled] = []
    for role, text in lines:
        rest = " ".join(clean(text[: 20 * room.columns]).split())
        for _ in range(2 if role else room.preview):
            if not rest or len(out) == room.preview - 1:
                break
            row = _head(rest, room.columns)
            end = row.rfind(" ") if len(row) < len(rest) and " " in row else len(row)
            out.append((role, row[:end]))
            rest = rest[end:].lstrip()
    return out


def pattern(words: Sequence[str]) -> re.Pattern[str] | None:
    longest_first = sorted(map(re.escape, words), key=len, reverse=True)
    return re.compile("|".join(longest_first), re.IGNORECASE) if words else None


def _marked(text: str, style: str, marks: re.Pattern[str] | None) -> StyleAndTextTuples:
    """The text with what was looked for marked in it."""
    out: StyleAndTextTuples = []
    at = 0
    for found in marks.finditer(text) if marks else ():
        out += [(style, text[at : found.start()]), (f"{style} class:match", found[0])]
        at = found.end()
    return [*out, (style, text[at:])]


def _around(text: str, cells: int, marks: re.Pattern[str] | None) -> str:
    """What fits of a text, cleaned, with the first that was looked for in it."""
    text = clean(text)
    found = marks.search(text) if marks else None
    if found and get_cwidth(text[: found.end()]) >= cells and get_cwidth(text) > cells:
        text = f"…{text[max(0, found.start() - cells // 3) :]}"
    return cut(text, cells)


def cut(text: str, cells: int) -> str:
    if get_cwidth(text) <= cells:
        return text
    return f"{_head(text, cells - 1)}…"


def _head(text: str, cells: int) -> str:
    """The beginning of a text, as much as fits."""
    filled = 0
    for place, character in enumerate(text):
        filled += get_cwidth(character)
        if filled > cells:
            return text[:place]
    return text


def _padded(text: str, cells: int) -> str:
    text = cut(clean(text), cells)
    return text + " " * (cells - get_cwidth(text))
