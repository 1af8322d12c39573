"""What a caching server would charge for requests, by the rules of the API's prompt cache.

    bill = price(server.requests)
    bill.dollars_relative  # as tokens at the price of uncached input

The prefix of a request is its tools, its system prompt and the blocks of its messages, in this
order; `cache_control` marks a breakpoint and is no part of it. At each breakpoint the prefix is
kept. Of a request, the longest kept prefix that ends at a breakpoint, or within 20 blocks before
one, is read; from there up to the last breakpoint it is written; the rest is plain. Output is not
priced, nothing expires, and no prefix is too short to be kept.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ctxagent.agent.context import tokens

Body = dict[str, Any]

READ, WRITE = 0.1, 1.25  # of the price of plain input
LOOKBACK = 20  # blocks before a breakpoint


@dataclass(frozen=True, slots=True)
class Bill:
    """Estimated tokens by what became of them. `misses` counts the requests that read less than
    the request before had kept: something in the prefix was changed, or lies too far back."""

    written: int = 0
    read: int = 0
    plain: int = 0
    misses: int = 0

    @property
    def dollars_relative(self) -> float:
        return WRITE * self.written + READ * self.read + self.plain

    def __add__(self, other: "Bill") -> "Bill":
        return Bill(
            self.written + other.written,
            self.read + other.read,
            self.plain + other.plain,
            self.misses + other.misses,
        )


@dataclass(frozen=True, slots=True)
class _Block:
    """A block of a request: `prefix` stands for all up to its end, which is `end` tokens long."""

    content: Any
    prefix: bytes
    end: int
    marked: bool


@dataclass(slots=True)
class Cache:
    """A server's cache. `charge` takes the requests in their order."""

    _kept: set[bytes] = field(default_factory=set)
    _before: list[_Block] = field(default_factory=list)
    _reach: int = 0  # tokens of the prefix that the request before has kept

    def charge(self, body: Body) -> Bill:
        """The bill of one request."""
        blocks = self._before = list(self._blocks(body))
        total = blocks[-1].end if blocks else 0
        marks = [place for place, block in enumerate(blocks) if block.marked]
        read = max((self._hit(blocks, mark) for mark in marks), default=0)
        reach = blocks[marks[-1]].end if marks else 0
        bill = Bill(reach - read, read, total - reach, int(read < self._reach))
        self._kept.update(blocks[mark].prefix for mark in marks)
        self._reach = reach
        return bill

    def _hit(self, blocks: Sequence[_Block], mark: int) -> int:
        """The tokens that a breakpoint lets be read."""
        for block in reversed(blocks[max(0, mark - LOOKBACK) : mark + 1]):
            if block.prefix in self._kept:
                return block.end
        return 0

    def _blocks(self, body: Body) -> Iterator[_Block]:
        """As long as a request equals the one before, its blocks need not be counted again."""
        prefix, end, same = b"", 0, True
        for place, (content, marked) in enumerate(_flat(body)):
            before = self._before[place] if place < len(self._before) else None
            same = same and before is not None and before.content == content
            if same and before is not None:
                prefix, end = before.prefix, before.end
            else:
                prefix = hashlib.sha256(prefix + json.dumps(content).encode()).digest()
                end += tokens.of_block(content[-1])
            yield _Block(content, prefix, end, marked)


def price(requests: Iterable[Body]) -> Bill:
    """What these request bodies cost one after another."""
    cache = Cache()
    return sum((cache.charge(body) for body in requests), Bill())


def _flat(body: Body) -> Iterator[tuple[list[Any], bool]]:
    """The blocks of a request, each after its model and place, and whether it is a breakpoint."""
    sections = [("tools", body.get("tools", [])), ("system", body.get("system", []))]
    for number, message in enumerate(body["messages"]):
        sections.append((f"{number} {message['role']}", message["content"]))
    for place, content in sections:
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            plain = {k: v for k, v in block.items() if k != "cache_control"}
            yield [body.get("model"), place, plain], block.get("cache_control") is not None
