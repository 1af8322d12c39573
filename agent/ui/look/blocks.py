"""Markdown that arrives bit by bit, cut into what can be printed for good. A `Piece` is a leaf (a
paragraph, a heading, a table, code) or a part of a long one, with what the lists and quotes around
it put before its lines.

Each line is looked at once, and lines alone decide: what comes out is the same however the text
came in. Nothing waits unseen for a far end: a list goes out item by item, code and tables some
lines at a time, a long paragraph some sentences at a time.
"""

import re
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Literal

from . import grammar

PART, MOST = 8, 100  # lines of code that go out together; where a comment is open
SAMPLE = 30  # rows of a table that say how wide its columns are

Kind = Literal["text", "heading", "rule", "code", "table", "verbatim"]


@dataclass(frozen=True, slots=True)
class Piece:
    """`lead` stands before its first line and `hang` before the others; `gap` is the blank line
    above it, None where there is none. `begins` is false for a later part of a leaf. `about` is
    the language of code, the level of a heading."""

    kind: Kind
    text: str
    lead: str = ""
    hang: str = ""
    gap: str | None = None
    begins: bool = True
    about: str = ""


@dataclass(slots=True)
class _Around:
    """A quote, or an item of a list with the column that its content begins in."""

    mark: str
    column: int = 0
    seen: bool = False  # whether a piece of it went out

    @property
    def is_quote(self) -> bool:
        return not self.column

    @property
    def hang(self) -> str:
        return self.mark if self.is_quote else " " * len(self.mark)


@dataclass(slots=True)
class _Leaf:
    kind: Kind
    gap: bool
    about: str = ""
    lines: list[str] = field(default_factory=list)
    size: int = 0
    begins: bool = True
    fence: str = ""  # what closes it
    indent: int = 0  # of the line that opened it
    comment: str = ""  # what closes the comment that is open in it


class Blocks:
    """Cuts a stream of Markdown. Costs the same for each line, however many came."""

    def __init__(self) -> None:
        self._partial: list[str] = []  # what there is of the unfinished line
        self._length = 0  # of that
        self._look = grammar.LONG  # at which length it is looked at before its end
        self._within = False  # it is the rest of a line that a paragraph has the beginning of
        self._around: list[_Around] = []
        self._leaf: _Leaf | None = None
        self._blank = True  # whether a blank line came since the newest leaf
        self._out: list[Piece] = []

    def feed(self, text: str) -> list[Piece]:
        """The pieces that `text` finishes, in order."""
        *lines, rest = text.split("\n")
        for line in lines:
            whole = "".join([*self._partial, line])
            self._partial, self._length, self._look = [], 0, grammar.LONG
            self._line(whole)
        if rest:
            self._partial.append(rest)
            self._length += len(rest)
            if self._length > self._look:
                self._look_ahead()
        return self._taken()

    def finish(self) -> list[Piece]:
        """What is left, as pieces; the stream has ended."""
        done = self.feed("\n") if self._partial or self._within else []
        self._flush()
        self._close(0)
        self._blank = True
        return done + self._taken()

    def tail(self) -> list[Piece]:
        """What is not finished, as if the stream ended here; never much."""
        partial, leaf = self._beginning(), self._leaf
        if leaf is not None and leaf.fence:
            known = bool(partial.strip().strip(leaf.fence[0]))
        else:
            known = self._within or not grammar.MARKS.match(partial)
        twin = self._twin()
        twin._partial = [partial] if partial and known else []
        return [piece for piece in twin.finish() if piece.text.strip()]

    def _taken(self) -> list[Piece]:
        out, self._out = self._out, []
        return out

    def _twin(self) -> "Blocks":
        twin = copy(self)
        twin._around = [copy(each) for each in self._around]
        twin._leaf = self._leaf and replace(self._leaf, lines=list(self._leaf.lines))
        twin._out = []
        return twin

    def _beginning(self) -> str:
        """Of the unfinished line."""
        kept, length = [], 0
        for each in self._partial:
            kept.append(each)
            length += len(each)
            if length > grammar.LONG:
                break
        return "".join(kept)[: grammar.LONG]

    def _look_ahead(self) -> None:
        """A line without an end: where it is a paragraph's, its beginning can go out."""
        line = "".join(self._partial)
        if self._within or self._is_prose(line[:200]):
            self._partial, self._length, self._look = [], 0, grammar.LONG // 10
            self._line(line, ended=False)
        else:
            self._partial, self._look = [line], 2 * len(line)

    def _is_prose(self, beginning: str) -> bool:
        """Whether a line that begins so is one of a paragraph, however it ends."""
        if "|" in beginning or (self._leaf and self._leaf.kind != "text"):
            return False
        twin = self._twin()
        twin._line(beginning)
        return twin._leaf is not None and twin._leaf.kind == "text"

    # A line

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
            elif outside and leaf is not None and leaf.kind == "text" and not grammar.begins(rest):
                self._add(
                    leaf, rest.lstrip(" ")
                )  # less set in than its paragraph, and part of it yet
            else:
                self._close(depth)
                self._start(self._enter(rest))
        self._within = not ended

    def _match(self, line: str) -> tuple[int, str]:
        """How many of the quotes and items around go on in this line, and the rest of it."""
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
                rest = bare  # code that is less set in than its item
            else:
                return place, rest
        return len(self._around), rest

    def _empty(self, depth: int, rest: str) -> None:
        """A line without text: it ends a paragraph, and the quotes that it is outside of."""
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
        """Go into the quotes and items that begin in this line; what is left of it."""
        while True:
            bare = rest.lstrip(" ")
            indent = len(rest) - len(bare)
            item = (
                None
                if grammar.RULE.match(bare)
                else grammar.BULLET.match(bare) or grammar.NUMBER.match(bare)
            )
            if indent > 3 or (self._leaf is not None and self._leaf.kind == "verbatim"):
                return rest
            if bare.startswith(">"):
                self._flush()
                self._around.append(_Around("▌ "))
                rest = bare[1:].removeprefix(" ")
            elif item and self._may_begin(item):
                self._flush()
                blanks = len(item[2]) if len(item[2]) < 5 else 1  # more of them are code's
                rest = bare[item.start(2) + blanks :]
                mark = "• " if item[1] in "-*+" else bare[: item.start(2)] + " "
                column = indent + item.start(2) + (blanks if rest else 1)
                self._around.append(_Around(mark, column))
            else:
                return rest

    def _may_begin(self, item: re.Match[str]) -> bool:
        """Whether an item may begin here: in the middle of a paragraph not every number is one."""
        if self._leaf is None or self._leaf.kind != "text":
            return True
        return bool(item.string[item.end() :].strip()) and item[1] in ("-", "*", "+", "1")

    def _start(self, rest: str) -> None:
        """What is left of a line: it begins a leaf, or goes on with one."""
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
        elif fence := grammar.FENCE.match(bare):
            opened = self._open("code", fence[2])
            opened.fence, opened.indent = fence[1], indent
        elif heading := grammar.HEADING.match(bare):
            text = grammar.CLOSING.sub("", bare[heading.end() :]).strip()
            self._open("heading", str(heading.end())).lines.append(text)
            self._flush()
        elif leaf is not None and in_text and (line := grammar.UNDERLINE.match(bare)):
            leaf.kind, leaf.about = "heading", "1" if line[1][0] == "=" else "2"
            self._flush()
        elif grammar.RULE.match(bare):
            self._open("rule")
            self._flush()
        elif leaf is not None and in_text and leaf.lines and grammar.is_table(leaf.lines[-1], bare):
            self._to_table(leaf, bare)
        elif leaf is not None:
            self._add(leaf, rest.lstrip(" "))
        else:
            self._add(
                self._open("verbatim" if grammar.VERBATIM.match(bare) else "text"), rest.lstrip(" ")
            )

    def _in_fence(self, leaf: _Leaf, line: str) -> None:
        bare = line.strip()
        if bare.startswith(leaf.fence) and not bare.strip(leaf.fence[0]):
            self._flush()
        else:
            indent = len(line) - len(line.lstrip(" "))
            self._add(leaf, line[min(indent, leaf.indent) :])

    # A leaf

    def _open(self, kind: Kind, about: str = "") -> _Leaf:
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
            if leaf.size > grammar.LONG:
                self._cut_text(leaf)
        elif leaf.kind == "table":
            if len(leaf.lines) >= (SAMPLE if leaf.begins else PART):
                self._part(leaf)
        else:
            leaf.comment = grammar.comment(leaf.comment, line.strip())
            if len(leaf.lines) >= (MOST if leaf.comment else PART) and line.strip():
                self._part(leaf)

    def _cut_text(self, leaf: _Leaf) -> None:
        """Let the beginning of a long paragraph go out."""
        text = "\n".join(leaf.lines)
        while len(text) > grammar.LONG:
            at = grammar.end_of_thought(text[: grammar.LONG])
            leaf.lines = [text[:at]]
            self._part(leaf)
            text = text[at:]
        leaf.lines, leaf.size = text.split("\n"), len(text)

    def _to_table(self, leaf: _Leaf, columns: str) -> None:
        *before, head = leaf.lines
        if before:
            leaf.lines = before
            leaf = self._open("table")
            leaf.gap = False
        leaf.kind, leaf.lines = "table", [head, columns]

    def _part(self, leaf: _Leaf) -> None:
        """Let go out what there is of a leaf."""
        self._emit(leaf, "\n".join(leaf.lines))
        leaf.lines, leaf.size, leaf.begins = [], 0, False

    def _flush(self) -> None:
        """The leaf has ended."""
        leaf, self._leaf = self._leaf, None
        if leaf is not None:
            text = "\n".join(leaf.lines)
            self._emit(leaf, text.rstrip() if leaf.kind == "code" else text)

    def _emit(self, leaf: _Leaf, text: str) -> None:
        if leaf.kind == "text":
            text = text.strip()
        if not text and leaf.kind != "rule":
            return
        gap = None
        if leaf.gap and leaf.begins:
            gap = "".join(around.hang for around in self._around if around.seen).rstrip()
        *_, inner = [None, *self._around]
        marks = [around.hang if around.seen else around.mark for around in self._around]
        task = grammar.TASK.match(text) if leaf.kind == "text" else None
        if task and inner and not inner.seen and not inner.is_quote:
            box = "☐ " if task[1] == " " else "☑ "
            marks[-1] = box if inner.mark == "• " else inner.mark + box
            text = text[task.end() :]
        hang = "".join(around.hang for around in self._around)
        for around in self._around:
            around.seen = True
        self._out.append(Piece(leaf.kind, text, "".join(marks), hang, gap, leaf.begins, leaf.about))

    def _close(self, depth: int) -> None:
        """Leave the quotes and items from `depth` on, and the leaf in them."""
        if depth >= len(self._around):
            return
        self._flush()
        inner = self._around[-1]
        if not inner.seen and not inner.is_quote:  # an item without text
            lead = "".join(a.hang if a.seen else a.mark for a in self._around)
            self._out.append(Piece("text", "", lead, ""))
        del self._around[depth:]
