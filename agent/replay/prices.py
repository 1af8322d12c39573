"""What a caching server charges for requests, by the rules of the API's prompt cache.

The prefix of a request is its tools, its system prompt and the blocks of its messages, in this
order; `cache_control` marks a breakpoint and is no part of it. At each breakpoint the prefix is
kept, for five minutes after it was last used. Of a request, the longest kept prefix is read that
ends at one of the 20 blocks up to a breakpoint; from there up to the last breakpoint it is written;
the rest is plain. Where times are not known nothing ends. No prefix is too short to be kept.
(Anthropic, "Prompt caching".)
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..context import tokens
from ..model.base import CACHE_LIFE, CACHE_READ, CACHE_WRITE
from ..record.entries import Usage

Body = dict[str, Any]

LOOKBACK = 20  # blocks that a breakpoint looks at, its own among them


@dataclass(frozen=True, slots=True)
class Bill:
    """Estimated tokens of prompts by what became of them. `misses` counts the requests that read
    less than the request before had kept, because something in the prefix was changed or lies too
    far back; `cold` those for which it had ended."""

    written: int = 0
    read: int = 0
    plain: int = 0
    misses: int = 0
    cold: int = 0

    @property
    def prompt(self) -> int:
        return self.written + self.read + self.plain

    @property
    def relative(self) -> float:
        """As tokens at the price of plain input."""
        return CACHE_WRITE * self.written + CACHE_READ * self.read + self.plain

    def usage(self, output: int) -> Usage:
        """As the API would count it."""
        return Usage(
            input=self.plain,
            cache_read=self.read,
            cache_creation=self.written,
            output=output,
        )

    def __add__(self, other: "Bill") -> "Bill":
        return Bill(
            self.written + other.written,
            self.read + other.read,
            self.plain + other.plain,
            self.misses + other.misses,
            self.cold + other.cold,
        )


@dataclass(frozen=True, slots=True)
class _Block:
    """A block of a request, after its place: `prefix` stands for all up to its end, which is `end`
    tokens long."""

    place: str
    content: Any
    prefix: bytes
    end: int


@dataclass(slots=True)
class Cache:
    """A server's cache. `charge` takes the requests in their order."""

    _kept: dict[bytes, float] = field(default_factory=dict)  # and when it was used last
    _model: Any = None  # of the request before
    _before: list[_Block] = field(default_factory=list)
    _reach: int = 0  # tokens of the prefix that the request before has kept
    _clock: float = 0.0
    _asked: float = 0.0  # when the request before was made

    def charge(self, body: Body, at: float | None = None) -> Bill:
        """The bill of one request, made at a time in seconds; None is "at once"."""
        self._clock = max(self._clock, self._clock if at is None else at)
        blocks, marks = self._blocks(body)
        self._model, self._before = body.get("model"), blocks
        total = blocks[-1].end if blocks else 0
        hits = [hit for mark in marks if (hit := self._hit(blocks, mark))]
        best = max(hits, key=lambda block: block.end, default=None)
        read = best.end if best else 0
        if best:
            self._kept[best.prefix] = self._clock
        reach = blocks[marks[-1]].end if marks else 0
        missed = read < self._reach
        cold = missed and self._clock - self._asked > CACHE_LIFE
        bill = Bill(reach - read, read, total - reach, int(missed), int(cold))
        for mark in marks:
            self._kept[blocks[mark].prefix] = self._clock
        self._reach, self._asked = reach, self._clock
        return bill

    def is_cold(self, at: float | None) -> bool:
        """Whether nothing is kept any more by that time."""
        newest = max(self._kept.values(), default=float("-inf"))
        return (self._clock if at is None else at) - newest > CACHE_LIFE

    def _hit(self, blocks: Sequence[_Block], mark: int) -> _Block | None:
        """The longest kept prefix that a breakpoint lets be read."""
        for block in reversed(blocks[max(0, mark + 1 - LOOKBACK) : mark + 1]):
            if self._clock - self._kept.get(block.prefix, float("-inf")) <= CACHE_LIFE:
                return block
        return None

    def _blocks(self, body: Body) -> tuple[list[_Block], list[int]]:
        """The blocks, and which of them are breakpoints. As long as a request equals the one
        before, its blocks need not be counted again."""
        blocks: list[_Block] = []
        marks: list[int] = []
        model, prefix, end = body.get("model"), b"", 0
        same = len(self._before) if model == self._model else 0
        for place, content in _sections(body):
            for block in content:
                at = len(blocks)
                if block.get("cache_control") is not None:
                    marks.append(at)
                    block = {k: v for k, v in block.items() if k != "cache_control"}
                if at < same:
                    before = self._before[at]
                    if before.place == place and before.content == block:
                        blocks.append(before)
                        prefix, end = before.prefix, before.end
                        continue
                    same = at
                told = json.dumps([model, place, block], default=str).encode()
                prefix = hashlib.sha256(prefix + told).digest()
                end += tokens.of_block(block)
                blocks.append(_Block(place, block, prefix, end))
        return blocks, marks


def price(requests: Iterable[Body]) -> Bill:
    """What these request bodies cost one after another."""
    cache = Cache()
    return sum((cache.charge(body) for body in requests), Bill())


def _sections(body: Body) -> Iterator[tuple[str, Sequence[dict[str, Any]]]]:
    """The blocks of a request by their places, in the order of the prefix."""
    yield "tools", body.get("tools", [])
    yield "system", _listed(body.get("system", []))
    for number, message in enumerate(body["messages"]):
        yield f"{number} {message['role']}", _listed(message["content"])


def _listed(content: Any) -> Any:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content
