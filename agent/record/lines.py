"""Lines: a log as bytes, from either end, without holding more of it than a line or a block."""

from collections.abc import Iterator
from typing import BinaryIO

_LEAST, _BLOCK = 1 << 15, 1 << 20  # bytes read at once, from the end


def backwards(file: BinaryIO, end: int) -> Iterator[tuple[int, bytes]]:
    """The lines before a line's start, the last one first, with their offsets."""
    size = _LEAST
    while end > 0:
        begin = max(0, end - size)
        file.seek(begin)
        data = file.read(end - begin)
        cut = data.find(b"\n") + 1 if begin else 0
        if begin and not 0 < cut < len(data):
            size *= 2  # no line begins in here
            continue
        for line in reversed(data[cut:].removesuffix(b"\n").split(b"\n")):
            end -= len(line) + 1
            yield end, line + b"\n"
        size = min(2 * size, _BLOCK)


def whole(file: BinaryIO, size: int) -> int:
    """Where the last whole line of a file of that size ends."""
    while size > 0:
        begin = max(0, size - _BLOCK)
        file.seek(begin)
        if found := file.read(size - begin).rfind(b"\n") + 1:
            return begin + found
        size = begin
    return 0
