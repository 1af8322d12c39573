"""Search one file and write the hits as ripgrep does: `PATH NUL NUMBER NUL COLUMN NUL LINE` for a
matching line, `PATH NUL NUMBER-LINE` for a line of context, `PATH NUL` or `PATH NUL COUNT`.

A file is read as ripgrep reads it: in pieces of 64 KB that end at a line end. A piece with a NUL
ends the search, because the file is binary. A file that the user names is searched to its end.

The lines of a text that match are found with the places of all matches.
"""

import codecs
import io
import os
import re
from collections import deque
from collections.abc import Callable, Iterator

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


PIECE_BYTES = 1 << 16
GROWTH = 3  # of a piece without a line end
MAX_PIECE_BYTES = 1 << 28  # of one line, or of a file whose matches may span lines

ReadBytes = Callable[[int], bytes]


class FileSearch:
    """Searches files in one mode. `out` receives the records."""

    def __init__(
        self,
        search: LineSearch,
        out: io.BufferedIOBase,
        *,
        mode: str,
        counts_matches: bool,
        before: int,
        after: int,
    ) -> None:
        self._search = search
        self._out = out
        self._mode = mode
        self._counts_matches = counts_matches  # else, lines
        self._before = before
        self._after = after
        expression = search.expression
        self._crosses_lines = expression.crosses_lines
        self._keeps_returns = expression.crosses_lines or expression.sees_returns

    def search(
        self, path: bytes, descriptor: int, *, is_named: bool, form: tuple[str, int] | None = None
    ) -> None:
        """Search an open file. `is_named` is for a file that the user names. `form` is its encoding
        and the length of its byte order mark, if it is not UTF-8. Raises OSError.
        """
        file = _File(path, descriptor, is_named, form)
        if self._mode == "encodings":
            if not file.is_utf8():
                self._out.write(path + b"\0")
        elif self._crosses_lines:
            self._search_whole(file)
        elif self._mode == "content":
            self._write_lines(file)
        else:
            self._count_lines(file)

    def _count_lines(self, file: "_File") -> None:
        count = 0
        for piece in file.pieces():
            text = self._decoded(piece)
            for start, end, _ in self._search.lines(text):
                if self._mode == "files":
                    self._out.write(file.path + b"\0")
                    return
                if self._counts_matches:
                    pattern = self._search.expression.for_text(text)
                    found = matches_in_line(pattern, text.text[start:end])
                    count += max(1, sum(1 for _ in found))
                else:
                    count += 1
        if count and self._mode == "count" and not file.is_binary:
            self._out.write(b"%b\0%d\n" % (file.path, count))

    def _write_lines(self, file: "_File") -> None:
        context = _Context(self._out, file.path, self._before, self._after)
        for piece in file.pieces():
            text = self._decoded(piece)
            for start, end, first in self._search.lines(text):
                if "\0" in text.text[start:end]:
                    context.finish(text.text, start)
                    return
                context.write_match(text.text, start, end, first)
            context.finish(text.text, len(text.text))

    def _search_whole(self, file: "_File") -> None:
        """Search a file whose matches may span lines."""
        data = b"".join(file.pieces(limit=MAX_PIECE_BYTES))
        if file.is_binary:
            return
        text = self._decoded(data)
        context = _Context(self._out, file.path, self._before, self._after)
        count, nul = 0, text.text.find("\0")
        has_context = nul >= 0 and (self._before or self._after)
        text_end = text.text.rfind("\n", 0, nul) + 1 if has_context else len(text.text)
        for start, end, first in self._search.blocks(text):
            if end > text_end or "\0" in text.text[start:end]:
                file.is_binary = not file.is_named
                break
            if self._mode == "files":
                self._out.write(file.path + b"\0")
                return
            if self._mode == "content":
                context.write_match(text.text, start, end, first)
            else:
                pattern = self._search.expression.for_text(text)
                count += max(1, sum(1 for _ in matches(pattern, text.text, start, end)))
        if self._mode == "content":
            context.finish(text.text, text_end)
        elif count and not file.is_binary:
            self._out.write(b"%b\0%d\n" % (file.path, count))

    def _decoded(self, data: bytes) -> SearchText:
        text = decoded(data)
        if text.has_returns and not self._keeps_returns:
            plain = text.text.replace("\r\n", "\n")
            if "\r" not in plain:
                return SearchText(plain, has_stray_bytes=text.has_stray_bytes)
        return text


def decoded(data: bytes) -> SearchText:
    """Decode UTF-8. Other bytes become lone surrogates."""
    try:
        return SearchText(data.decode())
    except UnicodeDecodeError:
        return SearchText(data.decode("utf-8", "surrogateescape"), has_stray_bytes=True)


class _File:
    """An open file that is read in pieces."""

    def __init__(
        self, path: bytes, descriptor: int, is_named: bool, form: tuple[str, int] | None
    ) -> None:
        self._form = form
        self.path = path
        self.is_named = is_named
        self.is_binary = False  # set while reading
        self._descriptor = descriptor

    def pieces(self, limit: int = 0) -> Iterator[bytes]:
        """Yield the text of the file in pieces that end at a line end, in UTF-8. With a limit,
        yield so many bytes at once; only a NUL in the first piece makes the file binary.
        """
        read, size = self._decoder(), PIECE_BYTES
        if limit:
            whole = _rest(read, limit)
            self.is_binary = not self.is_named and b"\0" in whole[:PIECE_BYTES]
            yield whole
            return
        held = b""
        while data := read(size - len(held)):
            if not self.is_named and b"\0" in data:
                self.is_binary = True
                return
            held += data
            end = held.rfind(b"\n", len(held) - len(data)) + 1
            if not end and size < MAX_PIECE_BYTES:
                size = size * GROWTH if len(held) == size else size
                continue
            end = end or len(held)
            yield held[:end]
            held = held[end:]
        if held:
            yield held

    def is_utf8(self) -> bool:
        """Return True if the file is UTF-8 without a NUL."""
        read, decoder = self._decoder(), codecs.getincrementaldecoder("utf-8")()
        try:
            while data := read(PIECE_BYTES):
                if b"\0" in data:
                    return False
                decoder.decode(data)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return False
        return True

    def _decoder(self) -> ReadBytes:
        """Return a function that reads the file as UTF-8, without a byte order mark."""
        if self._form:
            encoding, bom_bytes = self._form
            whole = _rest(self._read, MAX_PIECE_BYTES)[bom_bytes:]
            return io.BytesIO(whole.decode(encoding, "replace").encode("utf-8", "replace")).read
        start = os.read(self._descriptor, len(codecs.BOM_UTF8))
        if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            whole = start + _rest(self._read, MAX_PIECE_BYTES)
            return io.BytesIO(whole.decode("utf-16", "replace").encode()).read
        first = [start] if start and start != codecs.BOM_UTF8 else []
        # As in ripgrep, the bytes in place of the mark are the first to be read.
        return lambda size: first.pop() if first else self._read(size)

    def _read(self, size: int) -> bytes:
        return os.read(self._descriptor, size)


def _rest(read: ReadBytes, limit: int) -> bytes:
    found = list(iter(lambda: read(min(limit, 1 << 24)), b""))
    return b"".join(found)[:limit]


class _Context:
    """Writes matching lines with the lines around them. The text of a file comes in pieces."""

    def __init__(self, out: io.BufferedIOBase, path: bytes, before: int, after: int) -> None:
        self._out = out
        self._path = path
        self._before = before
        self._after = after
        self._place = 0  # in the current piece, behind the last line that was passed
        self._number = 1  # of the line at this place
        self._due = 0  # lines of context that are still to be written after a match
        self._recent: deque[str] = deque(maxlen=before)  # lines before the place, not written

    def write_match(self, text: str, start: int, end: int, first: int) -> None:
        """Write the lines of a part of the text, whose first match begins at `first`."""
        self._pass(text, start)
        for number, line in enumerate(self._recent, self._number - len(self._recent)):
            self._write_context(number, line)
        self._recent.clear()
        column = len(text[start:first].encode("utf-8", "surrogateescape")) + 1
        for line in _lines(text[start:end]):
            written = line.encode("utf-8", "surrogateescape")
            self._out.write(b"%b\0%d\0%d\0%b\n" % (self._path, self._number, column, written))
            self._number += 1
        self._place = end
        self._due = self._after

    def finish(self, text: str, end: int) -> None:
        """Pass the rest of a piece, which ends here. The next piece follows."""
        self._pass(text, end)
        self._place = 0

    def _pass(self, text: str, end: int) -> None:
        """Pass the lines up to a place. Write those that are due, keep those that may be needed."""
        if not (self._before or self._after):
            self._number += text.count("\n", self._place, end)
            self._place = end
            return
        for line in _lines(text[self._place : end]):
            if self._due:
                self._write_context(self._number, line)
                self._due -= 1
            else:
                self._recent.append(line)
            self._number += 1
        self._place = end

    def _write_context(self, number: int, line: str) -> None:
        written = line.encode("utf-8", "surrogateescape")
        self._out.write(b"%b\0%d-%b\n" % (self._path, number, written))


def _lines(text: str) -> list[str]:
    """Split a text at each `\\n`."""
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return lines
