"""Streaming Markdown, cut into pieces that can be printed before the rest arrives.

A `Piece` is a block (a paragraph, a heading, a table, code) or a part of a long one, with the
prefixes of the lists and quotes around it. Each line is read once, and the pieces depend only on
lines, not on how the text was split on arrival. Long blocks are printed in parts: a list item by
item, code and tables some lines at a time, a long paragraph some sentences at a time.
"""

import re
from copy import copy
from dataclasses import field, replace
from typing import Literal

from ...lazy import dataclass, regex

MAX_OPEN_CHARS = 2_000  # a longer paragraph is emitted in parts

FENCE = regex(r"(`{3,}(?=[^`]*$)|~{3,})\s*([^\s`{,:]*)")
HEADING = regex(r"#{1,6}(?=\s|$)")
CLOSING = regex(r"(^|\s+)#+\s*$")
BULLET = regex(r"([-*+])(\s+|$)")
NUMBER = regex(r"(\d{1,9})[.)](\s+|$)")
TASK = regex(r"\[([ xX])\]\s+")
RULE = regex(r"(?:(?:\*\s*){3,}|(?:-\s*){3,}|(?:_\s*){3,})$")
UNDERLINE = regex(r"(={3,}|-{3,})\s*$")
COLUMNS = regex(r"\|?\s*+:?-+:?\s*+(\|\s*+:?-+:?\s*+)*\|?\s*+$")
VERBATIM = regex(r"\$\$|\\\[|<(?:/?[a-zA-Z][\w-]*(?=[\s/>]|$)|!--)")
SENTENCE = regex(r"[.!?:;]\s|[。！？]|\n")
MARKS = regex(r"[-+*=#`~|>\s]*(?:\d{1,9}[.)]?\s*)?$")  # such a line may still become any block
COMMENTS = {"/*": "*/", "<!--": "-->", "{-": "-}", "(*": "*)"}

CODE_PART_LINES, MAX_COMMENT_PART_LINES = 8, 100  # lines per part; within a comment
TABLE_SAMPLE_ROWS = 30  # rows that define the column widths

BlockKind = Literal["text", "heading", "rule", "code", "table", "verbatim"]


def starts_block(line: str) -> bool:
    """Return True if a line begins a block other than a paragraph."""
    bare = line.strip()
    starts = (FENCE, HEADING, RULE, BULLET, NUMBER)
    return bare.startswith(">") or any(start.match(bare) for start in starts)


def item_marker(line: str) -> re.Match[str] | None:
    """Match a list item marker at the beginning of a line, with the spaces after it."""
    return None if RULE.match(line) else BULLET.match(line) or NUMBER.match(line)


def is_table(head: str, columns: str) -> bool:
    if "|" not in head + columns or not COLUMNS.match(columns):
        return False
    return len(cells(head)) == len(cells(columns))


def cells(row: str) -> list[str]:
    r"""Return the cells of a table row, with `\|` replaced by `|`."""
    bare = row.strip().removeprefix("|")
    if bare.endswith("|") and not bare.endswith("\\|"):
        bare = bare[:-1]
    parts = re.split(r"(?<!\\)\|", bare)
    return [part.strip().replace("\\|", "|") for part in parts]


def open_comment(open: str, line: str) -> str:
    """Return the closing mark of the comment that is open after this line; "" if none is open."""
    if not open:
        begun = next((mark for mark in COMMENTS if line.startswith(mark)), "")
        open, line = COMMENTS.get(begun, ""), line[len(begun) :]
    return "" if open and open in line else open


def best_cut(text: str) -> int:
    """Return where to cut a long paragraph: after a sentence and outside of open marks."""
    half = len(text) // 2
    ends = [found.end() for found in SENTENCE.finditer(text, half)]
    for end in reversed(ends):
        if _is_balanced(text[:end]):
            return end
    blank = text.rfind(" ", half)
    return blank + 1 if blank > 0 else len(text)


def _is_balanced(text: str) -> bool:
    even = all(text.count(mark) % 2 == 0 for mark in ("`", "**", "__"))
    return even and all(text.count(left) == text.count(right) for left, right in ("[]", "()"))


@dataclass(frozen=True, slots=True)
class Piece:
    """A block, or a part of a long one."""

    kind: BlockKind
    text: str
    lead: str = ""  # prefix of its first line
    hang: str = ""  # prefix of its other lines
    gap: str | None = None  # the blank line above it (may have a quote mark); None without one
    begins: bool = True  # False for a later part of a block
    ends: bool = True  # False for a part of a paragraph whose last row continues
    about: str = ""  # the language of code, the level of a heading


@dataclass(slots=True)
class _Container:
    """A quote or a list item around the current block."""

    mark: str
    column: int = 0  # start column of an item's content; 0 for a quote
    seen: bool = False  # whether a piece of it was emitted

    @property
    def is_quote(self) -> bool:
        return not self.column

    @property
    def hang(self) -> str:
        return self.mark if self.is_quote else " " * len(self.mark)


@dataclass(slots=True)
class _Leaf:
    kind: BlockKind
    gap: bool
    about: str = ""
    lines: list[str] = field(default_factory=list)
    size: int = 0
    begins: bool = True
    fence: str = ""  # the closing fence
    indent: int = 0  # indentation of the opening line
    comment: str = ""  # closing mark of an open comment


class Blocks:
    """Splits a Markdown stream into pieces. The cost per line does not grow with the text."""

    def __init__(self) -> None:
        self._partial: list[str] = []  # parts of the unfinished line
        self._length = 0  # length of the unfinished line
        self._look = MAX_OPEN_CHARS  # length at which its beginning may be processed
        self._within = False  # whether its beginning was processed
        self._around: list[_Container] = []
        self._leaf: _Leaf | None = None
        self._blank = True  # whether a blank line followed the newest block
        self._out: list[Piece] = []

    def feed(self, text: str) -> list[Piece]:
        """Return the pieces that `text` finishes, in order."""
        *lines, rest = text.split("\n")
        for line in lines:
            whole = "".join([*self._partial, line])
            self._partial, self._length, self._look = [], 0, MAX_OPEN_CHARS
            self._line(whole)
        if rest:
            self._partial.append(rest)
            self._length += len(rest)
            if self._length > self._look:
                self._look_ahead()
        return self._take_pieces()

    def finish(self) -> list[Piece]:
        """Return the remaining text as pieces, because the stream has ended."""
        done = self.feed("\n") if self._partial or self._within else []
        self._flush()
        self._close(0)
        self._blank = True
        return done + self._take_pieces()

    def tail(self) -> list[Piece]:
        """Return the unfinished pieces, as if the stream ended here. They are always short."""
        partial, leaf = self._beginning(), self._leaf
        if leaf is not None and leaf.fence:
            known = bool(partial.strip().strip(leaf.fence[0]))
        else:
            known = self._within or not MARKS.match(partial)
        copied = self._copy()
        copied._partial = [partial] if partial and known else []
        return [piece for piece in copied.finish() if piece.text.strip() or not piece.begins]

    def _take_pieces(self) -> list[Piece]:
        out, self._out = self._out, []
        return out

    def _copy(self) -> "Blocks":
        copied = copy(self)
        copied._around = [copy(each) for each in self._around]
        copied._leaf = self._leaf and replace(self._leaf, lines=list(self._leaf.lines))
        copied._out = []
        return copied

    def _beginning(self) -> str:
        """Return at most MAX_OPEN_CHARS of the unfinished line."""
        kept, length = [], 0
        for each in self._partial:
            kept.append(each)
            length += len(each)
            if length > MAX_OPEN_CHARS:
                break
        return "".join(kept)[:MAX_OPEN_CHARS]

    def _look_ahead(self) -> None:
        """Process the beginning of a long unfinished line if it belongs to a paragraph."""
        line = "".join(self._partial)
        if self._within or self._is_prose(line[:200]):
            self._partial, self._length, self._look = [], 0, MAX_OPEN_CHARS // 10
            self._line(line, ended=False)
        else:
            self._partial, self._look = [line], 2 * len(line)

    def _is_prose(self, beginning: str) -> bool:
        """Return True if a line with this beginning belongs to a paragraph, however it ends."""
        if "|" in beginning or (self._leaf and self._leaf.kind != "text"):
            return False
        copied = self._copy()
        copied._line(beginning)
        return copied._leaf is not None and copied._leaf.kind == "text"

    def _line(self, line: str, *, ended: bool = True) -> None:
        leaf = self._leaf
        if self._within and leaf is not None:
            self._add(leaf, line, joined=True)
        else:
            depth, rest = self._match(line)
            outside = depth < len(self._around)
            if leaf is not None and leaf.fence and not outside:
                self._in_fence(leaf, rest)
            elif not rest.strip():
                self._empty(depth, rest)
            elif outside and leaf is not None and leaf.kind == "text" and not starts_block(rest):
                # A lazy continuation: less indented, but part of the paragraph.
                self._add(leaf, rest.lstrip(" "))
            else:
                self._close(depth)
                self._start(self._enter(rest))
        self._within = not ended

    def _match(self, line: str) -> tuple[int, str]:
        """Return how many of the open quotes and items continue in this line, and its rest."""
        rest = line
        for place, around in enumerate(self._around):
            bare = rest.lstrip(" ")
            indent = len(rest) - len(bare)
            if around.is_quote:
                if not bare.startswith(">") or indent > 3:
                    return place, rest
                rest = bare[1:].removeprefix(" ")
            elif indent >= around.column or not bare:
                rest = rest[around.column :]
            elif self._leaf is not None and self._leaf.fence:
                rest = bare  # code less indented than its item
            else:
                return place, rest
        return len(self._around), rest

    def _empty(self, depth: int, rest: str) -> None:
        """Handle a blank line: end the paragraph, and close quotes that do not continue."""
        leaf = self._leaf
        quotes = [n for n, a in enumerate(self._around) if a.is_quote and n >= depth]
        if quotes:
            self._close(quotes[0])
        elif leaf is not None and leaf.kind == "code":
            self._add(leaf, rest[4:])
            return
        self._flush()
        self._blank = True

    def _enter(self, rest: str) -> str:
        """Open the quotes and items that begin in this line; return the rest of the line."""
        while True:
            bare = rest.lstrip(" ")
            indent = len(rest) - len(bare)
            item = item_marker(bare)
            if indent > 3 or (self._leaf is not None and self._leaf.kind == "verbatim"):
                return rest
            if bare.startswith(">"):
                self._flush()
                self._around.append(_Container("▌ "))
                rest = bare[1:].removeprefix(" ")
            elif item and self._may_begin(item):
                self._flush()
                blanks = (
                    len(item[2]) if len(item[2]) < 5 else 1
                )  # with five or more spaces, the rest is an indented code block
                rest = bare[item.start(2) + blanks :]
                mark = "• " if item[1] in "-*+" else bare[: item.start(2)] + " "
                column = indent + item.start(2) + (blanks if rest else 1)
                self._around.append(_Container(mark, column))
            else:
                return rest

    def _may_begin(self, item: re.Match[str]) -> bool:
        """Return True if a list item may begin here. Inside a paragraph, only an item with text
        begins a list, and only after a bullet or the number 1.
        """
        if self._leaf is None or self._leaf.kind != "text":
            return True
        return bool(item.string[item.end() :].strip()) and item[1] in ("-", "*", "+", "1")

    def _start(self, rest: str) -> None:
        """Begin a block with the rest of a line, or continue the open block."""
        bare, leaf = rest.strip(), self._leaf
        indent = len(rest) - len(rest.lstrip(" "))
        if leaf is not None and leaf.kind == "code" and indent < 4:
            self._flush()
            leaf = None
        in_text = leaf is not None and leaf.kind == "text"
        if not bare:
            return
        if indent > 3 and (leaf is None or leaf.kind == "code"):
            self._add(leaf or self._open("code"), rest[4:])
        elif leaf is not None and leaf.kind == "verbatim":
            self._add(leaf, rest)
        elif fence := FENCE.match(bare):
            opened = self._open("code", fence[2])
            opened.fence, opened.indent = fence[1], indent
        elif heading := HEADING.match(bare):
            text = CLOSING.sub("", bare[heading.end() :]).strip()
            self._open("heading", str(heading.end())).lines.append(text)
            self._flush()
        elif leaf is not None and in_text and leaf.begins and (line := UNDERLINE.match(bare)):
            leaf.kind, leaf.about = "heading", "1" if line[1][0] == "=" else "2"
            self._flush()
        elif RULE.match(bare):
            self._open("rule")
            self._flush()
        elif leaf is not None and in_text and leaf.lines and is_table(leaf.lines[-1], bare):
            self._to_table(leaf, bare)
        elif leaf is not None:
            self._add(leaf, rest.lstrip(" "))
        else:
            self._add(self._open("verbatim" if VERBATIM.match(bare) else "text"), rest.lstrip(" "))

    def _in_fence(self, leaf: _Leaf, line: str) -> None:
        bare = line.strip()
        if bare.startswith(leaf.fence) and not bare.strip(leaf.fence[0]):
            self._flush()
        else:
            indent = len(line) - len(line.lstrip(" "))
            self._add(leaf, line[min(indent, leaf.indent) :])

    def _open(self, kind: BlockKind, about: str = "") -> _Leaf:
        self._flush()
        leaf = self._leaf = _Leaf(kind, self._blank or not self._around, about)
        self._blank = False
        return leaf

    def _add(self, leaf: _Leaf, line: str, *, joined: bool = False) -> None:
        if joined and leaf.lines:
            leaf.lines[-1] += line
        else:
            leaf.lines.append(line)
        leaf.size += len(line) + 1
        if leaf.kind == "text":
            if leaf.size > MAX_OPEN_CHARS:
                self._cut_text(leaf)
        elif leaf.kind == "table":
            if len(leaf.lines) >= (TABLE_SAMPLE_ROWS if leaf.begins else CODE_PART_LINES):
                self._part(leaf)
        else:
            leaf.comment = open_comment(leaf.comment, line.strip())
            if (
                len(leaf.lines) >= (MAX_COMMENT_PART_LINES if leaf.comment else CODE_PART_LINES)
                and line.strip()
            ):
                self._part(leaf)

    def _cut_text(self, leaf: _Leaf) -> None:
        """Emit the beginning of a long paragraph."""
        text = "\n".join(leaf.lines)
        while len(text) > MAX_OPEN_CHARS:
            at = best_cut(text[:MAX_OPEN_CHARS])
            leaf.lines = [text[:at]]
            self._part(leaf)
            text = text[at:]
        leaf.lines, leaf.size = text.split("\n"), len(text)

    def _to_table(self, leaf: _Leaf, columns: str) -> None:
        *before, head = leaf.lines
        if before or not leaf.begins:
            leaf.lines = before
            leaf = self._open("table")
            leaf.gap = False
        leaf.kind, leaf.lines = "table", [head, columns]

    def _part(self, leaf: _Leaf) -> None:
        """Emit the lines of the block so far as a part."""
        self._emit(leaf, "\n".join(leaf.lines), ends=leaf.kind != "text")
        leaf.lines, leaf.size, leaf.begins = [], 0, False

    def _flush(self) -> None:
        """End the block and emit it."""
        leaf, self._leaf = self._leaf, None
        if leaf is not None:
            text = "\n".join(leaf.lines)
            self._emit(leaf, text.rstrip() if leaf.kind == "code" else text)

    def _emit(self, leaf: _Leaf, text: str, *, ends: bool = True) -> None:
        goes_on = leaf.kind == "text" and not leaf.begins
        if leaf.kind == "text":
            text = text.strip() if ends else text.lstrip()
        if not (text or goes_on) and leaf.kind != "rule":
            return
        gap = None
        if leaf.gap and leaf.begins:
            gap = "".join(around.hang for around in self._around if around.seen).rstrip()
        *_, inner = [None, *self._around]
        marks = [around.hang if around.seen else around.mark for around in self._around]
        task = TASK.match(text) if leaf.kind == "text" else None
        if task and inner and not inner.seen and not inner.is_quote:
            box = "☐ " if task[1] == " " else "☑ "
            marks[-1] = box if inner.mark == "• " else inner.mark + box
            text = text[task.end() :]
        hang = "".join(around.hang for around in self._around)
        for around in self._around:
            around.seen = True
        lead = "".join(marks)
        self._out.append(Piece(leaf.kind, text, lead, hang, gap, leaf.begins, ends, leaf.about))

    def _close(self, depth: int) -> None:
        """Close the quotes and items from `depth` on, and the block in them."""
        if depth >= len(self._around):
            return
        self._flush()
        inner = self._around[-1]
        if not inner.seen and not inner.is_quote:  # an item without text
            lead = "".join(a.hang if a.seen else a.mark for a in self._around)
            self._out.append(Piece("text", "", lead, ""))
        del self._around[depth:]
