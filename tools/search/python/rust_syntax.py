"""Rust's syntax of patterns (https://docs.rs/regex/latest/regex/#syntax)."""

import re

from .char_sets import SPACE, CharSet, combined, is_word, ranges_of
from .pattern_parser import CONTROLS, PatternParser
from .pattern_parts import Assertion, OneOf, PatternError, PatternPart, Repeat
from .properties import POSIX, posix_ranges

_BOUNDARIES = {
    "start": "word_start",
    "end": "word_end",
    "start-half": "word_start_half",
    "end-half": "word_end_half",
}
_ASSERTIONS = {
    "B": "not_word_edge",
    "A": "text_start",
    "z": "text_end",
    "<": "word_start",
    ">": "word_end",
}
_SPECIAL_BOUNDARY = re.compile(r"\{([-A-Za-z]+)(\}?)")
_NAME = re.compile(r"[^\W\d][\w.\[\]]*")
_POSIX_CLASS = re.compile(r"\[:(\^?)(\w+):\]")
_HEX_DIGITS = {"x": 2, "u": 4, "U": 8}
_OPERATIONS = ("&&", "--", "~~")


class RustParser(PatternParser):
    letters = "imsUuxR"
    max_repeat = 1 << 31
    needs_low = True
    _names: frozenset[str] = frozenset()

    def repeated(self, part: PatternPart) -> PatternPart:
        while self.skipped_to_next() and self.text[self.at] in "*+?{":
            bounds = self.simple_bounds()
            if bounds is None:
                raise PatternError("repetition in braces without a number; escape the brace")
            part = _merged(self.with_mode(part, bounds, "?" if self.took("?") else ""))
        return part

    def open_brace(self) -> PatternPart:
        raise PatternError("nothing to repeat before {; escape the brace")

    def end_without_m(self) -> str:
        return "text_end"

    def literal(self, character: str) -> PatternPart:
        if self.by_line and character in "\r\n":
            raise PatternError("a line end in a search by line")
        return super().literal(character)

    def group(self) -> PatternPart | None:
        if not self.took("?"):
            return self.closed()
        if self.took("P<") or self.took("<"):
            name = self.upto(">", "name of a group")
            if not _NAME.fullmatch(name) or name in self._names:
                raise PatternError(f"invalid name of a group: {name!r}")
            self._names |= {name}
            return self.closed()
        part = self.flagged()
        if part is None and self.skipped_to_next() and self.text[self.at] in "*+?{":
            raise PatternError("nothing to repeat after flags")
        return part

    def check_flags(self, written: str) -> None:
        names = written.replace("-", "")
        if written.endswith("-") or len(set(names)) < len(names):
            raise PatternError(f"invalid flags: {written!r}")

    def escape(self) -> PatternPart:
        letter = self._letter()
        if letter == "b":
            return Assertion(self._boundary())
        if letter in _ASSERTIONS:
            return Assertion(self._for_bytes(_ASSERTIONS[letter]))
        if chars := self._class_of(letter):
            return OneOf(chars, False)
        return self.literal(self._character(letter))

    def _letter(self) -> str:
        """Return the character behind a backslash and move behind it."""
        if self.at >= len(self.text) - 1:  # the last parenthesis is ripgrep's
            raise PatternError("incomplete escape sequence")
        self.at += 1
        return self.text[self.at - 1]

    def _boundary(self) -> str:
        found = _SPECIAL_BOUNDARY.match(self.text, self.at)
        if not found:
            return self._for_bytes("word_edge")
        if not found[2] or found[1] not in _BOUNDARIES:
            raise PatternError("unknown boundary after \\b; escape the brace")
        self.at = found.end()
        return self._for_bytes(_BOUNDARIES[found[1]])

    def _for_bytes(self, name: str) -> str:
        """Return the name of an assertion; another one without the flag u."""
        return name if "u" in self.flags or "word" not in name else f"ascii_{name}"

    def _class_of(self, letter: str) -> CharSet | None:
        """Return the class of an escape such as `\\d`; None if it stands for one character."""
        if letter in "pP":
            chars = self.cased(self.properties.rust(self._property_name()))
        elif "u" not in self.flags and letter in "dDsSwW":
            names = {"d": "digit", "s": "space", "w": "word"}
            chars = CharSet(posix_ranges(names[letter.lower()]))
        elif letter in "dD":
            chars = CharSet(native={r"\d": str.isdecimal})
        elif letter in "sS":
            chars = CharSet(SPACE)
        elif letter in "wW":
            chars = CharSet(native={r"\w": is_word})
        else:
            return None
        chars.negated ^= letter.isupper()
        return chars

    def _property_name(self) -> str:
        if self.took("{"):
            return self.upto("}", "name of a property")
        return self._letter()

    def _character(self, letter: str) -> str:
        if letter in _HEX_DIGITS:
            found = self.hexadecimal(_HEX_DIGITS[letter])
            if "u" not in self.flags and letter == "x" and not found.isascii():
                raise PatternError("bytes that are not ASCII are not supported")
            return found
        if letter in CONTROLS or letter == "v":
            return CONTROLS.get(letter, "\v")
        if letter.isascii() and not letter.isalnum() and letter not in "<>":
            return letter
        raise PatternError(f"unknown escape sequence \\{letter}")

    def char_class(self) -> CharSet:
        """Parse a class behind its bracket: ranges, nested classes, and set operations."""
        negated = self.took("^")
        left, operation, chars = None, "", CharSet()
        self.skipped_to_next()
        while self.took("-"):
            chars.add(CharSet(ranges_of("-")))
        if chars.ranges == [] and self.took("]"):
            chars.add(CharSet(ranges_of("]")))
        while self.skipped_to_next() and not self.took("]"):
            found = self.text[self.at : self.at + 2]
            if found not in _OPERATIONS:
                chars.add(self._item())
                continue
            self.at += 2
            chars = self.cased(chars)
            left, operation = combined(operation, left, chars) if left else chars, found
            chars = CharSet()
        if not self.text.endswith("]", 0, self.at):
            raise PatternError("unclosed character class")
        chars = self.cased(chars)
        chars = combined(operation, left, chars) if left else chars
        chars.negated = negated
        return chars

    def _item(self) -> CharSet:
        """Parse a nested class, a class escape, a range or a character."""
        if self.took("["):
            self.at -= 1
            if (found := _POSIX_CLASS.match(self.text, self.at)) and found[2] in POSIX:
                self.at = found.end()
                chars = self.cased(CharSet(posix_ranges(found[2])))
                chars.negated = bool(found[1])
                return chars
            self.at += 1
            return self.char_class()
        first = self._member()
        self.skipped_to_next()
        rest = self.text[self.at : self.at + 2]
        if not rest.startswith("-") or rest == "--" or self._is_last_dash():
            return first if isinstance(first, CharSet) else CharSet(ranges_of(first))
        self.at += 1
        self.skipped_to_next()
        last = self._member()
        if isinstance(first, CharSet) or isinstance(last, CharSet) or last < first:
            raise PatternError("invalid range in a character class")
        return CharSet([(ord(first), ord(last))])

    def _member(self) -> CharSet | str:
        """Parse a character, or an escape that may be a class."""
        if self.at >= len(self.text):
            raise PatternError("unclosed character class")
        self.at += 1
        character = self.text[self.at - 1]
        if character != "\\":
            return character
        letter = self._letter()
        return self._class_of(letter) or self._character(letter)

    def _is_last_dash(self) -> bool:
        """Return True if the dash that comes next ends the class."""
        place = self.at
        self.at += 1
        self.skipped_to_next()
        is_last = self.text.startswith("]", self.at)
        self.at = place
        return is_last


def _merged(part: Repeat) -> Repeat:
    """Return one repetition for `a++` and the like, for which `re` would try every division."""
    inner = part.part
    if (
        isinstance(inner, Repeat)
        and (part.high, part.mode) == (inner.high, inner.mode) == (None, inner.mode)
        and max(part.low, inner.low) <= 1
    ):
        return Repeat(inner.part, part.low * inner.low, None, part.mode)
    return part
