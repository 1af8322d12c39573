"""Find text that repeats exactly and many times at the end of a stream."""

from ..events import Accepted, Delta, Retrying, TextDelta, ThinkingDelta
from ..lazy import regex

CHECKED_CHARS = 256  # new characters between two checks
MIN_REPETITIONS = 6
MIN_CHARS = 3_000  # of all repetitions together, for sentences
# The same for text without sentences: tables, drawings and lists of numbers may repeat their lines.
MIN_PLAIN_CHARS = 8_000
MIN_RECORD_CHARS = 1_000  # in a summary no line repeats, so that less proves a loop
MAX_TAIL_CHARS = 16_000  # kept of the stream; a repeated text has at most a sixth of this length

_SUFFIX_CHARS = 128  # of the end, searched for its previous occurrence
# Four words in a row, or eight letters of a script that may have no spaces.
_SENTENCE = regex(
    r"\b[^\W\d_]{2,}(?:[ \n,;:'’-]+[^\W\d_]+){3}|[^\W\d_\x00-\x7f]{8}",
)


class RepeatedText:
    """The end of a streaming text. A repetition must have `least` characters; by default, this
    depends on its words.
    """

    def __init__(self, least: int | None = None) -> None:
        self._least = least
        self._tail = ""
        self._unchecked = 0

    def add(self, text: str) -> str:
        """Add text. Return the text that is repeated at the end, "" for none."""
        self._tail += text
        self._unchecked += len(text)
        if self._unchecked < CHECKED_CHARS:
            return ""
        self._tail, self._unchecked = self._tail[-MAX_TAIL_CHARS:], 0
        return repeated_end(self._tail, self._least)


class RepeatedReply:
    """The text and the thinking of a streaming reply. `least` is as in `RepeatedText`, for the
    text.
    """

    def __init__(self, least: int | None = None) -> None:
        self._least = least
        self._text, self._thinking = RepeatedText(least), RepeatedText()

    def add(self, delta: Delta) -> str:
        """Add a delta. Return the text that is repeated at the end, "" for none."""
        if isinstance(delta, TextDelta):
            return self._text.add(delta.text)
        if isinstance(delta, ThinkingDelta):
            return self._thinking.add(delta.text)
        if isinstance(delta, Accepted | Retrying):  # another attempt
            self._text, self._thinking = RepeatedText(self._least), RepeatedText()
        return ""


def repeated_end(text: str, least: int | None = None) -> str:
    """Return the text that is repeated at the end of `text`, "" for none."""
    suffix = text[-_SUFFIX_CHARS:]
    place = text.rfind(suffix, 0, len(text) - 1)
    if place < 0:
        return ""
    period = len(text) - len(suffix) - place
    unit = text[-period:]
    least = least or (MIN_CHARS if _SENTENCE.search(2 * unit) else MIN_PLAIN_CHARS)
    stretch = text[-max(least, MIN_REPETITIONS * period) :]
    if len(stretch) < least or len(stretch) < MIN_REPETITIONS * period:
        return ""
    return unit if stretch[period:] == stretch[:-period] else ""
