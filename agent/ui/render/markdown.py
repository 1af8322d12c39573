"""Markdown for the terminal: the pieces of `markdown_stream` as renderables. HTML, formulas and
link definitions are shown as source text.
"""

from collections.abc import Callable, Sequence
from copy import copy
from functools import cache
from typing import Literal

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline
from rich.box import SIMPLE_HEAD
from rich.cells import cell_len, chop_cells
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from ....tools.system.unicode import clean
from ...lazy import dataclass, regex
from .diffs import Code, fold_line, lexer_named
from .markdown_stream import COLUMNS, TABLE_SAMPLE_ROWS, Blocks, Piece, cells
from .render import indented

MIN_COLUMN_CELLS = 10  # minimum width of a narrowed column
COLUMN_GAP_CELLS = 2
MAX_SLACK_CELLS = 4  # extra column width if more rows may follow
CODE_INDENT_CELLS = 2
MIN_TEXT_CELLS = 20  # minimum width of text in nested lists

_FORMULA = regex(r"\$(?=\S)[^$\n]*?(?<=[^\s\\])\$(?!\d)|\\\(.*?\\\)")
_WORD = regex(r"(\S*)\s*")
_SPOKEN = str.maketrans({"▌": ">", "•": "-", "☐": "to do:", "☑": "done:"})
_LABEL = regex(r"(?<=[^\n])\n(?=\*\*)")  # the line break before a bold label in a report
_STYLES = {"strong": "bold", "em": "italic", "s": "strike"}

Justify = Literal["left", "center", "right"]


@dataclass(frozen=True, slots=True)
class TableLayout:
    """The properties shared by all rows of a table."""

    head: Sequence[str]
    sample: Sequence[Sequence[Text]]  # head and first rows, which define the column widths
    justify: Sequence[Justify]
    open: bool  # whether more rows may follow

    def widths(self, room: int) -> list[int] | None:
        """Return the column widths for `room` cells; None if there is too little room."""
        wanted = [max(row[n].cell_len for row in self.sample) or 1 for n in range(len(self.head))]
        room -= COLUMN_GAP_CELLS * (len(wanted) - 1)
        if self.open:
            slack = min(MAX_SLACK_CELLS, max(0, room - sum(wanted)) // len(wanted))
            wanted = [width + slack for width in wanted]
        if sum(wanted) <= room:
            return wanted
        left, widest = room, len(wanted)
        for width in sorted(wanted):  # narrow columns keep their width, the others share the rest
            if width * widest > left:
                break
            left, widest = left - width, widest - 1
        limit = left // widest
        return [min(width, limit) for width in wanted] if limit >= MIN_COLUMN_CELLS else None


@dataclass(frozen=True, slots=True)
class TableRows:
    """Some rows of a table, under the table's head if they are the first."""

    layout: TableLayout
    rows: Sequence[Sequence[Text]]
    first: bool  # whether to show the head

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        # For screen readers, each cell follows its column's name.
        widths = self.layout.widths(options.max_width) if options.is_terminal else None
        if widths is None:
            yield from self._records()
            return
        table = Table(
            box=SIMPLE_HEAD,
            show_edge=False,
            pad_edge=False,
            padding=(0, COLUMN_GAP_CELLS - 1, 0, 0),
            show_header=self.first,
            header_style="markdown.table.header",
            border_style="markdown.table.border",
        )
        for name, width, justify in zip(
            self.layout.sample[0], widths, self.layout.justify, strict=True
        ):
            table.add_column(name, width=width, justify=justify, overflow="fold")
        for row in self.rows:
            table.add_row(*row)
        yield table

    def _records(self) -> RenderResult:
        for first, *others in self.rows:
            yield Text.assemble((f"{self.layout.head[0]}: ", "dim"), first, style="bold")
            for name, cell in zip(self.layout.head[1:], others, strict=True):
                if cell.plain:
                    yield indented(Text.assemble((f"{name}: ", "dim"), cell))


def table_layout(lines: Sequence[str], inline: Callable[[str], Text], *, open: bool) -> TableLayout:
    """Return the layout of a table from its first lines: head, delimiter row, rows."""
    head, columns = cells(lines[0]), cells(lines[1])
    sample = [[inline(cell) for cell in head], *table_rows(lines[2:], len(head), inline)]
    justify = [_justify(mark) for mark in columns]
    return TableLayout([cell.plain for cell in sample[0]], sample, justify, open)


def table_rows(
    lines: Sequence[str], columns: int, inline: Callable[[str], Text]
) -> list[list[Text]]:
    """Split lines into as many cells as the table has columns. Surplus cells join the last one."""
    found = []
    for line in lines:
        parts = cells(line)
        parts = [*parts[: columns - 1], " | ".join(parts[columns - 1 :])]
        found.append([inline(part) for part in parts + [""] * (columns - len(parts))])
    return found


def _justify(mark: str) -> Justify:
    if mark.endswith(":"):
        return "center" if mark.startswith(":") else "right"
    return "left"


class Prose:
    """A converter of pieces, in order, to renderables. All parts of a block look alike."""

    def __init__(self) -> None:
        self._code = Code(None)
        self._layout: TableLayout | None = None
        self._row = _OpenRow()
        self._folds = False  # whether to fold long lines, which the terminal would wrap

    def show(self, piece: Piece) -> RenderableType:
        """Return a piece as a renderable. If the blank line above it has a quote mark, include that
        line.
        """
        body = _Prefixed(piece.lead, piece.hang, self._body(piece))
        return Group(Text(piece.gap, style="markdown.block_quote"), body) if piece.gap else body

    def preview(self, pieces: Sequence[Piece]) -> RenderableType:
        """Return unfinished pieces as a renderable, with blank lines between them."""
        copied = copy(self)
        copied._code, copied._row, copied._folds = self._code.copy(), copy(self._row), True
        out: list[RenderableType] = []
        for place, piece in enumerate(pieces):
            out += [""] if place and piece.gap == "" else []
            out.append(copied.show(piece))
        return Group(*out)

    def _body(self, piece: Piece) -> RenderableType:
        if piece.kind == "code":
            if piece.begins:
                self._code = Code(lexer_named(piece.about))
            return _Code(self._code.take(piece.text), self._folds)
        if piece.kind == "table":
            return self._table(piece)
        if piece.kind == "rule":
            return _Rule()
        if piece.kind == "verbatim":
            return Text(piece.text)
        text = inline(piece.text)
        if piece.kind == "heading":
            text.stylize(f"markdown.h{piece.about}")
        elif "▌" in piece.hang:
            text.style = "markdown.block_quote"
        return _Paragraph(text, self._row, piece.ends, self._folds)

    def _table(self, piece: Piece) -> RenderableType:
        lines = piece.text.split("\n")
        if piece.begins or self._layout is None:
            self._layout = table_layout(lines, inline, open=len(lines) >= TABLE_SAMPLE_ROWS)
            return TableRows(self._layout, self._layout.sample[1:], first=True)
        found = table_rows(lines, len(self._layout.head), inline)
        return TableRows(self._layout, found, first=False)


def document(text: str) -> RenderableType:
    """Return a whole text as a renderable that looks the same as streamed text."""
    return Prose().preview(_pieces(text))


def report(text: str) -> RenderableType:
    """Return a whole report as a renderable. A line with a bold label stays a separate line."""
    return document(_LABEL.sub("  \n", clean(text)))


def strip_markdown(text: str) -> str:
    """Return a text on one line without Markdown marks."""
    return " ".join(" ".join(map(_bare, _pieces(text))).split())


def _bare(piece: Piece) -> str:
    if piece.kind == "table":
        rows = [line for line in piece.text.split("\n") if not COLUMNS.match(line)]
        return " · ".join(inline(cell).plain for row in rows for cell in cells(row) if cell)
    if piece.kind in ("code", "verbatim"):
        return piece.text
    lead = piece.lead.replace("▌", "")
    return f"{lead} {inline(piece.text).plain}" if piece.kind != "rule" else ""


def _pieces(text: str) -> list[Piece]:
    cutter = Blocks()
    return [*cutter.feed(clean(text)), *cutter.finish()]


def inline(text: str) -> Text:
    """Return a line or a paragraph with its inline styles."""
    out, opened = Text(), list[tuple[int, str]]()
    for token in _parser().parseInline(text)[0].children or ():
        if token.nesting > 0:
            opened.append((len(out), str(token.attrGet("href") or "")))
        elif token.nesting < 0 and opened:
            start, address = opened.pop()
            name = token.type.removesuffix("_close")
            if name == "link":
                _end_link(out, start, address)
            else:
                out.stylize(_STYLES.get(name, ""), start)
        elif token.type == "code_inline":
            out.append(token.content, "markdown.code")
        elif token.type == "image":
            out.append(f"[image: {token.content}]", "markdown.link")
            out.append(f" ({token.attrGet('src')})", "markdown.link_url")
        else:
            out.append({"softbreak": " ", "hardbreak": "\n"}.get(token.type, token.content))
    return out


def _end_link(out: Text, start: int, address: str) -> None:
    """Add the address of a link, unless the link text is the address."""
    shown = out.plain[start:]
    out.stylize("markdown.link", start)
    if address.removeprefix("mailto:") != shown:
        out.append(f" ({address})", "markdown.link_url")


class _Parser(MarkdownIt):
    """A parser that shows addresses as written."""

    def normalizeLink(self, url: str) -> str:
        return url

    def normalizeLinkText(self, link: str) -> str:
        return link


@cache
def _parser() -> MarkdownIt:
    parser = _Parser("commonmark", {"html": False}).enable("strikethrough")
    parser.inline.ruler.before("escape", "formula", _formula)
    return parser


def _formula(state: StateInline, silent: bool) -> bool:
    """Parse an inline formula, so that its characters do not count as Markdown."""
    found = _FORMULA.match(state.src, state.pos)
    if found is None:
        return False
    if not silent:
        state.push("text", "", 0).content = found[0]
    state.pos = found.end()
    return True


@dataclass(frozen=True, slots=True)
class _Prefixed:
    """A body with a prefix for its first line and a prefix for the other lines."""

    lead: str
    hang: str
    body: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = max(0, options.max_width - MIN_TEXT_CELLS)
        lead, hang = self.lead[-room:] if room else "", self.hang[-room:] if room else ""
        if not options.is_terminal:
            lead, hang = lead.translate(_SPOKEN), hang.translate(_SPOKEN)
        style = console.get_style("markdown.item.number")
        if "▌" in hang:
            style = console.get_style("markdown.block_quote")
        inner = options.update(width=options.max_width - cell_len(hang))
        # Not `render_lines`: it cuts lines that the terminal should wrap.
        rows = [*Segment.split_lines(console.render(self.body, inner))]
        while rows and not "".join(segment.text for segment in rows[-1]).strip():
            del rows[-1]
        waits = (
            isinstance(self.body, _Paragraph) and not self.body.ends
        )  # its only row is held back for the next part
        for place, row in enumerate(rows or ([] if waits else [[]])):
            yield Segment(hang if place else lead, style)
            yield from row
            yield Segment.line()


@dataclass(slots=True)
class _OpenRow:
    """The last row of an unfinished paragraph."""

    text: Text | None = None


@dataclass(frozen=True, slots=True)
class _Paragraph:
    """A paragraph or a part of it. The last row of a part is held back for the next part."""

    text: Text
    open_row: _OpenRow
    ends: bool
    folds: bool

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        before = self.open_row.text
        rows = wrapped_rows(before + self.text if before else self.text, options.max_width)
        self.open_row.text = None if self.ends else rows.pop()
        for row in rows:
            for part in fold_line(row, options.max_width) if self.folds else [row]:
                part.no_wrap, part.overflow = True, "ignore"
                yield part


def wrapped_rows(text: Text, width: int) -> list[Text]:
    """Wrap a text into rows of `width` cells. A longer ASCII word, such as a URL, stays whole: the
    terminal wraps it, so that it can be copied.
    """
    rows = list[Text]()
    for line in text.split("\n", allow_blank=True):
        cuts, filled = list[int](), 0
        for word in _WORD.finditer(line.plain):
            bare, at = word[1], word.start()
            size = cell_len(bare)
            if filled and filled + size > width:
                cuts.append(at)
                filled = 0
            if size > width and not bare.isascii():
                *full, last = chop_cells(word[0], width)
                for part in full:
                    at += len(part)
                    cuts.append(at)
                filled = cell_len(last)
            else:
                filled += cell_len(word[0])
                if size > width:
                    filled %= width
        rows += line.divide(cuts)
    return rows


@dataclass(frozen=True, slots=True)
class _Code:
    """Code without background or padding, so that it can be copied. The terminal wraps long lines,
    unless `folds` is set.
    """

    code: Text
    folds: bool

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = options.max_width - CODE_INDENT_CELLS
        for line in self.code.split("\n", allow_blank=True):
            for row in fold_line(line, room) if self.folds else [line]:
                shown = Text(" " * CODE_INDENT_CELLS, no_wrap=True, overflow="ignore")
                yield shown.append_text(row) if row.plain.strip() else Text()


@dataclass(frozen=True, slots=True)
class _Rule:
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if options.is_terminal:
            yield Text("─" * min(options.max_width, 40), style="markdown.hr")
