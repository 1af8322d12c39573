"""A stored text of a session, in memory or in a file. A file may be larger than memory, so it is
read in pieces.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import BinaryIO

from ...agent.lazy import dataclass

PIECE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class KeptText:
    """A text, or the file that contains it."""

    text: str = ""
    open_file: Callable[[], BinaryIO] | None = None  # raises OSError

    def pieces(self) -> Iterator[str]:
        """Yield the text in pieces; pieces of a file have a size limit. A missing file yields
        nothing.
        """
        if self.open_file is None:
            yield self.text
            return
        with suppress(OSError), self.open_file() as file:
            held = b""
            while data := file.read(PIECE_BYTES):
                held += data
                end = len(held) - _incomplete_bytes(held)
                yield _decoded(held[:end])
                held = held[end:]
            if held:
                yield _decoded(held)

    def whole(self) -> str:
        """Return the whole text, which must fit into memory."""
        return "".join(self.pieces())

    def part(self, offset: int, limit: int) -> tuple[str, int]:
        """Return `limit` characters from `offset` on, and the total number of characters."""
        parts, total = list[str](), 0
        for piece in self.pieces():
            parts.append(piece[max(0, offset - total) : max(0, offset + limit - total)])
            total += len(piece)
        return "".join(parts), total

    def is_longer_than(self, characters: int) -> bool:
        """Return True if the text has more characters. Reads only as much as needed."""
        total = 0
        for piece in self.pieces():
            total += len(piece)
            if total > characters:
                return True
        return False


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8", "surrogatepass")  # with lone surrogates, as written
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace")


def _incomplete_bytes(data: bytes) -> int:
    """Return the number of bytes at the end that belong to an incomplete character."""
    for back in range(1, min(4, len(data) + 1)):
        byte = data[-back]
        if byte >= 0xC0:
            size = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return back if size > back else 0
        if byte < 0x80:
            break
    return 0
