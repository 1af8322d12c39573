"""Sets of characters, which the classes of a pattern describe.

A set knows its members in one of three ways: as ranges, as classes that `re` has itself, and as
tests of single characters. A set with tests can only be written for the characters of a known text.
"""

import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping

Ranges = list[tuple[int, int]]  # sorted, without overlaps
Test = Callable[[str], bool]

LAST = 0x10FFFF
MAX_FOLDED = 4_096  # characters of a set whose other cases are added

SPACE: Ranges = [
    (0x09, 0x0D), (0x20, 0x20), (0x85, 0x85), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A),
    (0x2028, 0x2029), (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000),
]  # fmt: skip
BLANK: Ranges = [
    (0x09, 0x09), (0x20, 0x20), (0xA0, 0xA0), (0x1680, 0x1680), (0x180E, 0x180E), (0x2000, 0x200A),
    (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000),
]  # fmt: skip
VERTICAL: Ranges = [(0x0A, 0x0D), (0x85, 0x85), (0x2028, 0x2029)]
# Symbols that are alphabetic: circled and squared letters.
_LETTER_SYMBOLS = ((0x24B6, 0x24E9), (0x1F130, 0x1F149), (0x1F150, 0x1F169), (0x1F170, 0x1F189))
_JOINERS = "\u200c\u200d"
# Characters outside of ASCII with a lower or upper case in it.
_ASCII_CASES = {"k": "\u212a", "K": "\u212a", "s": "\u017f", "S": "\u017f"}


class CharSet:
    """The characters in `ranges`, in a class of `re` (`native`, each with an exact test), or for
    which one of the `tests` returns True. All others if it is negated.
    """

    __slots__ = ("native", "negated", "ranges", "tests")

    def __init__(
        self,
        ranges: Iterable[tuple[int, int]] = (),
        native: Mapping[str, Test] | None = None,
        tests: Iterable[Test] = (),
    ) -> None:
        self.ranges = joined(ranges)
        self.native = dict(native or {})
        self.tests = list(tests)
        self.negated = False

    def __contains__(self, character: str) -> bool:
        code = ord(character)
        return self.negated != (
            any(first <= code <= last for first, last in self.ranges)
            or any(test(character) for test in (*self.native.values(), *self.tests))
        )

    @property
    def is_plain(self) -> bool:
        """Whether it consists of ranges only."""
        return not self.native and not self.tests

    def all_ranges(self) -> Ranges:
        """Return the ranges of a plain set."""
        return complement(self.ranges) if self.negated else self.ranges

    def add(self, other: "CharSet") -> None:
        """Add the members of another set to this one, which is not negated."""
        if other.is_plain:
            self.ranges = joined([*self.ranges, *other.all_ranges()])
        elif other.negated and not other.ranges and not other.tests and len(other.native) == 1:
            (name,) = other.native
            self.native[name.swapcase()] = other.__contains__
        elif other.negated:
            self.tests.append(other.__contains__)
        else:
            self.ranges = joined([*self.ranges, *other.ranges])
            self.native |= other.native
            self.tests += other.tests

    def add_cases(self) -> None:
        """Add the other cases of all members. The set is not negated."""
        count = sum(last - first + 1 for first, last in self.ranges)
        known = self.ranges if count <= MAX_FOLDED else within(self.ranges, [(0, 0x7F)])
        folded = (
            case for first, last in known for code in range(first, last + 1)
            for case in cases(chr(code))
        )  # fmt: skip
        special = [c for c in "\u212a\u017f" if c in self]
        more = [*folded, *(case for c in special for case in cases(c))]
        if self.tests:
            held = self.tests
            self.tests = [lambda c: any(test(case) for test in held for case in cases(c))]
        self.ranges = joined([*self.ranges, *((ord(c), ord(c)) for c in more)])


def combined(operation: str, left: CharSet, right: CharSet) -> CharSet:
    """Return the result of a set operation: `&&`, `--` or `~~`."""
    if left.is_plain and right.is_plain:
        ours, theirs = left.all_ranges(), right.all_ranges()
        both = within(ours, theirs)
        if operation == "&&":
            return CharSet(both)
        rest = within(ours, complement(theirs))
        return CharSet(rest if operation == "--" else [*rest, *within(theirs, complement(ours))])
    if operation == "&&":
        return CharSet(tests=[lambda c: c in left and c in right])
    if operation == "--":
        return CharSet(tests=[lambda c: c in left and c not in right])
    return CharSet(tests=[lambda c: (c in left) != (c in right)])


def joined(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Sort ranges and join those that touch or overlap."""
    out: Ranges = []
    for first, last in sorted(ranges):
        if out and first <= out[-1][1] + 1:
            out[-1] = (out[-1][0], max(out[-1][1], last))
        else:
            out.append((first, last))
    return out


def complement(ranges: Ranges) -> Ranges:
    out, start = [], 0
    for first, last in ranges:
        if first > start:
            out.append((start, first - 1))
        start = last + 1
    return [*out, (start, LAST)] if start <= LAST else out


def within(ranges: Ranges, others: Ranges) -> Ranges:
    """Return the intersection of two lists of ranges."""
    out, place = [], 0
    for first, last in ranges:
        while place < len(others) and others[place][1] < first:
            place += 1
        at = place
        while at < len(others) and others[at][0] <= last:
            out.append((max(first, others[at][0]), min(last, others[at][1])))
            at += 1
    return out


def ranges_of(characters: Iterable[str]) -> Ranges:
    return joined((ord(c), ord(c)) for c in characters)


def cases(character: str) -> Iterator[str]:
    """Yield a character, and the single characters that are its other cases."""
    yield character
    for other in (character.lower(), character.upper(), _ASCII_CASES.get(character, "")):
        if len(other) == 1:
            yield other
    if character in "\u212a\u017f":
        yield from "kK" if character == "\u212a" else "sS"


def is_word(character: str) -> bool:
    r"""Return True for the characters of Rust's `\w`."""
    kind = unicodedata.category(character)
    return (
        kind[0] in "LM"
        or kind in ("Nd", "Nl", "Pc")
        or character in _JOINERS
        or any(first <= ord(character) <= last for first, last in _LETTER_SYMBOLS)
    )


def is_pcre_word(character: str) -> bool:
    r"""Return True for the characters of PCRE2's `\w`."""
    kind = unicodedata.category(character)
    return kind[0] in "LN" or kind in ("Mn", "Pc")


def is_native_word(character: str) -> bool:
    r"""Return True for the characters of `\w` in `re`."""
    return character.isalnum() or character == "_"
