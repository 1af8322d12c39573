"""How Markdown looks: the pieces that `blocks` cuts, as renderables for the terminal. What cannot
be shown as what it is (HTML, formulas, definitions of links) is shown as it was written."""

import re
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cache

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.segment import Segment
from rich.text import Text

from ..visible import clean
from . import tables
from .blocks import SAMPLE, Blocks, Piece
from .code import Code, folded, lexer_named

INSET = 2  # cells that code is set in
LEAST = 20  # cells left to a text, however deep it stands in lists
_FORMULA = re.compile(r"\$(?=\S)[^$\n]*?(?<=[^\s\\])\$(?!\d)|\\\(.*?\\\)")
_SPOKEN = str.maketrans({"▌": ">", "•": "-", "☐": "to do:", "☑": "done:"})
_LABEL = re.compile(r"(?<=[^\n])\n(?=\*\*)")  # before a line of a report that begins with one
_STYLES = {"strong": "bold", "em": "italic", "s": "strike"}


class Prose:
    """Makes renderables of pieces, which must come in their order: a later part of code or of a
    table looks as the earlier ones say."""

    def __init__(self) -> None:
        self._code = Code(None)
        self._layout: tables.Layout | None = None

    def show(self, piece: Piece) -> RenderableType:
        """The piece, with the blank line above it where it has one that is not blank."""
        body = _Within(piece.lead, piece.hang, self._body(piece))
        return Group(Text(piece.gap, style="markdown.block_quote"), body) if piece.gap else body

    def preview(self, pieces: Sequence[Piece]) -> RenderableType:
        """Pieces that are not finished, with the blank lines between them."""
        twin = copy(self)
        twin._code = self._code.twin()
        out: list[RenderableType] = []
        for place, piece in enumerate(pieces):
            out += [""] if place and piece.gap == "" else []
            out.append(twin.show(piece))
        return Group(*out)

    def _body(self, piece: Piece) -> RenderableType:
        if piece.kind == "code":
            if piece.begins:
                self._code = Code(lexer_named(piece.about))
            return _Code(self._code.take(piece.text))
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
        return text

    def _table(self, piece: Piece) -> RenderableType:
        lines = piece.text.split("\n")
        if piece.begins or self._layout is None:
            self._layout = tables.begun(lines, inline, open=len(lines) >= SAMPLE)
            return tables.Rows(self._layout, self._layout.sample[1:], first=True)
        found = tables.rows(lines, len(self._layout.head), inline)
        return tables.Rows(self._layout, found, first=False)


def report(text: str) -> RenderableType:
    """A whole report, in which a line that begins with a label stays a line."""
    cutter = Blocks()
    return Prose().preview([*cutter.feed(_LABEL.sub("  \n", clean(text))), *cutter.finish()])


def inline(text: str) -> Text:
    """A line or a paragraph, with what its marks say."""
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
            out.append(_said(token))
    return out


def _said(token: Token) -> str:
    return {"softbreak": " ", "hardbreak": "\n"}.get(token.type, token.content)


def _end_link(out: Text, start: int, address: str) -> None:
    """Show where a link leads, if its text does not."""
    shown = out.plain[start:]
    out.stylize("markdown.link", start)
    if address.removeprefix("mailto:") != shown:
        out.append(f" ({address})", "markdown.link_url")


class _Parser(MarkdownIt):
    """Shows an address as it was written."""

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
    """A formula within a line: what looks like marks in it is none."""
    found = _FORMULA.match(state.src, state.pos)
    if found is None:
        return False
    if not silent:
        state.push("text", "", 0).content = found[0]
    state.pos = found.end()
    return True


@dataclass(frozen=True, slots=True)
class _Within:
    """A body, with what stands before its first line and before the others."""

    lead: str
    hang: str
    body: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        most = max(0, options.max_width - LEAST)
        lead, hang = self.lead[-most:] if most else "", self.hang[-most:] if most else ""
        if not options.is_terminal:
            lead, hang = lead.translate(_SPOKEN), hang.translate(_SPOKEN)
        style = console.get_style("markdown.item.number")
        if "▌" in hang:
            style = console.get_style("markdown.block_quote")
        inner = options.update(width=options.max_width - cell_len(hang))
        rows = _trimmed(console.render_lines(self.body, inner, pad=False))
        for place, row in enumerate(rows or [[]]):
            yield Segment(hang if place else lead, style)
            yield from row
            yield Segment.line()


@dataclass(frozen=True, slots=True)
class _Code:
    """Without a background and without anything to the right, so that it can be copied."""

    code: Text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self.code.split("\n", allow_blank=True):
            for row in folded(line, options.max_width - INSET):
                shown = Text(" " * INSET, no_wrap=True, overflow="ignore")
                yield shown.append_text(row) if row.plain.strip() else Text()


@dataclass(frozen=True, slots=True)
class _Rule:
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if options.is_terminal:
            yield Text("─" * min(options.max_width, 40), style="markdown.hr")


def _trimmed(rows: Iterable[list[Segment]]) -> list[list[Segment]]:
    """Without blank rows at the end."""
    kept = list(rows)
    while kept and not "".join(segment.text for segment in kept[-1]).strip():
        del kept[-1]
    return kept
