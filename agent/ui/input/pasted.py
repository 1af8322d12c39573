"""Long texts in the input: each stands there as one short mark, so that the input stays small and
typing stays quick, and is whole again in what is sent, edited elsewhere or kept.
"""

import re
from itertools import count

LINES, CHARACTERS = 20, 2_000  # pasted text past either is shown as a mark
MOST, LONGEST = 100_000, 5_000  # characters, of a line too, past which any text is
SHOWN = 24  # characters of its beginning

_MARK = re.compile(r"\[text (\d+), [\d,]+ (?:lines|characters): [^\n\]]*\]")
_MARK_LENGTH = 100  # characters that no mark exceeds


class Pasted:
    """The texts that are folded, by the number in their mark. May be used from several threads."""

    def __init__(self) -> None:
        self._texts: dict[str, tuple[str, str]] = {}  # mark and text
        self._numbers = count(1)

    def paste(self, text: str) -> str:
        """What stands for a pasted text: the text, or its mark."""
        long = text.count("\n") >= LINES or len(text) > CHARACTERS
        return self._mark(text) if long else text

    def fold(self, words: str) -> str:
        """Whole words as they stand in the input: those with marks have them again, and what would
        make typing slow gets one."""
        for mark, text in list(self._texts.values()):
            words = words.replace(text, mark)
        slow = len(words) > MOST or any(len(line) > LONGEST for line in words.split("\n"))
        return self._mark(words) if slow else words

    def unfold(self, words: str) -> str:
        """The words with every text in the place of its mark. A mark that was typed into, or that
        nothing is behind, is a word like any other."""
        return _MARK.sub(lambda found: self._behind(found) or found[0], words)

    def ending(self, words: str) -> int:
        """The length of the mark that words end with, 0 without one."""
        for found in _MARK.finditer(words, max(0, len(words) - _MARK_LENGTH)):
            if found.end() == len(words) and self._behind(found):
                return len(found[0])
        return 0

    def _mark(self, text: str) -> str:
        lines = text.count("\n") + 1
        size = f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters"
        begins = " ".join(text[: 4 * SHOWN].replace("]", " ").split())[:SHOWN]
        number = str(next(self._numbers))
        mark = f"[text {number}, {size}: {begins}…]"
        self._texts[number] = mark, text
        return mark

    def _behind(self, found: re.Match[str]) -> str:
        mark, text = self._texts.get(found[1], ("", ""))
        return text if mark == found[0] else ""
