"""A camera for a terminal: the content of a pyte screen, as plain text or as a self-contained SVG.

    frame = shoot(terminal.screen).cropped()
    frame.text()
    frame.svg(LIGHT, title="A terminal")

A `Frame` is a value: equal frames give the same bytes. `Screen` is pyte's, with support for dim
text.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import NamedTuple
from xml.sax.saxutils import escape

import pyte
from wcwidth import wcwidth

WIDTH, HEIGHT, SIZE, BASE = 9, 18, 15, 14  # pixels: a cell, the font, the base line in a cell
EDGE = 12  # pixels around the cells
DIMMED = 0.62  # share of contrast that dim text keeps
FONTS = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"
NAMES = ("black", "red", "green", "brown", "blue", "magenta", "cyan", "white")  # as pyte has them

Place = tuple[int, int]  # column, row


class Ink(NamedTuple):
    """A cell: pyte's `Char`, plus `dim`."""

    data: str = " "
    fg: str = "default"
    bg: str = "default"
    bold: bool = False
    italics: bool = False
    underscore: bool = False
    strikethrough: bool = False
    reverse: bool = False
    blink: bool = False
    dim: bool = False


class Screen(pyte.HistoryScreen):
    """A pyte screen with cells of type `Ink`."""

    @property
    def default_char(self) -> Ink:
        return Ink(*super().default_char)

    def reset(self) -> None:
        super().reset()
        self.cursor.attrs = self.default_char

    def select_graphic_rendition(self, *attrs: int, **private: bool) -> None:
        if private:  # a keyboard query or similar, not a style
            return
        super().select_graphic_rendition(*attrs)
        dim = self.cursor.attrs.dim
        codes = iter(attrs or (0,))
        for code in codes:
            if code in (38, 48):
                for _ in range({5: 1, 2: 3}.get(next(codes, 0), 0)):
                    next(codes, 0)
            elif code in (0, 2, 22):
                dim = code == 2
        self.cursor.attrs = self.cursor.attrs._replace(dim=dim)


@dataclass(frozen=True, slots=True)
class Palette:
    """Colours as `#rrggbb`; `dull` and `bright` have eight each, in the order of the ANSI codes."""

    foreground: str
    background: str
    dull: tuple[str, ...]
    bright: tuple[str, ...]

    def color(self, name: str, *, otherwise: str) -> str:
        """Return the colour that pyte calls `name`."""
        if name == "default":
            return otherwise
        if re.fullmatch(r"[0-9a-f]{6}", name):
            return f"#{name}"
        shade = self.bright if name.startswith(("bright", "bfight")) else self.dull
        return shade[NAMES.index(re.sub("^b[rf]ight", "", name))]


DARK = Palette(
    "#d4d7dd",
    "#15171c",
    ("#15171c", "#d9534f", "#3fb37f", "#d7b13d", "#4a8fd8", "#b878c9", "#35a9bf", "#d4d7dd"),
    ("#6b7079", "#ef7a73", "#63cf9c", "#ecd06a", "#79b1ee", "#d39ae0", "#62c9db", "#f5f6f8"),
)
LIGHT = Palette(
    "#24262b",
    "#fcfbf8",
    ("#24262b", "#c0322e", "#217a45", "#94700a", "#1f5fae", "#8f3fa3", "#0f7486", "#8d9097"),
    ("#6f737b", "#d6453f", "#2f9a5a", "#b08a1c", "#3a7bd0", "#a85bbb", "#2290a3", "#b9bcc2"),
)


@dataclass(frozen=True, slots=True)
class Frame:
    """The content of a terminal at one moment: rows of `columns` cells each, and the position of
    the cursor (None if hidden). The second cell of a wide character has no data.
    """

    columns: int
    rows: tuple[tuple[Ink, ...], ...]
    cursor: Place | None = None

    def text(self) -> str:
        return "".join(f"{line(row).rstrip()}\n" for row in self.rows)

    def cropped(self) -> "Frame":
        """Return the frame without blank rows at the end; the row of the cursor is kept."""
        last = self.cursor[1] + 1 if self.cursor else 1
        for number, row in enumerate(self.rows, 1):
            if any(cell != Ink() for cell in row):
                last = max(last, number)
        return replace(self, rows=self.rows[:last])

    def replaced(self, changes: Sequence[tuple[str, str]]) -> "Frame":
        """Apply each (pattern, text) to each row. New text gets the look of the first replaced
        cell; the rest of the row moves, and the row is cut or filled at its end.
        """
        rows, cursor = list(self.rows), self.cursor
        for number, row in enumerate(rows):
            for pattern, text in changes:
                for match in reversed(list(re.finditer(pattern, line(row)))):
                    start, end = _cell(row, match.start()), _cell(row, match.end())
                    new = tuple(_cells(match.expand(text), row[start])) if end > start else ()
                    row = (*row[:start], *new, *row[end:])
                    if cursor and cursor[1] == number and cursor[0] >= end:
                        cursor = (min(cursor[0] + len(new) - end + start, self.columns), number)
            rows[number] = (*row, *[Ink()] * (self.columns - len(row)))[: self.columns]
        return replace(self, rows=tuple(rows), cursor=cursor)

    def svg(self, palette: Palette, *, title: str) -> str:
        width = self.columns * WIDTH + 2 * EDGE
        height = len(self.rows) * HEIGHT + 2 * EDGE
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img">',
            f"<title>{escape(title)}</title>",
            f'<rect width="{width}" height="{height}" rx="8" fill="{palette.background}"/>',
            f'<g transform="translate({EDGE} {EDGE})" fill="{palette.foreground}" '
            f'font-family="{FONTS}" font-size="{SIZE}">',
            *self.elements(palette),
        ]
        return "\n".join([*parts, "</g>", "</svg>", ""])

    def elements(self, palette: Palette) -> Iterator[str]:
        """Yield the SVG elements of the cells."""
        for number, row in enumerate(self.rows):
            if self.cursor and self.cursor[1] == number and self.cursor[0] < len(row):
                row = _with_cursor(row, self.cursor[0])
            yield from _drawn(row, number, palette)


def shoot(screen: Screen) -> Frame:
    """Return the current frame of a screen."""
    shown = (screen.buffer[y] for y in range(screen.lines))
    rows = tuple(tuple(row[x] for x in range(screen.columns)) for row in shown)
    cursor = None if screen.cursor.hidden else (screen.cursor.x, screen.cursor.y)
    return Frame(screen.columns, rows, cursor)


def line(row: Sequence[Ink]) -> str:
    return "".join(cell.data for cell in row)


def _cell(row: Sequence[Ink], character: int) -> int:
    """Return the index of the cell in which the given character of the row's text begins."""
    for place, cell in enumerate(row):
        if character <= 0 and cell.data:
            return place
        character -= len(cell.data)
    return len(row)


def _cells(text: str, like: Ink) -> Iterator[Ink]:
    for character in text:
        yield like._replace(data=character)
        for _ in range(wcwidth(character) - 1):
            yield like._replace(data="")


def _with_cursor(row: tuple[Ink, ...], column: int) -> tuple[Ink, ...]:
    under = row[column]
    block = under._replace(reverse=not under.reverse, dim=False)
    return (*row[:column], block, *row[column + 1 :])


def _drawn(row: Sequence[Ink], number: int, palette: Palette) -> Iterator[str]:
    """Yield the SVG elements of a row: first the backgrounds of its cells, then their text.

    No element has two consecutive blanks, because browsers collapse them and stretch the letters.
    """
    top = number * HEIGHT
    colored = [(cell, *_colors(cell, palette)) for cell in row]
    x = 0
    for ground, cells in groupby(ground for _, _, ground in colored):
        width = len(list(cells)) * WIDTH
        if ground != palette.background:
            yield f'<rect x="{x}" y="{top}" width="{width}" height="{HEIGHT}" fill="{ground}"/>'
        x += width
    for x, look, text in _runs([(cell, color) for cell, color, _ in colored]):
        if "text-decoration" in look:
            text = text.replace(" ", "\xa0")
        look = look.replace(f' fill="{palette.foreground}"', "")
        for words in re.finditer(r"\S+(?:[ \xa0]\S+)*|\xa0+", text):
            left, part = (x + words.start()) * WIDTH, words[0]
            even = f' textLength="{len(part) * WIDTH}"' if len(part) > 1 and _even(part) else ""
            yield f'<text x="{left}" y="{top + BASE}"{even}{look}>{escape(part)}</text>'


def _runs(cells: Sequence[tuple[Ink, str]]) -> Iterator[tuple[int, str, str]]:
    """Yield (column, look, text) for pieces of text with the same look. A character whose width can
    differ between fonts is a separate piece, so that it cannot shift the next ones.
    """
    x, look, text = 0, "", ""
    for place, (cell, color) in enumerate(cells):
        blank = cell.data.isspace() and not (cell.underscore or cell.strikethrough)
        alike = "decoration" not in look if blank else _look(cell, color) == look
        if text and _even(text + cell.data) and alike:
            text += cell.data
        elif cell.data:
            if text:
                yield x, look, text
            x, look, text = place, "" if blank else _look(cell, color), "" if blank else cell.data
    if text:
        yield x, look, text


def _even(text: str) -> bool:
    """Return True if monospace fonts agree on the width: ASCII, lines, blocks."""
    return all(c.isascii() or c == "\xa0" or "─" <= c <= "▟" for c in text)


def _colors(cell: Ink, palette: Palette) -> tuple[str, str]:
    front = palette.color(cell.fg, otherwise=palette.foreground)
    ground = palette.color(cell.bg, otherwise=palette.background)
    if cell.reverse:
        front, ground = ground, front
    return (_mixed(front, ground, DIMMED) if cell.dim else front), ground


def _look(cell: Ink, color: str) -> str:
    lines = [("underline", cell.underscore), ("line-through", cell.strikethrough)]
    decoration = " ".join(name for name, has in lines if has)
    parts = [f' fill="{color}"']
    parts.append(' font-weight="bold"' if cell.bold else "")
    parts.append(' font-style="italic"' if cell.italics else "")
    parts.append(f' text-decoration="{decoration}"' if decoration else "")
    return "".join(parts)


def _mixed(front: str, ground: str, share: float) -> str:
    pairs = ((int(front[i : i + 2], 16), int(ground[i : i + 2], 16)) for i in (1, 3, 5))
    return "#" + "".join(f"{round(f * share + g * (1 - share)):02x}" for f, g in pairs)
