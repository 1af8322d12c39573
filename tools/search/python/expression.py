r"""Find the matches of a pattern in texts with Python's `re`.

A pattern needs different expressions for different texts: `re` has another `\w` than Rust and
PCRE2, no properties such as `\p{Greek}`, and only one kind of line end. So an expression is made
for each kind of text that occurs, and kept. In ASCII text, all classes are exact. In other text, a
class that `re` does not have is written out for the characters that occur in the text.

Write a parsed pattern as an expression of Python's `re` for one kind of text.
"""

import re
from collections.abc import Iterator, Sequence

from .char_sets import (
    CharSet,
    Ranges,
    complement,
    is_native_word,
    is_pcre_word,
    is_word,
    joined,
    ranges_of,
    within,
)
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
    PatternError,
    PatternPart,
    Repeat,
    all_parts,
    can_cross_lines,
    required_texts,
)
from .pcre_syntax import PcreParser
from .properties import Properties
from .rust_syntax import RustParser

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


MAX_KEPT = 200  # expressions


class SearchText:
    """A decoded text, with what an expression depends on. Bytes that are not UTF-8 are decoded as
    lone surrogates (`surrogateescape`).
    """

    __slots__ = ("has_returns", "has_stray_bytes", "is_ascii", "text")

    def __init__(self, text: str, *, has_stray_bytes: bool = False) -> None:
        self.text = text
        self.is_ascii = text.isascii()
        self.has_stray_bytes = has_stray_bytes
        self.has_returns = "\r" in text

    def other_characters(self) -> frozenset[str]:
        """Return the characters that are not ASCII."""
        data = self.text.encode("utf-8", "surrogateescape").translate(None, bytes(range(0x80)))
        return frozenset(data.decode("utf-8", "surrogateescape"))


class Expression:
    """A pattern in Rust's syntax or, if Rust does not accept it, in PCRE2's."""

    def __init__(self, pattern: str, *, by_line: bool, ignore_case: bool, table: str) -> None:
        """Parse the pattern. Raises PatternError if it is not valid in either syntax.

        `by_line` excludes matches with line ends. `table` has the properties that Python lacks.
        """
        flags = "mu" + ("i" if ignore_case else "") + ("" if by_line else "s")
        properties = Properties(table)
        self.is_pcre = False
        try:
            self._part = RustParser(pattern, flags, properties, by_line=by_line).parse()
        except PatternError:
            self._part = PcreParser(pattern, flags, properties, by_line=by_line).parse()
            self.is_pcre = True
        self._by_line = by_line
        parts = list(all_parts(self._part))
        sets = [part.chars for part in parts if isinstance(part, OneOf)]
        assertions = {part.name for part in parts if isinstance(part, Assertion)}
        is_whole = self.is_pcre or not assertions.isdisjoint({"text_start", "text_end"})
        self.crosses_lines = not by_line and (is_whole or can_cross_lines(self._part))
        # By line, ripgrep gives each line to PCRE2 as a text of its own, and to Rust if a pattern
        # names the start or end of the text.
        self.needs_single_lines = by_line and is_whole
        # These find a place between \r and \n.
        self.sees_returns = self.needs_single_lines or not assertions.isdisjoint(
            {"not_word_edge", "word_start_half", "word_end_half"}
        )
        # PCRE2 begins no match between \r and \n, unless the pattern names one of them.
        self._skips_line_ends = self.is_pcre and not any(
            isinstance(part, Literal) and part.character in "\r\n" for part in parts
        )
        self._has_tests = any(chars.tests for chars in sets)
        self._has_words = any("word" in name for name in assertions) or any(
            {r"\w", r"\W"} & {*chars.native} for chars in sets
        )
        self._has_references = any(isinstance(part, BackReference | Condition) for part in parts)
        self._is_word = is_pcre_word if self.is_pcre else is_word
        self._kept: dict[object, re.Pattern[str]] = {}
        self.for_text(SearchText(""))  # raises PatternError if `re` does not accept it

    def required(self, *, folded: bool) -> tuple[str, ...]:
        """Return texts of which each match contains at least one; () if there are none. With
        `folded`, they are in lower case and hold for ASCII text in lower case.
        """
        return tuple(required_texts(self._part, folded=folded))

    def for_text(self, text: SearchText) -> re.Pattern[str]:
        """Return the expression that finds the matches in a text."""
        alphabet: frozenset[str] | None = None
        if not text.is_ascii and (self._has_tests or self._has_words):
            others = text.other_characters()
            if self._has_tests or any(self._is_word(c) != is_native_word(c) for c in others):
                alphabet = others
        key = (text.is_ascii, text.has_returns, text.has_stray_bytes, alphabet)
        found = self._kept.get(key)
        if found is None:
            if len(self._kept) >= MAX_KEPT:
                self._kept.clear()
            found = self._kept[key] = self._compiled(text, alphabet)
        return found

    def _compiled(self, text: SearchText, alphabet: frozenset[str] | None) -> re.Pattern[str]:
        writer = ExpressionWriter(
            CharSet(native={r"\w": self._is_word}),
            is_pcre=self.is_pcre,
            excludes_line_ends=self._by_line and not self.is_pcre,
            has_references=self._has_references,
            is_ascii=text.is_ascii,
            has_returns=text.has_returns,
            has_stray_bytes=text.has_stray_bytes,
            alphabet=alphabet,
        )
        flags = re.MULTILINE | (re.ASCII if text.is_ascii else 0)
        start = r"(?!(?<=\r)\n)" if self._skips_line_ends and text.has_returns else ""
        try:
            return re.compile(start + writer.written(self._part), flags)
        except (re.error, OverflowError, RecursionError) as error:
            raise PatternError(str(error)) from None
