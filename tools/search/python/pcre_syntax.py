r"""PCRE2's syntax of patterns (pcre2pattern(3)), as far as Python's `re` can search for it.

Refused are recursion, `\K`, `\G`, `\X`, `\C`, verbs such as `(*SKIP)`, callouts, and groups with
common numbers (`(?|`).
"""

import re

from .char_sets import BLANK, SPACE, VERTICAL, CharSet, is_pcre_word, ranges_of
from .pattern_parser import CONTROLS, PatternParser, character_of
from .pattern_parts import (
    Alternation,
    AnyCharacter,
    Assertion,
    Atomic,
    BackReference,
    CaptureGroup,
    Chain,
    Condition,
    LookAround,
    OneOf,
    PatternError,
    PatternPart,
    forms,
)

_QUOTED = re.compile(r"\\Q(.*?)(?:\\E|\Z)|\\E|\\.", re.DOTALL)
_LOOKS = {"=": (True, False), "!": (True, True), "<=": (False, False), "<!": (False, True)}
_ASSERTIONS = {
    "b": "word_edge",
    "B": "not_word_edge",
    "A": "text_start",
    "z": "text_end",
    "Z": "last_line_end",
}
_CLASSES = {"h": BLANK, "v": VERTICAL, "s": SPACE}
_NAME = re.compile(r"[^\W\d]\w*")
_REFERENCE = re.compile(r"\{\s*([+-]?\w+)\s*\}|<(\w+)>|'(\w+)'|([+-]?\d+)")
_POSIX_CLASS = re.compile(r"\[:(\^?)(\w+):\]")
_OCTAL = re.compile(r"[0-7]{1,3}")
_HEX = re.compile(r"[0-9a-fA-F]{1,2}")
_NUMBER = re.compile(r"[1-9]\d*")


class PcreParser(PatternParser):
    letters = "imsxU"
    max_repeat = 65_535
    _captures = 0
    _is_group = False  # whether the last part was written as a group

    def parse(self) -> PatternPart:
        self.text = _QUOTED.sub(_unquoted, self.text)
        self._names: dict[str, int] = {}
        self._references: list[tuple[BackReference | Condition, str]] = []
        part = super().parse()
        for reference, name in self._references:
            reference.number = int(name) if name.isdecimal() else self._names.get(name, 0)
            if not 0 < reference.number <= self._captures:
                raise PatternError(f"reference to a group that does not exist: {name}")
        return part

    def atom(self, character: str) -> PatternPart | None:
        part = super().atom(character)
        self._is_group = character == "("
        return part

    def skipped_to_next(self) -> bool:
        while super().skipped_to_next():
            if not self.took("(?#"):
                return True
            self.upto(")", "comment")
        return False

    def repeated(self, part: PatternPart) -> PatternPart:
        self.skipped_to_next()
        bounds = self.simple_bounds()
        if bounds is None:
            return part
        if isinstance(part, Assertion) and not self._is_group:
            raise PatternError("quantifier does not follow a repeatable item")
        mode = "?" if self.took("?") else "+" if self.took("+") else ""
        self.skipped_to_next()
        if self.simple_bounds():
            raise PatternError("quantifier does not follow a repeatable item")
        return self.with_mode(part, bounds, mode)

    def open_brace(self) -> PatternPart:
        self.at -= 1
        if self.bounds():
            raise PatternError("quantifier does not follow a repeatable item")
        self.at += 1
        return self.literal("{")

    def end_without_m(self) -> str:
        return "last_line_end"

    def check_flags(self, written: str) -> None:
        if "xx" in written:
            raise PatternError("the flag xx is not supported")

    def group(self) -> PatternPart | None:
        if self.took("*"):
            raise PatternError("verbs such as (*SKIP) are not supported")
        if not self.took("?"):
            return self._capture("")
        if self.took(">"):
            return Atomic(self.closed())
        for sign, (ahead, negative) in _LOOKS.items():
            if self.took(sign):
                return _look_around(self.closed(), ahead, negative)
        if self.took("P="):
            return self._reference_to(self.upto(")", "reference"))
        for start, end in (("P<", ">"), ("<", ">"), ("'", "'")):
            if self.took(start):
                return self._capture(self.upto(end, "name of a group"))
        if self.took("("):
            return self._condition()
        if re.match(r"[|CR&]|P>|[+-]?\d", self.text[self.at : self.at + 2]):
            raise PatternError("recursion, callouts and (?| are not supported")
        return self.flagged()

    def _capture(self, name: str) -> PatternPart:
        self._captures += 1
        number = self._captures
        if name and (not _NAME.fullmatch(name) or name in self._names):
            raise PatternError(f"invalid name of a group: {name!r}")
        self._names[name] = number
        return CaptureGroup(number, self.closed())

    def _condition(self) -> PatternPart:
        name = self.upto(")", "condition").strip("<>'")
        before, then = self.flags, self.chain()
        part = Condition(0, then, self.chain() if self.took("|") else Chain(()))
        if not name.isalnum() or not self.took(")"):
            raise PatternError("this condition is not supported")
        self.flags = before
        self._references.append((part, name))
        return part

    def _reference_to(self, name: str) -> PatternPart:
        part = BackReference(0, self.ignores_case)
        self._references.append((part, name))
        return part

    def escape(self) -> PatternPart | None:
        letter = self._letter()
        if letter in "gk":
            return self._named_reference(letter)
        if letter in _ASSERTIONS:
            return Assertion(_ASSERTIONS[letter])
        if letter == "N" and not self.text.startswith("{U+", self.at):
            if re.match(r"\{(?!\d|,\d)", self.text[self.at : self.at + 3]):
                raise PatternError("\\N{name} is not supported")
            return AnyCharacter(False)
        if letter == "R":
            both = [OneOf(CharSet(ranges_of(each)), False) for each in "\r\n"]
            return Atomic(Alternation([Chain(both), OneOf(CharSet(VERTICAL), False)]))
        if letter in "GKXC":
            raise PatternError(f"\\{letter} is not supported")
        if chars := self._class_of(letter):
            return OneOf(chars, False)
        if letter in "123456789" and (name := self._numbered_reference()):
            return self._reference_to(name)
        return self.literal(self._character(letter))

    def _letter(self) -> str:
        if self.at >= len(self.text) - 1:  # the last parenthesis is ripgrep's
            raise PatternError("\\ at the end of the pattern")
        self.at += 1
        return self.text[self.at - 1]

    def _numbered_reference(self) -> str:
        """Return the number of a group; "" if the digits are the code of a character."""
        found = _NUMBER.match(self.text, self.at - 1)
        number = found[0] if found else ""
        if len(number) > 1 and int(number) > self._captures and number[0] < "8":
            return ""
        self.at += len(number) - 1
        return number

    def _named_reference(self, letter: str) -> PatternPart:
        found = _REFERENCE.match(self.text, self.at)
        if not found or (letter == "g" and not (found[1] or found[4])):
            raise PatternError(f"unknown reference after \\{letter}")
        self.at = found.end()
        name = next(filter(None, found.groups()))
        if name[0] in "+-":
            name = str(self._captures + int(name) + (name[0] == "-"))
        return self._reference_to(name)

    def _class_of(self, letter: str) -> CharSet | None:
        """Return the class of an escape such as `\\d`; None if it stands for one character."""
        name = letter.lower()
        if name == "p":
            written = self.upto("}", "property") if self.took("{") else self._letter()
            inverse, written = written.startswith("^"), written.removeprefix("^")
            chars = self.cased(self.properties.pcre(written))
            chars.negated = letter.isupper() != inverse
            return chars
        if name == "d":
            chars = CharSet(native={r"\d": str.isdecimal})
        elif name == "w":
            chars = CharSet(native={r"\w": is_pcre_word})
        elif name in _CLASSES:
            chars = CharSet(_CLASSES[name])
        else:
            return None
        chars.negated = letter.isupper()
        return chars

    def _character(self, letter: str) -> str:
        if letter in CONTROLS or letter == "e":
            return CONTROLS.get(letter, "\x1b")
        if letter in "01234567" and (found := _OCTAL.match(self.text, self.at - 1)):
            self.at = found.end()
            return character_of(found[0], 8)
        if letter == "x" and not self.text.startswith("{", self.at):
            if not (found := _HEX.match(self.text, self.at)):
                raise PatternError("digits missing after \\x")
            self.at = found.end()
            return character_of(found[0], 16)
        if letter == "x":
            return self.hexadecimal(2)
        if letter == "N" and self.took("{U+"):
            return character_of(self.upto("}", "character code"), 16)
        if letter == "o" and self.took("{"):
            return character_of(self.upto("}", "character code"), 8)
        if letter == "c" and self.text[self.at : self.at + 1].isascii():
            return chr(ord(self._letter().upper()) ^ 64)
        if not letter.isascii() or not letter.isalnum():
            return letter
        raise PatternError(f"unrecognized character follows \\: {letter}")

    def char_class(self) -> CharSet:
        """Parse a class behind its bracket."""
        if _POSIX_CLASS.match(self.text, self.at - 1):
            raise PatternError("POSIX named classes are supported only within a class")
        negated, chars = self.took("^"), CharSet()
        if self.took("]"):
            chars.add(CharSet(ranges_of("]")))
        while not self.took("]"):
            chars.add(self._item())
        chars = self.cased(chars)
        chars.negated = negated
        return chars

    def _item(self) -> CharSet:
        """Parse a POSIX class, a class escape, a range or a character."""
        first: CharSet | str
        if found := _POSIX_CLASS.match(self.text, self.at):
            self.at = found.end()
            first = self.cased(self.properties.pcre_posix(found[2]))
            first.negated = bool(found[1])
        else:
            first = self._member()
        if not self.text.startswith("-", self.at) or self.text.startswith("-]", self.at):
            return first if isinstance(first, CharSet) else CharSet(ranges_of(first))
        self.at += 1
        last = self._member()
        if isinstance(first, CharSet) or isinstance(last, CharSet) or last < first:
            raise PatternError("invalid range in a character class")
        return CharSet([(ord(first), ord(last))])

    def _member(self) -> CharSet | str:
        """Parse a character, or an escape that may be a class."""
        if self.at >= len(self.text):
            raise PatternError("missing terminating ] for a character class")
        self.at += 1
        character = self.text[self.at - 1]
        if character != "\\":
            return character
        letter = self._letter()
        if letter == "b":
            return "\b"
        if letter in "89" or (letter == "N" and not self.text.startswith("{U+", self.at)):
            raise PatternError(f"\\{letter} is not valid in a character class")
        return self._class_of(letter) or self._character(letter)


def _unquoted(found: re.Match[str]) -> str:
    """Return a quotation with each character escaped. Drop a lone `\\E`."""
    if found[1] is not None:
        return re.escape(found[1])
    return "" if found[0] == "\\E" else found[0]


def _look_around(part: PatternPart, ahead: bool, negative: bool) -> PatternPart:
    """Return a part for a look-around. `re` needs a fixed length to look behind."""
    if ahead:
        return LookAround(part, ahead=True, negative=negative)
    looks = [LookAround(form, ahead=False, negative=negative) for form in forms(part)]
    return Chain(looks) if negative else Alternation(looks)
