"""What comes from a model, a tool or a file, made fit to be looked at: nothing in it acts on a
terminal. And all that is shown, made fit for a terminal that has few characters. Light, because the
command line needs it too."""

import codecs
import unicodedata
from typing import TextIO

_VISIBLE = {
    **dict.fromkeys((*range(0x20), *range(0x7F, 0xA0)), "\N{REPLACEMENT CHARACTER}"),
    **{c: f"\\u{c:04x}" for c in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))},
    **dict.fromkeys(range(0xD800, 0xE000), "\N{REPLACEMENT CHARACTER}"),
    ord("\n"): "\n",
    ord("\t"): "    ",
    ord("\r"): None,
}

# For each mark of ours, and the usual ones of models, a character of ASCII that takes as much room.
_STAND_INS = str.maketrans(
    {
        **dict.fromkeys(map(chr, range(0x2500, 0x2580)), "+"),  # lines that cross
        **dict.fromkeys("─━┄┅┈┉╌╍═╴╶╸╺╼╾–—−", "-"),
        **dict.fromkeys("│┃┆┇┊┋╎╏║╵╷╹╻╽╿▌▎▏▐", "|"),
        **dict.fromkeys(map(chr, range(0x2800, 0x2900)), "*"),  # wheels that turn
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
    """The text without anything that would act on a terminal: control characters, marks that turn
    the direction of writing, lone surrogates."""
    return text.translate(_VISIBLE)


def fit(text: str, stream: TextIO | None) -> str:
    """The text for a stream: cleaned for a terminal, for a file or a program as it is."""
    return clean(text) if stream is not None and stream.isatty() else text


def spell(text: str, encoding: str) -> str:
    """The text for a terminal that has few characters, cell by cell: marks in ASCII, and what the
    encoding has not as question marks."""
    marked = text.translate(_STAND_INS)
    return marked.encode(encoding, _CELLS).decode(encoding)


def _cells(error: UnicodeError) -> tuple[str, int]:
    """What cannot be encoded, as question marks that take as much room."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    cut = error.object[error.start : error.end]
    return "".join("?" * _width(character) for character in cut), error.end


def _width(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


_CELLS = "ctxagent.cells"
codecs.register_error(_CELLS, _cells)
