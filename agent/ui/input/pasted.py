"""Long texts and images in the input. Each is shown as a short mark, so that typing stays fast. The
mark is replaced by the full text when it is sent, edited elsewhere or saved in the history; for an
image, this is the mention of its file.
"""

import re
from itertools import count

from ....tools.system.plural import count_of
from ...lazy import regex

MAX_PASTED_LINES, MAX_PASTED_CHARS = 20, 2_000  # longer pastes are shown as marks
MAX_TEXT_CHARS, MAX_LINE_CHARS = 100_000, 5_000  # any longer text is shown as a mark
MARK_TEXT_CHARS = 24  # shown of the text's beginning

_MARK = regex(r"\[(?:text|image) (\d+), [^\n\]]*\]")
_MARK_LENGTH = 100  # longest mark


class PastedTexts:
    """The texts behind the marks, by the number in the mark. Thread-safe."""

    def __init__(self) -> None:
        self._texts: dict[str, tuple[str, str]] = {}  # mark and text
        self._numbers = count(1)

    def paste(self, text: str) -> str:
        """Return the input's form of a pasted text: the text, or a mark if it is long."""
        long = text.count("\n") >= MAX_PASTED_LINES or len(text) > MAX_PASTED_CHARS
        return self._add_mark(text) if long else text

    def add_image(self, mention: str, about: str) -> str:
        """Return a mark for an image file; `about` describes the image."""
        number = str(next(self._numbers))
        mark = f"[image {number}, {about}]"
        self._texts[number] = mark, mention
        return mark

    def fold(self, message: str) -> str:
        """Replace known long texts by their marks. If the result is still too long for fast typing,
        return one mark for all of it.
        """
        for mark, text in list(self._texts.values()):
            message = message.replace(text, mark)
        longest = max(map(len, message.split("\n")))
        slow = len(message) > MAX_TEXT_CHARS or longest > MAX_LINE_CHARS
        return self._add_mark(message) if slow else message

    def unfold(self, message: str) -> str:
        """Replace every mark by its text. A mark that was edited or is unknown stays unchanged."""
        return _MARK.sub(lambda found: self._text_of(found) or found[0], message)

    def mark_length_at_end(self, message: str) -> int:
        """Return the length of the mark at the end of the text, 0 if there is none."""
        for found in _MARK.finditer(message, max(0, len(message) - _MARK_LENGTH)):
            if found.end() == len(message) and self._text_of(found):
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
