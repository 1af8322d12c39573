"""What bash might make of a text that was not read for certain, so that deny rules see something:
quotes dropped, split at whatever may end a command. Nothing is allowed by a guess."""

import re
from collections.abc import Iterator

MOST_WORDS = 4_000  # of one command
_BETWEEN = re.compile(r"[;&|\n(){}`]+")
_BRACES = re.compile(r"\{([^{}\s]+)\}")  # {curl,x} is `curl x`
_OPENING = frozenset(("!", "do", "then", "else", "if", "while", "time"))


def guess(text: str) -> Iterator[tuple[list[str], str]]:
    """The words of each command that may be in it, and its source."""
    whole = _BRACES.sub(lambda match: match[1].replace(",", " "), text.replace("\\\n", ""))
    seen = set()
    for piece in _BETWEEN.split(whole):
        if piece in seen:
            continue
        seen.add(piece)
        bare = re.sub(r"""[\\'"]""", "", re.sub(r"""\$(?=['"])""", "", piece))
        words = bare.split(maxsplit=MOST_WORDS)[:MOST_WORDS]
        while words and words[0] in _OPENING:
            del words[0]
        if words:
            yield words, piece.strip()
