"""What cannot be seen in a text: characters that show nothing, or act on what is shown."""

import unicodedata

# Printable, as the tables have it, and yet not to be seen: fillers, and selectors of variants.
_UNSEEN = {
    *"\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0",
    *map(chr, (*range(0x180B, 0x180E), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))),
}
_EMOJI, _KEY = "\ufe0f", "\u20e3"  # the selector that emoji have, and what makes a key of a digit


def revealed(text: str) -> str:
    """The text with every character that cannot be seen, or that acts, written out: for what a
    person is to judge."""
    around = zip("\0" + text, text, text[1:] + "\0", strict=False)
    return "".join(
        each if each in "\n\t" or _is_seen(each, before, after) else _escape(each)
        for before, each, after in around
    )


def in_a_line(text: str) -> bool:
    """Whether all of it is seen in one line."""
    return text.isprintable() and revealed(text) == text


def _is_seen(character: str, before: str, after: str) -> bool:
    if character == _EMOJI:
        return unicodedata.category(before) == "So" or after == _KEY
    return character.isprintable() and character not in _UNSEEN


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()
