"""Syntax-highlighted code. Code may arrive in parts: the lexer state is kept between parts, so that
no part is lexed twice.
"""

from copy import copy
from itertools import groupby
from operator import itemgetter
from typing import Any

from pygments.lexer import ExtendedRegexLexer, Lexer, LexerContext, RegexLexer
from pygments.lexers import get_lexer_by_name, get_lexer_for_filename
from pygments.token import _TokenType
from pygments.util import ClassNotFound
from rich.cells import cell_len, chop_cells
from rich.text import Text

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
    """Fold a line into rows of `width` cells, also inside words. All spaces are kept."""
    if cell_len(line.plain) <= width:
        return [line]
    ends, at = [], 0
    for row in chop_cells(line.plain, width):
        at += len(row)
        ends.append(at)
    return list(line.divide(ends[:-1]))
