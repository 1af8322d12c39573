r"""Counts word classes as an approximation of tokens.

The count is the number of matches of this regular expression:

    [A-Z]{1,4}[a-z]{0,9}|[a-z]{1,10}  runs of letters
    [0-9]{1,3}
    \n[ \t]*                          a newline with its indent
    [ \t]{3,}
    [CJK]                             one character, see _WIDE
    [!-/:-@[-`{-~]{1,3}               punctuation
    [any other non-ASCII]{1,2}

A regular expression takes 110 ns per character of source code, and resuming a session counts all
results of its log. So this module converts the whole text to one integer, with a byte for each byte
of UTF-8, and uses bit operations. That takes 6 to 8 ns per character.
"""

import string
from functools import cache

from ..lazy import regex

_CJK = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_WIDE = regex(rf"[{_CJK}]|[^\x00-\x7f{_CJK}]{{1,2}}")

_BITS = 8  # per byte
_LOWER, _UPPER, _DIGIT, _PUNCTUATION, _BLANK, _NEWLINE = (1 << n for n in range(6))
# The most bytes of a run that one match covers.
_MAX_LOWER, _MAX_UPPER, _MAX_OTHERS = 10, 4, 3
_NON_ASCII_ONLY = bytes(byte if byte > 0x7F else 0x20 for byte in range(256))


def _class_bits() -> bytes:
    """Return a table that maps each byte to the bit of its class, or to zero."""
    table = bytearray(256)
    for characters, bit in (
        (string.ascii_lowercase, _LOWER),
        (string.ascii_uppercase, _UPPER),
        (string.digits, _DIGIT),
        (string.punctuation, _PUNCTUATION),
        (" \t", _BLANK),
        ("\n", _NEWLINE),
    ):
        for character in characters:
            table[ord(character)] = bit
    return bytes(table)


_CLASS_BITS = _class_bits()


@cache
def _masks(count: int) -> tuple[int, ...]:
    """Return one mask of `count` bytes for each group of classes."""
    each = int.from_bytes(b"\1" * count, "little")
    others = _DIGIT | _PUNCTUATION
    visible = _LOWER | _UPPER | others
    return tuple(each * bits for bits in (_LOWER, _UPPER, others, _BLANK, _NEWLINE, visible))


def count_word_classes(text: str) -> int:
    """Return the number of word classes in a text."""
    data = text.encode("utf-8", "surrogatepass")
    lower, upper, others, blank, newline, visible = _masks(1 << len(data).bit_length())
    here = int.from_bytes(data.translate(_CLASS_BITS), "little")
    before = here << _BITS  # the class of the byte before
    wider = before >> 1  # the same, shifted to the bit of the next smaller class
    # A capital before a lower-case letter starts a lower-case run too, which is not counted.
    capitals = here >> 1 & here >> _BITS & lower
    inner = here & before | wider & here & lower  # bytes that continue a run
    two = inner & inner << _BITS  # bytes after at least two bytes of a run, and so on
    three = two & inner << 2 * _BITS
    four = two & two << 2 * _BITS
    ten = four & four << 4 * _BITS & two << 8 * _BITS
    first = here ^ inner
    begins = first & visible | capitals
    begins = _with_steps(begins, ten & lower, _MAX_LOWER)
    begins = _with_steps(begins, four & upper, _MAX_UPPER)
    begins = _with_steps(begins, three & others, _MAX_OTHERS)
    begins |= here & newline
    if wide := two & blank:
        first ^= first & wider  # blanks after a newline belong to it
        begins |= first << 2 * _BITS & wide
    count = begins.bit_count() - capitals.bit_count()
    return count if text.isascii() else count + _count_wide(data)


def _with_steps(begins: int, ends: int, step: int) -> int:
    """Add the later matches of a run to its first match, one every `step` bytes. `ends` marks the
    bytes that have at least `step` bytes of the run before them. Each round doubles the distance,
    so that a long run takes few rounds.
    """
    shift = step * _BITS
    while ends:
        begins |= begins << shift & ends
        ends &= ends << shift
        shift *= 2
    return begins


def _count_wide(data: bytes) -> int:
    """Return the count of the non-ASCII characters in UTF-8 data."""
    runs = b" ".join(data.translate(_NON_ASCII_ONLY).split())
    return len(_WIDE.findall(runs.decode("utf-8", "surrogatepass")))
