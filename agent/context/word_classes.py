"""A count of word classes, which stands in for a count of tokens.

The count is the number of matches of this regular expression:

    [A-Z]{1,4}[a-z]{0,9}|[a-z]{1,10}  letters in runs
    [0-9]{1,3}
    \\n[ \\t]*                          a newline with its indent
    [ \\t]{3,}
    [CJK]                             one character, see _WIDE
    [!-/:-@[-`{-~]{1,3}               punctuation
    [any other non-ASCII]{1,2}

A regular expression takes 110 ns for each character of source code. All results of a log are
counted when a session is resumed, so this module counts with integers as long as the text, a byte
for each byte of the text, which takes 6 to 8 ns.
"""

import string
from functools import cache

from ..lazy import regex

_CJK = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_WIDE = regex(rf"[{_CJK}]|[^\x00-\x7f{_CJK}]{{1,2}}")

_BITS = 8  # from one byte to the next
_LOWER, _UPPER, _DIGIT, _PUNCTUATION, _BLANK, _NEWLINE = (1 << n for n in range(6))
# How many bytes of a run one match takes.
_MAX_LOWER, _MAX_UPPER, _MAX_OTHERS = 10, 4, 3
_NON_ASCII_ONLY = bytes(byte if byte > 0x7F else 0x20 for byte in range(256))


def _class_bits() -> bytes:
    """Return a translation of each byte to the bit of its class, to zero if it has none."""
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
    """Return numbers of `count` bytes that all have the bits of the same classes."""
    each = int.from_bytes(b"\1" * count, "little")
    others = _DIGIT | _PUNCTUATION
    visible = _LOWER | _UPPER | others
    return tuple(each * bits for bits in (_LOWER, _UPPER, others, _BLANK, _NEWLINE, visible))


def count_word_classes(text: str) -> int:
    """Return how many word classes a text has."""
    data = text.encode("utf-8", "surrogatepass")
    lower, upper, others, blank, newline, visible = _masks(1 << len(data).bit_length())
    here = int.from_bytes(data.translate(_CLASS_BITS), "little")
    before = here << _BITS  # the class of the byte before
    wider = before >> 1  # the same, as the bit of the next smaller class
    # A capital before a lower-case letter begins a run of lower case too, which is not counted.
    capitals = here >> 1 & here >> _BITS & lower
    inner = here & before | wider & here & lower  # the bytes that do not begin a run
    two = inner & inner << _BITS  # those that two of a run end with, and so on
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
        first ^= first & wider  # blanks behind a newline belong to it
        begins |= first << 2 * _BITS & wide
    count = begins.bit_count() - capitals.bit_count()
    return count if text.isascii() else count + _count_wide(data)


def _with_steps(begins: int, ends: int, step: int) -> int:
    """Add to the beginnings of matches those that follow in the same run, `step` bytes on. `ends`
    has the bytes that so many of a run end with. Each round doubles the distance, so that a long
    run takes few."""
    shift = step * _BITS
    while ends:
        begins |= begins << shift & ends
        ends &= ends << shift
        shift *= 2
    return begins


def _count_wide(data: bytes) -> int:
    """Return the count of what is not ASCII in a text in UTF-8."""
    runs = b" ".join(data.translate(_NON_ASCII_ONLY).split())
    return len(_WIDE.findall(runs.decode("utf-8", "surrogatepass")))
