r"""Find the matches of a pattern in texts with Python's `re`.

A pattern needs different expressions for different texts: `re` has another `\w` than Rust and
PCRE2, no properties such as `\p{Greek}`, and only one kind of line end. So an expression is made
for each kind of text that occurs, and kept. In ASCII text, all classes are exact. In other text, a
class that `re` does not have is written out for the characters that occur in the text.
"""

import re

from .char_sets import CharSet, is_native_word, is_pcre_word, is_word
from .expression_writer import ExpressionWriter
from .pattern_parts import (
    Assertion,
    BackReference,
    Condition,
    Literal,
    OneOf,
    PatternError,
    all_parts,
    can_cross_lines,
    required_texts,
)
from .pcre_syntax import PcreParser
from .properties import Properties
from .rust_syntax import RustParser

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
