"""What comes from a model, a tool or a file, made fit to be looked at: nothing in it acts on a
terminal. Light, because the command line needs it too."""

from typing import TextIO

_VISIBLE = {
    **dict.fromkeys((*range(0x20), *range(0x7F, 0xA0)), "\N{REPLACEMENT CHARACTER}"),
    **{c: f"\\u{c:04x}" for c in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))},
    **dict.fromkeys(range(0xD800, 0xE000), "\N{REPLACEMENT CHARACTER}"),
    ord("\n"): "\n",
    ord("\t"): "    ",
    ord("\r"): None,
}


def clean(text: str) -> str:
    """The text without anything that would act on a terminal: control characters, marks that turn
    the direction of writing, lone surrogates."""
    return text.translate(_VISIBLE)


def fit(text: str, stream: TextIO | None) -> str:
    """The text for a stream: cleaned for a terminal, for a file or a program as it is."""
    return clean(text) if stream is not None and stream.isatty() else text
