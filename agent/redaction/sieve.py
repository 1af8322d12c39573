"""A sink before a sink: output on its way, without what must not be kept, wherever it is cut.

What may be the beginning of a secret waits for the rest of it: the beginning of a known value, and
where shapes are looked for, a line that is not at its end and a private key that is not.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from .shapes import LONGEST_KEY, open_key

LONGEST = 65_536  # bytes of a line that are waited for
OVERLAP = 8_192  # of those, so many wait on: nothing that is looked for is longer


class Sink(Protocol):
    """Where output goes, as `tools.process` has it."""

    def feed(self, data: bytes) -> None: ...

    def close(self) -> None: ...


class Sieve:
    """Every byte is taken for a character: what is no text comes through as it was."""

    def __init__(
        self,
        sink: Sink,
        clear: Callable[[str], str],
        known: Sequence[str],
        *,
        whole_lines: bool,
    ) -> None:
        self._sink = sink
        self._clear = clear
        self._known = [value.encode() for value in known]
        self._whole_lines = whole_lines
        self._held = bytearray()

    def feed(self, data: bytes) -> None:
        self._held += data
        self._pass_on(self._line() if self._whole_lines else self._apart())

    def close(self) -> None:
        self._pass_on(len(self._held))
        self._sink.close()

    def _pass_on(self, end: int) -> None:
        if end > 0:
            text = bytes(self._held[:end]).decode("utf-8", "surrogateescape")
            del self._held[:end]
            self._sink.feed(self._clear(text).encode("utf-8", "surrogateescape"))

    def _apart(self) -> int:
        """Up to where no known value has begun that is not there whole."""
        held, end = self._held, len(self._held)
        for value in self._known:
            for length in range(min(len(value) - 1, len(held)), 0, -1):
                if held.endswith(value[:length]):
                    end = min(end, len(held) - length)
                    break
        for value in self._known:  # one that is whole may end as another begins
            place = held.find(value, max(0, end - len(value) + 1), end + len(value) - 1)
            end = place if 0 <= place < end else end
        return end

    def _line(self) -> int:
        """Up to where lines are whole and no private key has begun that is not."""
        held = self._held
        end = max(held.rfind(b"\n"), held.rfind(b"\r")) + 1
        if len(held) - end > LONGEST:
            end = _between(held, len(held) - OVERLAP)
        key = open_key(held, end)
        return end if key < 0 or len(held) - key > LONGEST_KEY else key


def _between(held: bytearray, end: int) -> int:
    """The nearest place before `end` that is not in the middle of a word."""
    for place in range(end, max(end - OVERLAP, 0), -1):
        if held[place - 1] in b" \t,;\"'<>(){}[]":
            return place
    return end
