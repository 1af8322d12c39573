"""Code and diffs as styled rows: syntax highlighting, line numbers, and marks for changes.

A diff line has a + or -, and changes within a line are underlined. Long lines are wrapped, never
cut. Code may arrive in parts: the lexer state is kept between parts, so that no part is lexed
twice.
"""

import re
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import field
from difflib import SequenceMatcher
from itertools import groupby, takewhile
from operator import itemgetter
from typing import Any, Literal

from pygments.lexer import ExtendedRegexLexer, Lexer, LexerContext, RegexLexer
from pygments.lexers import get_lexer_by_name, get_lexer_for_filename
from pygments.token import _TokenType
from pygments.util import ClassNotFound
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from ....tools.system.phrasing import count_of
from ....tools.system.unicode import clean
from ...lazy import dataclass, regex
from . import theme


class Code:
    """The code of one fence or file, styled with theme roles."""

    def __init__(self, lexer: Lexer | None) -> None:
        self._lexer = lexer
        self._context = LexerContext("", 0) if lexer and _is_steady(lexer) else None

    def take(self, code: str) -> Text:
        """Return the next part, made of whole lines, with styles. The last line has no line end."""
        tokens = ((theme.token_role(kind), value) for kind, value in self._tokens(f"{code}\n"))
        text = Text(end="")
        for role, run in groupby(tokens, key=itemgetter(0)):
            text.append("".join(value for _, value in run), role)
        text.right_crop(1)
        return text

    def copy(self) -> "Code":
        """Return a copy that continues from the same state."""
        copied = copy(self)
        if self._context is not None:
            copied._context = copy(self._context)
            copied._context.stack = list(self._context.stack)
        return copied

    def _tokens(self, code: str) -> list[tuple[Any, str]]:
        if self._lexer is None:
            return [(_TokenType(), code)]
        if self._context is None:
            return [(kind, value) for _, kind, value in self._lexer.get_tokens_unprocessed(code)]
        self._context.text, self._context.pos, self._context.end = code, 0, len(code)
        found = ExtendedRegexLexer.get_tokens_unprocessed(self._lexer, context=self._context)
        return [(kind, value) for _, kind, value in found]


def _is_steady(lexer: Lexer) -> bool:
    """Return True if the lexer can continue where it stopped, because its whole state is its stack.
    A lexer with callback functions may have more state.
    """
    if isinstance(lexer, ExtendedRegexLexer):
        own = type(lexer).get_tokens_unprocessed
        return bool(own is ExtendedRegexLexer.get_tokens_unprocessed)
    if not isinstance(lexer, RegexLexer):
        return False
    rules = getattr(lexer, "_tokens", {})
    actions = {action for state in rules.values() for _, action, _ in state}
    return all(
        action is None
        or isinstance(action, _TokenType)
        or getattr(action, "__module__", "") == "pygments.lexer"
        for action in actions
    )


def lexer_named(language: str) -> Lexer | None:
    """Return the lexer of a language; None for an unknown one."""
    try:
        return get_lexer_by_name(language) if language else None
    except ClassNotFound:
        return None


def lexer_for(path: str) -> Lexer | None:
    """Return the lexer for a file name; None for an unknown file type."""
    try:
        return get_lexer_for_filename(path.rpartition("/")[2]) if path else None
    except ClassNotFound:
        return None


def fold_line(line: Text, width: int) -> list[Text]:
    """Fold a line into rows of `width` cells, between words where they fit. All spaces are kept."""
    if cell_len(line.plain) <= width:
        return [line]
    ends, at, filled = list[int](), 0, 0
    for part in _foldable(line.plain, width):
        cells = cell_len(part)
        if filled + cells > width:
            ends.append(at)
            filled = 0
        at, filled = at + len(part), filled + cells
    return list(line.divide(ends))


def _foldable(text: str, width: int) -> Iterator[str]:
    """Yield the parts of a line between which it may be folded, each of at most `width` cells."""
    for word in _SPACED.findall(text):
        if cell_len(word) <= width:
            yield word
        else:
            for part in _WORD.findall(word):
                yield from [part] if cell_len(part) <= width else part


FOLDED_LINES, FOLDED_NEW_FILE_LINES = 40, 12
MIN_SIMILARITY = 0.5  # at which two lines count as one changed line
MAX_COMPARED_CHARS = 500  # longer lines are not compared word by word
INDENT_CELLS = 2

_HUNK = regex(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_GIT = regex(r"diff --git .* b/(.*)")
_WORD = regex(r"\w+|\s+|[^\w\s]")
_SPACED = regex(r"^\s*\S+|\s+|\S+")  # an indentation stays with its word
_STYLES = {"+": "added", "-": "removed"}


@dataclass(slots=True)
class _Line:
    # Added, removed, unchanged, omitted lines, file name, remark.
    mark: Literal["+", "-", " ", "@", "=", "!"]
    text: str
    number: int = 0
    shown: Text = field(default_factory=Text)


@dataclass(slots=True)
class _Hunk:
    """A hunk that is being parsed. It counts its remaining lines, because a line of the hunk may
    look like a file name.
    """

    old: int  # next line number before the change; 0 if not known
    new: int  # next line number after the change
    old_left: int
    new_left: int

    @property
    def is_over(self) -> bool:
        return self.old_left <= 0 and self.new_left <= 0

    def take(self, line: str) -> _Line:
        mark = line[0]
        taken = _Line("-", line[1:], self.old)
        if mark != "-":
            taken = _Line("+" if mark == "+" else " ", line[1:], self.new)
            self.new, self.new_left = self.new + bool(self.new), self.new_left - 1
        if mark != "+":
            self.old, self.old_left = self.old + bool(self.old), self.old_left - 1
        return taken


@dataclass(frozen=True, slots=True)
class DiffView:
    """Lines of a diff as rows with numbers and marks."""

    lines: Sequence[_Line]
    hidden: str = ""  # number of hidden lines, and how to see them

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        digits = len(str(max((line.number for line in self.lines), default=0)))
        for line in self.lines:
            yield from self._rows(line, digits, options.max_width)
        if self.hidden:
            yield Text(f"{' ' * INDENT_CELLS}{self.hidden}", style="dim")

    def _rows(self, line: _Line, digits: int, width: int) -> Iterator[Text]:
        if line.mark == "=":
            yield Text(f"{' ' * INDENT_CELLS}{line.text}", style="bold")
            return
        if line.mark in "@!":
            yield Text(f"{' ' * (INDENT_CELLS + digits + 1)}{line.text}", style="dim")
            return
        style = _STYLES.get(line.mark, "dim")
        number = str(line.number) if line.number else ""
        gutter = f"{' ' * INDENT_CELLS}{number:>{digits}} {line.mark} "
        room = max(width - cell_len(gutter), 1)
        for place, row in enumerate(fold_line(line.shown, room)):
            start = Text(" " * len(gutter) if place else gutter, style=style)
            start.no_wrap, start.overflow = True, "ignore"
            yield Text.assemble(start, row, no_wrap=True, overflow="ignore")


def diff(text: str, *, fold: bool = False, path: str = "", unfold_hint: str = "") -> DiffView:
    """Return a unified diff, from git or from the agent, as rows. `fold` keeps only the first
    lines, and `unfold_hint` says how to see the rest. Pass `path` if a headline already names the
    file.
    """
    lines = list(_parsed(clean(text), path))
    if path and sum(line.mark == "=" for line in lines) == 1:
        lines = [line for line in lines if line.mark != "="]
    limit = len(lines)
    if fold:
        limit = FOLDED_NEW_FILE_LINES if all(x.mark in "+@!" for x in lines) else FOLDED_LINES
    kept = lines[:limit] if len(lines) > limit + 1 else lines
    named = re.search(r"^\+\+\+ b/([^\t\n]+)", text, re.MULTILINE)
    _colour(kept, named[1] if named else path)
    _emphasise(kept)
    left = len(lines) - len(kept)
    return DiffView(kept, f"… +{count_of(left, 'line')}{unfold_hint}" if left else "")


def _parsed(text: str, path: str) -> Iterator[_Line]:
    lines = text.rstrip("\n").split("\n")
    hunk: _Hunk | None = None
    named = -1  # index of the second file name line
    by_git = False  # whether git wrote the diff, with a line per file name
    for place, line in enumerate(lines):
        following = lines[place + 1] if place + 1 < len(lines) else ""
        free = hunk is None or hunk.is_over
        if free and (git := _GIT.match(line)):
            hunk, by_git = None, True
            yield _Line("=", git[1])
        elif by_git and hunk is None and line.startswith(("index ", "--- ", "+++ ")):
            continue
        elif by_git and hunk is None and not _HUNK.match(line):
            yield _Line("!", line)
        elif found := _HUNK.match(line):
            if hunk is not None:
                yield _Line("@", "⋯")
            hunk = _Hunk(int(found[1]), int(found[3]), int(found[2] or 1), int(found[4] or 1))
        elif free and line[:4] + following[:4] == "--- +++ ":
            hunk, named = None, place + 1
            yield _Line("=", _named(following, line) or path)
        elif line[:1] in ("+", "-", " ") and line and place != named:
            yield (hunk or _Hunk(0, 0, 0, 0)).take(line)
        elif hunk is not None and line:
            yield _Line("!", line.removeprefix("\\ "))


def _named(after: str, before: str) -> str:
    """Return the file named in the two lines above a hunk."""
    for line in (after, before):
        name = line[4:].split("\t")[0]
        if name != "/dev/null":
            return name.removeprefix("b/") if line is after else name.removeprefix("a/")
    return ""


def _colour(lines: Sequence[_Line], path: str) -> None:
    """Highlight each side of each hunk as separate code."""
    start, named = 0, path
    for end in range(len(lines) + 1):
        if end < len(lines) and lines[end].mark not in "@=":
            continue
        for side in ("+ ", "-"):
            chosen = [line for line in lines[start:end] if line.mark in side]
            # The old side is lexed with its context, but only removed lines are coloured.
            read = chosen if side == "+ " else [x for x in lines[start:end] if x.mark in "- "]
            code = Code(lexer_for(named)).take("\n".join(line.text for line in read))
            for line, shown in zip(read, code.split("\n", allow_blank=True), strict=False):
                if line.mark in side:
                    line.shown = _show_trailing_spaces(line, shown)
        if end < len(lines) and lines[end].mark == "=":
            named = lines[end].text
        start = end + 1


def _show_trailing_spaces(line: _Line, shown: Text) -> Text:
    """Show trailing spaces of a changed line as dots."""
    bare = shown.plain.rstrip(" ")
    blanks = len(shown.plain) - len(bare)
    if line.mark == " " or not blanks:
        return shown
    return Text.assemble(shown[: len(bare)], ("·" * blanks, "dim"))


def _emphasise(lines: Sequence[_Line]) -> None:
    """Underline the changes within similar lines."""
    place = 0
    while place < len(lines):
        removed = _run(lines, place, "-")
        added = _run(lines, place + len(removed), "+")
        for before, after in zip(removed, added, strict=False):
            _compare(before, after)
        place += max(1, len(removed) + len(added))


def _run(lines: Sequence[_Line], start: int, mark: str) -> list[_Line]:
    return list(takewhile(lambda line: line.mark == mark, lines[start:]))


def _compare(before: _Line, after: _Line) -> None:
    if max(len(before.text), len(after.text)) > MAX_COMPARED_CHARS:
        return
    old, new = _WORD.findall(before.text), _WORD.findall(after.text)
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    if matcher.ratio() < MIN_SIMILARITY:
        return
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag != "equal":
            _underline(before.shown, old, a, b)
            _underline(after.shown, new, c, d)


def _underline(shown: Text, words: Sequence[str], first: int, end: int) -> None:
    start = sum(map(len, words[:first]))
    length = sum(map(len, words[first:end]))
    if length:
        shown.stylize("bold underline", start, start + length)
