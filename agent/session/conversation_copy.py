"""Compare `conversation.md` with the texts of a log, to find text that only the file has.

The file is read as bytes. A text of the log is found at its heading, which contains the seq of its
entry. Text between the found texts is foreign: the log lost it, or another version wrote it.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import NamedTuple

from ...tools.system.files import open_kept
from ..lazy import dataclass, regex

_HEADING = regex(rb"^#{2,3} ([^\n]{1,300}) \xc2\xb7 #(\d{1,15})\n\n", re.MULTILINE)


class CopiedText(NamedTuple):
    """A text below one heading. `speaker` is a source of messages, "Assistant", a tool or
    "Result".
    """

    seq: int
    speaker: str
    text: str


@dataclass(slots=True)
class CopyDifference:
    """The differences between a conversation file and the texts of a log."""

    sections: list[CopiedText] = field(default_factory=list)  # foreign, in file order
    has_foreign_text: bool = False
    in_order: bool = True  # the texts of the log are in the order of the file
    lost: set[int] = field(default_factory=set)  # seqs of sections whose entry the log lacks


class _Heading(NamedTuple):
    start: int
    end: int
    speaker: bytes
    seq: int


def compare(path: Path, texts: Iterable[tuple[int, bytes]]) -> CopyDifference:
    """Compare a conversation file with the (seq, text) pairs of a log, in the order of the log.
    Reads the whole file. Raises OSError, and the errors of `texts`.
    """
    found = CopyDifference()
    with _mapped(path) as data:
        headings = [_Heading(*m.span(), m[1], int(m[2])) for m in _HEADING.finditer(data)]
        starts: dict[int, list[int]] = {}
        for heading in headings:
            starts.setdefault(heading.seq, []).append(heading.start)
        covered, there, last = list[tuple[int, int, int]](), set[int](), 0
        for seq, text in texts:
            there.add(seq)
            first = _HEADING.search(text)
            shift = first.start() if first else 0
            places = [at - shift for at in starts.get(seq, ()) if at >= shift]
            places = [at for at in places if data[at : at + len(text)] == text]
            covered += [(at, at + len(text), seq) for at in places]
            if places:
                later = [at for at in places if at >= last]
                found.in_order = found.in_order and bool(later)
                last = (later or places)[0]
        for begin, end, bounds in _gaps(sorted(covered), len(data)):
            found.has_foreign_text = found.has_foreign_text or bool(data[begin:end].strip())
            found.sections += _sections(data, begin, end, bounds, headings)
    found.lost = {section.seq for section in found.sections} - there
    return found


@contextmanager
def _mapped(path: Path) -> Iterator[bytes | mmap]:
    with open_kept(path) as file:
        if not file.read(1):
            yield b""
            return
        with mmap(file.fileno(), 0, access=ACCESS_READ) as data:
            yield data


def _gaps(
    covered: Sequence[tuple[int, int, int]], size: int
) -> Iterator[tuple[int, int, tuple[int, int]]]:
    """Yield start, end and the seqs before and after, of each range that is not covered."""
    begin, before = 0, 0
    for start, end, seq in [*covered, (size, size, 1 << 60)]:
        if begin < start:
            yield begin, start, (before, seq)
        if end > begin:
            begin, before = end, seq


def _sections(
    data: bytes | mmap, begin: int, end: int, bounds: tuple[int, int], headings: Sequence[_Heading]
) -> list[CopiedText]:
    """Return the sections in a range. A line of a text that looks like a heading is ignored if its
    seq does not fit between those before and after it.
    """
    first = bisect_right(headings, begin - 1, key=lambda heading: heading.start)
    last = bisect_right(headings, end - 1, key=lambda heading: heading.start)
    fitting = [each for each in headings[first:last] if bounds[0] <= each.seq <= bounds[1]]
    kept = _longest_rising(fitting)
    ends = [*(heading.start for heading in kept), end][1:]
    return [
        CopiedText(
            heading.seq,
            heading.speaker.decode("utf-8", "replace"),
            data[heading.end : stop].decode("utf-8", "replace").removesuffix("\n\n"),
        )
        for heading, stop in zip(kept, ends, strict=True)
    ]


def _longest_rising(headings: Sequence[_Heading]) -> list[_Heading]:
    """Return the longest selection of headings whose seqs never fall."""
    tops, before = list[int](), list[int | None]()  # indexes of headings
    for index, heading in enumerate(headings):
        place = bisect_right(tops, heading.seq, key=lambda top: headings[top].seq)
        before.append(tops[place - 1] if place else None)
        tops[place : place + 1] = [index]
    chosen, at = list[_Heading](), tops[-1] if tops else None
    while at is not None:
        chosen.append(headings[at])
        at = before[at]
    return chosen[::-1]
