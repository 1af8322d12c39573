"""Long texts and images in the input. Each is shown as one short mark, so that typing stays quick,
and is whole again in what is sent, edited elsewhere or kept in the history: of an image that is the
mention of its file."""

import re
from itertools import count

from ....tools.system.plural import count_of
from ...lazy import regex

MAX_PASTED_LINES, MAX_PASTED_CHARS = 20, 2_000  # a longer paste is shown as a mark
MAX_TEXT_CHARS, MAX_LINE_CHARS = 100_000, 5_000  # any longer text is shown as a mark
MARK_TEXT_CHARS = 24  # of the text's beginning

_MARK = regex(r"\[(?:text|image) (\d+), [^\n\]]*\]")
_MARK_LENGTH = 100  # characters that no mark exceeds


class PastedTexts:
    """The texts behind the marks, by the number in the mark. May be used from several threads."""

    def __init__(self) -> None:
        self._texts: dict[str, tuple[str, str]] = {}  # mark and text
        self._numbers = count(1)

    def paste(self, text: str) -> str:
        """Return what the input shows for a pasted text: the text, or its mark."""
        long = text.count("\n") >= MAX_PASTED_LINES or len(text) > MAX_PASTED_CHARS
        return self._add_mark(text) if long else text

    def add_image(self, mention: str, about: str) -> str:
        """Return the mark of an image that is in a file; `about` says what image it is."""
        number = str(next(self._numbers))
        mark = f"[image {number}, {about}]"
        self._texts[number] = mark, mention
        return mark

    def fold(self, words: str) -> str:
        """Return whole words as the input shows them: known long texts as their marks, and a mark
        for all of it where typing would be slow."""
        for mark, text in list(self._texts.values()):
            words = words.replace(text, mark)
        longest = max(map(len, words.split("\n")))
        slow = len(words) > MAX_TEXT_CHARS or longest > MAX_LINE_CHARS
        return self._add_mark(words) if slow else words

    def unfold(self, words: str) -> str:
        """Return the words with every mark replaced by its text. A mark that was edited, or has no
        text, is left as it is."""
        return _MARK.sub(lambda found: self._text_of(found) or found[0], words)

    def mark_length_at_end(self, words: str) -> int:
        """Return the length of the mark that the words end with, 0 without one."""
        for found in _MARK.finditer(words, max(0, len(words) - _MARK_LENGTH)):
            if found.end() == len(words) and self._text_of(found):
                return len(found[0])
        return 0

    def _add_mark(self, text: str) -> str:
        lines = text.count("\n") + 1
        size = f"{lines:,} lines" if lines > 1 else count_of(len(text), "character")
        begins = " ".join(text[: 4 * MARK_TEXT_CHARS].replace("]", " ").split())[:MARK_TEXT_CHARS]
        number = str(next(self._numbers))
        mark = f"[text {number}, {size}: {begins}…]"
        self._texts[number] = mark, text
        return mark

    def _text_of(self, found: re.Match[str]) -> str:
        mark, text = self._texts.get(found[1], ("", ""))
        return text if mark == found[0] else ""
