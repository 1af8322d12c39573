"""Code in the colours of its language. It may arrive in parts: what the lexer knows at the end of
one holds at the beginning of the next, so that each part is looked at once."""

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
    """The code of one fence or one file, in roles of the theme."""

    def __init__(self, lexer: Lexer | None) -> None:
        self._lexer = lexer
        self._context = LexerContext("", 0) if lexer and _is_steady(lexer) else None

    def take(self, code: str) -> Text:
        """The next part, of whole lines without the last line's end."""
        tokens = ((theme.token(kind), value) for kind, value in self._tokens(f"{code}\n"))
        text = Text(end="")
        for role, run in groupby(tokens, key=itemgetter(0)):
            text.append("".join(value for _, value in run), role)
        text.right_crop(1)
        return text

    def twin(self) -> "Code":
        """Another one that knows the same."""
        twin = copy(self)
        if self._context is not None:
            twin._context = copy(self._context)
            twin._context.stack = list(self._context.stack)
        return twin

    def _tokens(self, code: str) -> list[tuple[Any, str]]:
        if self._lexer is None:
            return [(_TokenType(), code)]
        if self._context is None:
            return [(kind, value) for _, kind, value in self._lexer.get_tokens_unprocessed(code)]
        self._context.text, self._context.pos, self._context.end = code, 0, len(code)
        found = ExtendedRegexLexer.get_tokens_unprocessed(self._lexer, context=self._context)
        return [(kind, value) for _, kind, value in found]


def _is_steady(lexer: Lexer) -> bool:
    """Whether the lexer can go on where it stopped: all it knows is in its stack of states. One
    that acts by functions of its own may know more, and may not say how far it is."""
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
    """The lexer of a language; None for one that is not known."""
    try:
        return get_lexer_by_name(language) if language else None
    except ClassNotFound:
        return None


def lexer_for(path: str) -> Lexer | None:
    """The lexer for a file, by its name."""
    try:
        return get_lexer_for_filename(path.rpartition("/")[2]) if path else None
    except ClassNotFound:
        return None


def folded(line: Text, width: int) -> list[Text]:
    """One line in rows of so many cells, cut wherever one is full: in code each blank counts."""
    if cell_len(line.plain) <= width:
        return [line]
    ends, at = [], 0
    for row in chop_cells(line.plain, width):
        at += len(row)
        ends.append(at)
    return list(line.divide(ends[:-1]))
