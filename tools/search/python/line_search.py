"""Find the lines of a text that match, and the places of all matches."""

import re
from collections.abc import Iterator

from .expression import Expression, SearchText


class LineSearch:
    """Searches texts for a pattern."""

    def __init__(self, expression: Expression) -> None:
        self.expression = expression
        self._required = expression.required(folded=False)
        self._folded = () if self._required else expression.required(folded=True)

    def lines(self, text: SearchText) -> Iterator[tuple[int, int, int]]:
        """Yield the start and end of each matching line, and the start of the first match in it."""
        if not self._may_match(text):
            return
        if self.expression.needs_single_lines:
            yield from self._single_lines(text)
        elif len(self._required) == 1:
            yield from self._lines_with(self._required[0], text)
        else:
            yield from self._lines_of_matches(text)

    def _may_match(self, text: SearchText) -> bool:
        """Return False if a text without which nothing matches is missing."""
        if self._required:
            return any(required in text.text for required in self._required)
        if self._folded and text.is_ascii:
            lower = text.text.lower()
            return any(required in lower for required in self._folded)
        return True

    def _lines_of_matches(self, text: SearchText) -> Iterator[tuple[int, int, int]]:
        search, place, whole = self.expression.for_text(text).search, 0, text.text
        while place < len(whole) and (found := search(whole, place)):
            start = whole.rfind("\n", place, found.start()) + 1 or place
            if start == len(whole):  # behind the last line
                return
            place = _line_end(whole, found.start())
            yield start, place, found.start()

    def _lines_with(self, required: str, text: SearchText) -> Iterator[tuple[int, int, int]]:
        """Search only the lines that contain a text."""
        search, place, whole = self.expression.for_text(text).search, 0, text.text
        while (at := whole.find(required, place)) >= 0:
            start = whole.rfind("\n", place, at) + 1 or place
            place = _line_end(whole, at)
            if found := search(whole, start, place - whole.startswith("\n", place - 1)):
                yield start, place, found.start()

    def _single_lines(self, text: SearchText) -> Iterator[tuple[int, int, int]]:
        """Search each line as a text of its own, which ends in `\\n` unless that follows `\\r`."""
        search, place, whole = self.expression.for_text(text).search, 0, text.text
        while place < len(whole):
            start = place
            if len(self._required) == 1:
                at = whole.find(self._required[0], place)
                if at < 0:
                    return
                start = whole.rfind("\n", place, at) + 1 or place
            place = _line_end(whole, start)
            if found := search(whole[start:place].removesuffix("\r\n")):
                yield start, place, start + found.start()

    def blocks(self, text: SearchText) -> Iterator[tuple[int, int, int]]:
        """Yield the start and end of each block of lines with matches, which may span lines, and
        the start of the first match. Blocks do not touch each other.
        """
        search, place, whole = self.expression.for_text(text).search, 0, text.text
        block: tuple[int, int, int] | None = None
        if not self._may_match(text):
            return
        while place < len(whole) and (found := search(whole, place)):
            first, last = found.span()
            place = last + (first == last)
            start = whole.rfind("\n", 0, first) + 1
            is_whole = last > start and whole[last - 1] == "\n"
            end = last if is_whole else _line_end(whole, last)
            if start == end:  # behind the last line
                continue
            if block and block[1] >= start:
                block = (block[0], end, block[2])
                continue
            if block:
                yield block
            block = (start, end, first)
        if block:
            yield block


def matches(pattern: re.Pattern[str], text: str, first: int, end: int) -> Iterator[re.Match[str]]:
    """Yield the matches that start in a part of a text, as Rust and PCRE2 step through them: an
    empty match right after another match does not count.
    """
    place, last = first, -1
    while place <= len(text) and (found := pattern.search(text, place)) and found.start() < end:
        is_empty = found.start() == found.end()
        place = found.end() + is_empty
        if not (is_empty and found.end() == last):
            last = found.end()
            yield found


def matches_in_line(pattern: re.Pattern[str], line: str) -> Iterator[re.Match[str]]:
    """Yield the matches in a line. They do not contain its line end."""
    content = line.removesuffix("\n").removesuffix("\r")
    return matches(pattern, content, 0, len(line))


def _line_end(text: str, place: int) -> int:
    """Return the place behind the line that contains a place."""
    return text.find("\n", place) + 1 or len(text)
