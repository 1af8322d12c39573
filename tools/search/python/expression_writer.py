"""Write a parsed pattern as an expression of Python's `re` for one kind of text."""

import re
from collections.abc import Iterator, Sequence

from .char_sets import CharSet, Ranges, complement, joined, ranges_of, within
from .pattern_parts import (
    Alternation,
    AnyCharacter,
    Assertion,
    Atomic,
    BackReference,
    CaptureGroup,
    Chain,
    Condition,
    Literal,
    LookAround,
    OneOf,
    PatternPart,
    Repeat,
)

ASCII: Ranges = [(0, 0x7F)]
LINE_ENDS: Ranges = [(0x0A, 0x0A), (0x0D, 0x0D)]
STRAY_BYTES: Ranges = [(0xDC80, 0xDCFF)]  # bytes that are not UTF-8, as Python decodes them
_NOTHING = "(?!)"

# {w} stands for a character of a word.
_PLACES = {
    "text_start": r"\A",
    "text_end": r"\Z",
    "last_line_end": r"(?=(?:\r?\n|\r)?\Z)",
    "word_start": "(?<!{w})(?={w})",
    "word_end": "(?<={w})(?!{w})",
    "word_start_half": "(?<!{w})",
    "word_end_half": "(?!{w})",
    "word_edge": "(?:(?<!{w})(?={w})|(?<={w})(?!{w}))",
    "not_word_edge": "(?:(?<!{w})(?!{w})|(?<={w})(?={w}))",
}
_QUICK_PLACES = {"word_edge": r"\b", "not_word_edge": r"(?!\b)"}
# ripgrep treats a \r as a line end, too. Only PCRE2 finds a place between \r and \n.
_LINES = {"line_start": "^", "line_end": "$"}
_LINES_WITH_RETURNS = {
    "line_start": r"(?:^|(?<=\r)(?!\n))",
    "line_end": r"(?:(?<!\r)(?=\n)|(?=\r)|\Z)",
}
# Rust finds no such place next to a byte that is not UTF-8.
_PLACES_WITH_STRAYS = {
    "word_start_half": "(?<![{s}])(?<!{w})",
    "word_end_half": "(?![{s}])(?!{w})",
    "not_word_edge": "(?<![{s}])(?![{s}])(?:(?<!{w})(?!{w})|(?<={w})(?={w}))",
}
_PCRE_LINES = {
    "line_start": r"(?:\A|(?<=[\r\n])(?!\Z))",
    "line_end": r"(?=[\r\n]|\Z)",
}


class ExpressionWriter:
    """Writes expressions for one kind of text.

    `word` is the class of the characters of words. `alphabet` has the characters of the text that
    are not ASCII, if classes are written out for them.
    """

    def __init__(
        self,
        word: CharSet,
        *,
        is_pcre: bool,
        excludes_line_ends: bool,
        has_references: bool,
        is_ascii: bool,
        has_returns: bool,
        has_stray_bytes: bool,
        alphabet: frozenset[str] | None,
    ) -> None:
        lines = _LINES_WITH_RETURNS if has_returns else _LINES
        quick = _QUICK_PLACES if alphabet is None else {}
        strays = _PLACES_WITH_STRAYS if has_stray_bytes and not is_pcre else {}
        self._places = {**_PLACES, **quick, **strays, **(_PCRE_LINES if is_pcre else lines)}
        self._has_references = has_references
        self._is_ascii = is_ascii
        self._alphabet = alphabet
        self._never: Ranges = joined(
            [*(LINE_ENDS if excludes_line_ends else []), *(STRAY_BYTES if has_stray_bytes else [])]
        )
        ends = has_returns or has_stray_bytes
        self._dot = _bracket(joined([*LINE_ENDS, *self._never]), negated=True) if ends else "."
        self._word = r"\w" if alphabet is None else self._chars(word)

    def written(self, part: PatternPart) -> str:
        match part:
            case Literal():
                return self._literals([part])
            case AnyCharacter():
                return self._any(part)
            case OneOf():
                return self._one_of(part)
            case Assertion():
                return self._place(part.name)
            case Chain():
                return "".join(self._chained(part.parts))
            case Alternation():
                return f"(?:{'|'.join(map(self.written, part.branches))})"
            case CaptureGroup():
                start = f"(?P<g{part.number}>" if self._has_references else "(?:"
                return f"{start}{self.written(part.part)})"
            case Repeat():
                bounds = f"{{{part.low},{'' if part.high is None else part.high}}}"
                return f"(?:{self.written(part.part)}){bounds}{part.mode}"
            case LookAround():
                sign = "" if part.ahead else "<"
                return f"(?{sign}{'!' if part.negative else '='}{self.written(part.part)})"
            case Atomic():
                return f"(?>{self.written(part.part)})"
            case BackReference():
                return f"(?{'i' if part.ignores_case else ''}:(?P=g{part.number}))"
            case Condition():
                then, otherwise = self.written(part.then), self.written(part.otherwise)
                return f"(?(g{part.number}){then}|{otherwise})"
        raise TypeError(part)

    def _chained(self, parts: Sequence[PatternPart]) -> Iterator[str]:
        run: list[Literal] = []
        for part in parts:
            if isinstance(part, Literal):
                run.append(part)
                continue
            yield self._literals(run)
            run = []
            yield self.written(part)
        yield self._literals(run)

    def _literals(self, run: Sequence[Literal]) -> str:
        """Return the expression for literals in a row."""
        out, ignores_case = "", False
        for part in run:
            if self._is_ascii and not part.character.isascii():
                return _NOTHING
            if part.ignores_case != ignores_case:
                out += "(?i:" if part.ignores_case else ")"
                ignores_case = part.ignores_case
            out += re.escape(part.character)
        return f"{out})" if ignores_case else out

    def _any(self, part: AnyCharacter) -> str:
        if not part.crosses_lines:
            return self._dot
        return _bracket(self._never, negated=True) if self._never else "(?s:.)"

    def _place(self, name: str) -> str:
        quick = name.removeprefix("ascii_")
        if quick != name:
            found = {**_PLACES, **_QUICK_PLACES}[quick].replace("{w}", r"\w")
            return f"(?a:{found})"
        strays = "\\udc80-\\udcff"
        return self._places[name].replace("{w}", self._word).replace("{s}", strays)

    def _one_of(self, part: OneOf) -> str:
        found = self._chars(part.chars)
        is_known = self._is_ascii or self._alphabet is not None
        return f"(?i:{found})" if part.ignores_case and not is_known else found

    def _chars(self, chars: CharSet) -> str:
        """Return the expression for a set of characters."""
        if chars.is_plain:
            return self._ranges(chars.all_ranges())
        if self._is_ascii:
            return self._ranges(ranges_of(c for c in map(chr, range(0x80)) if c in chars))
        if self._alphabet is not None:
            known = [*map(chr, range(0x80)), *self._alphabet]
            return self._ranges(ranges_of(c for c in known if c in chars))
        natives = "".join(chars.native)
        if chars.negated:
            return _bracket(joined([*chars.ranges, *self._never]), natives, negated=True)
        found = _bracket(within(chars.ranges, complement(self._never)), natives)
        guard = _bracket(self._never) if self._never and not natives.islower() else ""
        return f"(?!{guard}){found}" if guard else found

    def _ranges(self, ranges: Ranges) -> str:
        """Return the shorter expression for ranges, by members or by the other characters."""
        members = within(ranges, complement(self._never))
        others = complement(members)
        if self._is_ascii:
            members, others = within(members, ASCII), within(others, ASCII)
        if not members:
            return _NOTHING
        if not others:
            return "(?s:.)"
        is_shorter = len(others) < len(members)
        return _bracket(others if is_shorter else members, negated=is_shorter)


def _bracket(ranges: Ranges, natives: str = "", *, negated: bool = False) -> str:
    written = "".join(
        _escaped(first) + (f"-{_escaped(last)}" if last > first else "") for first, last in ranges
    )
    return f"[{'^' if negated else ''}{written}{natives}]"


def _escaped(code: int) -> str:
    return f"\\U{code:08x}" if code > 0x7F else f"\\x{code:02x}"
