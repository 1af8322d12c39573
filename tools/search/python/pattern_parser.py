"""What the parsers of Rust's and PCRE2's patterns share: groups, flags, repetitions."""

import re

from .char_sets import CharSet, ranges_of
from .pattern_parts import (
    Alternation,
    AnyCharacter,
    Assertion,
    Chain,
    Literal,
    OneOf,
    PatternError,
    PatternPart,
    Repeat,
)
from .properties import Properties

_BRACES = re.compile(r"\{[ \t]*(\d*)[ \t]*(?:(,)[ \t]*(\d*)[ \t]*)?\}")
_SPACE = " \t\n\r\f\v"
_HEX = "0123456789abcdefABCDEF"
CONTROLS = {"n": "\n", "r": "\r", "t": "\t", "a": "\a", "f": "\f"}


class PatternParser:
    """A parser of one dialect. `flags` are the letters of the set flags: i, m, s, x, U, u.

    The subclasses know the dialects' escapes, classes and groups.
    """

    letters = ""  # of the flags
    max_repeat = 0
    needs_low = False  # whether a repetition in braces needs its first number

    def __init__(self, pattern: str, flags: str, properties: Properties, *, by_line: bool) -> None:
        self.text = f"(?:{pattern})"  # as ripgrep does
        self.at = 0
        self.flags = frozenset(flags)
        self.properties = properties
        self.by_line = by_line

    def parse(self) -> PatternPart:
        """Return the parsed pattern. Raises PatternError."""
        part = self.choice()
        if self.at < len(self.text):
            raise PatternError("unopened group")
        return part

    def choice(self) -> PatternPart:
        """Parse alternatives up to the end of their group."""
        branches = [self.chain()]
        while self.took("|"):
            branches.append(self.chain())
        return branches[0] if len(branches) == 1 else Alternation(branches)

    def chain(self) -> PatternPart:
        parts: list[PatternPart] = []
        while self.skipped_to_next() and (character := self.text[self.at]) not in "|)":
            part = self.atom(character)
            if part is not None:
                parts.append(self.repeated(part))
        return parts[0] if len(parts) == 1 else Chain(parts)

    def atom(self, character: str) -> PatternPart | None:
        """Parse the next part; None for flags and comments."""
        self.at += 1
        match character:
            case "(":
                return self.group()
            case "[":
                return OneOf(self.char_class(), self.ignores_case)
            case "\\":
                return self.escape()
            case ".":
                return AnyCharacter("s" in self.flags)
            case "^":
                return Assertion("line_start" if "m" in self.flags else "text_start")
            case "$":
                return Assertion("line_end" if "m" in self.flags else self.end_without_m())
            case "*" | "+" | "?":
                raise PatternError(f"nothing to repeat before {character}")
            case "{":
                return self.open_brace()
        return self.literal(character)

    def repeated(self, part: PatternPart) -> PatternPart:
        raise NotImplementedError

    def group(self) -> PatternPart | None:
        raise NotImplementedError

    def escape(self) -> PatternPart | None:
        raise NotImplementedError

    def char_class(self) -> CharSet:
        raise NotImplementedError

    def open_brace(self) -> PatternPart:
        raise NotImplementedError

    def end_without_m(self) -> str:
        raise NotImplementedError

    @property
    def ignores_case(self) -> bool:
        return "i" in self.flags

    def literal(self, character: str) -> PatternPart:
        if self.ignores_case and character in "\u212a\u017f":  # they have cases in ASCII
            chars = CharSet(ranges_of(character))
            chars.add_cases()
            return OneOf(chars, False)
        return Literal(character, self.ignores_case and character.lower() != character.upper())

    def took(self, text: str) -> bool:
        """Return True and move on if this text comes next."""
        if self.text.startswith(text, self.at):
            self.at += len(text)
            return True
        return False

    def upto(self, end: str, what: str) -> str:
        """Return the text before the next `end`, and move behind it. Raises PatternError."""
        place = self.text.find(end, self.at)
        if place < 0:
            raise PatternError(f"unclosed {what}")
        found, self.at = self.text[self.at : place], place + len(end)
        return found

    def skipped_to_next(self) -> bool:
        """Skip spaces and comments if the flag x is set. Return False at the end."""
        while "x" in self.flags and self.at < len(self.text):
            if self.text[self.at] in _SPACE:
                self.at += 1
            elif self.text[self.at] == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end + 1
            else:
                break
        return self.at < len(self.text)

    def closed(self) -> PatternPart:
        """Parse the rest of a group. Flags that are set in it end with it."""
        before = self.flags
        part = self.choice()
        if not self.took(")"):
            raise PatternError("unclosed group")
        self.flags = before
        return part

    def flagged(self) -> PatternPart | None:
        """Parse flags up to `)` or, with the rest of their group, up to `:`."""
        start, before, negated, flags = self.at, self.flags, False, set(self.flags)
        while self.at < len(self.text) and (letter := self.text[self.at]) not in ":)":
            self.at += 1
            if letter == "-" and not negated:
                negated = True
            elif letter not in self.letters:
                raise PatternError(f"unknown group or flag in (?{self.text[start : self.at]}")
            elif negated:
                flags.discard(letter)
            else:
                flags.add(letter)
        self.check_flags(self.text[start : self.at])
        self.flags = frozenset(flags)
        if self.took(")"):
            return None
        self.at += 1
        part = self.closed()
        self.flags = before
        return part

    def check_flags(self, written: str) -> None:
        """Raise PatternError if the dialect does not allow flags to be written so."""

    def bounds(self) -> tuple[int, int | None] | None:
        """Parse a repetition in braces and move behind it. None if there is none."""
        found = _BRACES.match(self.text, self.at)
        if not found or not (found[1] or (found[3] and not self.needs_low)):
            return None
        self.at = found.end()
        low = int(found[1] or 0)
        high = low if found[2] is None else int(found[3]) if found[3] else None
        if high is not None and high < low:
            raise PatternError("repetition with the larger number first")
        if max(low, high or 0) > self.max_repeat:
            raise PatternError(f"repetition of more than {self.max_repeat:,}")
        return low, high

    def simple_bounds(self) -> tuple[int, int | None] | None:
        """Parse `*`, `+`, `?` or braces."""
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self.took(sign):
                return bounds
        return self.bounds()

    def with_mode(self, part: PatternPart, bounds: tuple[int, int | None], mode: str) -> Repeat:
        """Return a repetition. The flag U exchanges greedy and lazy ones."""
        if "U" in self.flags and mode != "+":
            mode = "" if mode else "?"
        return Repeat(part, *bounds, mode)

    def hexadecimal(self, digits: int) -> str:
        """Return the character of exactly so many digits, or of those in braces."""
        if self.took("{"):
            written = self.upto("}", "character code").strip()
        else:
            written = self.text[self.at : self.at + digits]
            self.at += digits
            if len(written) < digits:
                raise PatternError("character code with too few digits")
        return character_of(written, 16)

    def cased(self, chars: CharSet) -> CharSet:
        """Return a set, with all cases of its members if the case is ignored."""
        if self.ignores_case:
            chars.add_cases()
        return chars


def character_of(digits: str, base: int) -> str:
    """Return the character with a code. Raises PatternError."""
    allowed = _HEX if base == 16 else "01234567"
    if not digits or any(digit not in allowed for digit in digits):
        raise PatternError(f"invalid character code {digits!r}")
    code = int(digits, base)
    if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise PatternError(f"no character has the code {digits}")
    return chr(code)
