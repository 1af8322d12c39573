"""Make unsafe characters visible or replace them: invisible ones, and those with an effect on a
terminal or a page.

Also find whole characters in UTF-8 text that was cut at any byte.
"""

import codecs
import unicodedata
from typing import TextIO

from ...agent.lazy import regex


def whole_length(data: bytes | bytearray) -> int:
    """Return the length of `data` without an incomplete UTF-8 character at its end."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(bytes(data[-4:]))
    return len(data) - len(decoder.getstate()[0])


def drop_partial_start(data: bytes) -> bytes:
    """Return `data` without an incomplete character at its beginning."""
    return data[:3].lstrip(bytes(range(0x80, 0xC0))) + data[3:]


_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

# Characters with an effect on a screen: control characters, text direction marks, surrogates.
_ACTING: dict[int, str | None] = {
    **dict.fromkeys((*range(0x20), *range(0x7F, 0xA0), *range(0xD800, 0xE000)), _REPLACEMENT),
    **{c: f"\\u{c:04x}" for c in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))},
    ord("\n"): "\n",
}
_ON_TERMINAL = {**_ACTING, ord("\t"): "    ", ord("\r"): None}
_ON_PAGE = {**_ACTING, ord("\t"): "\t", 0xFFFE: _REPLACEMENT, 0xFFFF: _REPLACEMENT}
# Names of invisible characters for which `str.isprintable` is true: those with the Unicode property
# Default_Ignorable_Code_Point, which Python lacks, and those with a blank glyph.
_INVISIBLE_NAME = regex(
    r"VARIATION SELECTOR|GRAPHEME JOINER|VOWEL INHERENT|(?:CONSONANT|NUMBER) JOINER"
    r"|(?<!GAP )(?<!LINE )FILLER$|(?:PATTERN|FULL|HALF) BLANK$|NULL NOTEHEAD"
)
_EMOJI_SELECTOR, _KEYCAP = "\ufe0f", "\u20e3"

# ASCII characters of the same width for our symbols and those that models often use.
_ASCII_MARKS = str.maketrans(
    {
        **dict.fromkeys(map(chr, range(0x2500, 0x2580)), "+"),  # box drawing
        **dict.fromkeys("─━┄┅┈┉╌╍═╴╶╸╺╼╾–—−", "-"),
        **dict.fromkeys("│┃┆┇┊┋╎╏║╵╷╹╻╽╿▌▎▏▐", "|"),
        **dict.fromkeys(map(chr, range(0x2800, 0x2900)), "*"),  # spinners
        **dict.fromkeys("●•∙", "*"),
        **dict.fromkeys("○◌◦☐", "o"),
        **dict.fromkeys("█▉▊▋▓▰", "#"),
        **dict.fromkeys("▒░▱", "."),
        **dict.fromkeys("·∴", "-"),
        **dict.fromkeys("❯›▸→▶", ">"),
        **dict.fromkeys("‹◂←◀", "<"),
        **dict.fromkeys("✓✔", "+"),
        **dict.fromkeys("✗✘×☑☒", "x"),
        **dict.fromkeys("↑▲", "^"),
        **dict.fromkeys("↓↧▼▾", "v"),
        **dict.fromkeys("‘’", "'"),
        **dict.fromkeys("“”", '"'),
        **dict.fromkeys("…⋯", "~"),
        "\xa0": " ",
    }
)


def clean(text: str) -> str:
    """Replace every character that has an effect on a terminal."""
    return text.translate(_ON_TERMINAL)


def clean_for_page(text: str) -> str:
    """Replace every character that has an effect on an HTML page or is not allowed there."""
    return text.replace("\r\n", "\n").replace("\r", "\n").translate(_ON_PAGE)


def clean_for(text: str, stream: TextIO | None) -> str:
    """Clean a text for a terminal. Return it unchanged for a file or a pipe."""
    return clean(text) if stream is not None and stream.isatty() else text


def replace_unprintable(line: str) -> str:
    """Replace every character of a line that is not `str.isprintable`."""
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() else _REPLACEMENT for c in line)


def replace_unprintable_but_tabs(line: str) -> str:
    """Do the same, and keep tabs: the line is a quotation that may be searched for."""
    return "\t".join(map(replace_unprintable, line.split("\t")))


def reveal_invisible(text: str) -> str:
    """Replace invisible and control characters by escapes, so that the user can judge a text."""
    around = zip("\0" + text, text, text[1:] + "\0", strict=False)
    return "".join(
        c if c in "\n\t" or _is_visible(c, before, after) else c.encode("unicode_escape").decode()
        for before, c, after in around
    )


def is_one_visible_line(text: str) -> bool:
    """Return True if the text is a single line without invisible characters."""
    return text.isprintable() and reveal_invisible(text) == text


def _is_visible(character: str, before: str, after: str) -> bool:
    if character == _EMOJI_SELECTOR:
        return unicodedata.category(before) == "So" or after == _KEYCAP
    if character.isascii():
        return character.isprintable()
    name = unicodedata.name(character, "")
    return character.isprintable() and not _INVISIBLE_NAME.search(name)


def to_ascii_marks(text: str, encoding: str) -> str:
    """Replace symbols by ASCII characters of the same width, and unencodable characters by `?`."""
    return text.translate(_ASCII_MARKS).encode(encoding, _QUESTION_MARKS).decode(encoding)


def cell_width(character: str) -> int:
    """Return the width of a printable character in terminal cells: 0, 1 or 2."""
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _as_question_marks(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    unencodable = error.object[error.start : error.end]
    return "?" * sum(map(cell_width, unencodable)), error.end


_QUESTION_MARKS = "ctxagent.question_marks"
codecs.register_error(_QUESTION_MARKS, _as_question_marks)
