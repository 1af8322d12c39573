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
counted when a session is resumed, so this module uses whole-text operations on bytes instead: they
take 20 to 40 ns.
"""

import string

from ..lazy import regex

_CJK = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_WIDE = regex(rf"[{_CJK}]|[^\x00-\x7f{_CJK}]{{1,2}}")

# The class of each byte: lower case, upper case, four capitals in a row, digit, punctuation. "\0"
# stands for all that ends a run.
_LOWER, _UPPER, _CAPITALS, _DIGIT, _PUNCTUATION = b"a", b"A", b"U", b"0", b"."
_END, _NEWLINE, _BLANK, _VISIBLE = b"\0", b"\n", b" ", b"x"
_MAX_UPPER, _MAX_LOWER_AFTER_UPPER = 4, 9
_LONGEST_MATCHES = (_LOWER * 10, _DIGIT * 3, _PUNCTUATION * 3)  # that one match takes
_WIDE_BLANK = _BLANK * 3


def _table(classes: dict[bytes, bytes]) -> bytes:
    """Return a translation of bytes: each character of a key to the value, all others to zero."""
    table = bytearray(256)
    for characters, value in classes.items():
        for each in characters:
            table[each] = value[0]
    return bytes(table)


_CLASS_OF_BYTE = _table({
    string.ascii_lowercase.encode(): _LOWER,
    string.ascii_uppercase.encode(): _UPPER,
    string.digits.encode(): _DIGIT,
    string.punctuation.encode(): _PUNCTUATION,
    b"\n": _NEWLINE,
    b" \t": _BLANK,
})  # fmt: skip
# A byte begins a match unless it has a bit in common with the byte before it. Lower case goes on
# after capitals, capitals do not go on after lower case.
_OWN_BIT = _table({_LOWER: b"\1", _UPPER: b"\2", _DIGIT: b"\4", _PUNCTUATION: b"\x08"})
_GOES_ON = _table(
    {_LOWER: b"\1", _UPPER: b"\3", _CAPITALS: b"\1", _DIGIT: b"\4", _PUNCTUATION: b"\x08"}
)
_BLANK_OR_VISIBLE = bytes(byte if byte in b"\n " else _VISIBLE[0] for byte in range(256))
_NON_ASCII_ONLY = bytes(byte if byte > 0x7F else _BLANK[0] for byte in range(256))
_BITS = 8  # from one byte to the next


def count_word_classes(text: str) -> int:
    """Return how many word classes a text has."""
    data = text.encode("utf-8", "surrogatepass")
    count = 0 if text.isascii() else _count_wide(data)
    classes = data.translate(_CLASS_OF_BYTE)
    count += classes.count(_NEWLINE)
    if _WIDE_BLANK in classes:  # those behind a newline belong to it
        shown = classes.translate(_BLANK_OR_VISIBLE)
        count += shown.count(_VISIBLE + _WIDE_BLANK) + shown.startswith(_WIDE_BLANK)
    # Cut runs that are too long for one match: an end is put behind each match.
    after_upper = _LOWER * _MAX_LOWER_AFTER_UPPER
    if _UPPER * _MAX_UPPER in classes:
        classes = classes.replace(_UPPER * _MAX_UPPER, _END + _CAPITALS)
        count += classes.count(_CAPITALS)
        classes = classes.replace(_CAPITALS + after_upper, _CAPITALS + _END)
    classes = classes.replace(_UPPER + after_upper, _UPPER + _END)
    for longest in _LONGEST_MATCHES:
        if found := classes.count(longest):
            count += found
            classes = classes.replace(longest, _END)
    own = int.from_bytes(classes.translate(_OWN_BIT), "little")
    before = int.from_bytes(classes.translate(_GOES_ON), "little") << _BITS
    return count + own.bit_count() - (own & before).bit_count()


def _count_wide(data: bytes) -> int:
    """Return the count of what is not ASCII in a text in UTF-8."""
    runs = b" ".join(data.translate(_NON_ASCII_ONLY).split())
    return len(_WIDE.findall(runs.decode("utf-8", "surrogatepass")))
