"""Compute what a caching server charges for requests, by the rules of the API's prompt cache.

The prefix of a request is its tools, its system prompt and the blocks of its messages, in this
order. `cache_control` marks a breakpoint and is not part of the prefix. The server stores the
prefix up to each breakpoint for some minutes after its last use. For a new request it reads the
longest stored prefix that ends at one of the 20 blocks up to a breakpoint. It writes the blocks
from there to the last breakpoint and charges the rest as plain input. Without recorded times,
nothing expires. There is no minimum length for a stored prefix. (Anthropic, "Prompt caching".)

Measure the thinking that history edits drop on models that bind thinking to the preceding
context.

On such models, an edit drops the thinking of every later reply, and a summary written by the model
drops the thinking of the replies it keeps. Dropped thinking is not sent again, which saves tokens.
The model may have to repeat it, which costs at most the same output. Whether it does is unknown, so
neither amount is part of a replay's dollars.

A recording has no thinking to replay, but often has the true output tokens of a reply. The tokens
beyond its text and calls are counted as thinking. The priced prompts contain no thinking, so the
true cost of every setting is higher by the cost of reading it.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import astuple, field
from operator import add
from typing import Any

from ...api.base import dataclass
from ...api.context import Request, View, tokens
from ...api.models import CacheTerms, cost
from ...api.record import Usage
from .results import DroppedThinking, Share


@dataclass(slots=True)
class ThinkingMeter:
    """The thinking of one session and the part that edits have dropped so far."""

    model: str
    _replies: int = 0
    _told: int = 0  # replies with recorded output tokens
    _tokens: dict[int, int] = field(default_factory=dict)  # thinking tokens by seq of the reply
    _dropped: set[int] = field(default_factory=set)
    _unsent: int = 0  # dropped thinking tokens, summed over all later calls

    def add(self, seq: int, output: int | None, said: int) -> None:
        """Record a reply with its output tokens; `said` of them are text and calls."""
        self._replies += 1
        if output is not None:
            self._told += 1
            self._tokens[seq] = max(0, output - said)

    def count_call(self, view: View) -> None:
        """Count the thinking that the next request leaves out of the view."""
        for item in view.items:
            if not item.thinking and (size := self._tokens.get(item.seq)):
                self._dropped.add(item.seq)
                self._unsent += size

    def result(self) -> DroppedThinking:
        """Return the thinking dropped so far, with its prices."""
        dropped = sum(self._tokens[seq] for seq in self._dropped)
        # Price a single token: the sum over all calls would wrongly get the price of a long prompt.
        read = Usage(cache_read=1)
        return DroppedThinking(
            told=Share(self._told, self._replies),
            tokens=sum(self._tokens.values()),
            dropped=dropped,
            saved_usd=self._unsent * (cost(self.model, read) or 0.0),
            again_usd=cost(self.model, Usage(output=dropped)) or 0.0,
        )


RequestBody = dict[str, Any]

LOOKBACK_BLOCKS = 20  # blocks searched for each breakpoint, including its own


@dataclass(frozen=True, slots=True)
class CacheBill:
    """The estimated tokens of prompts, by type of charge."""

    written: int = 0  # into the cache
    read: int = 0  # from the cache
    plain: int = 0
    # Requests that read less than the previous request stored, because the prefix was changed,
    # is too far back or had expired. `cold` counts only the expired ones.
    misses: int = 0
    cold: int = 0

    @property
    def prompt(self) -> int:
        return self.written + self.read + self.plain

    def relative(self, terms: CacheTerms) -> float:
        """Return the cost of these tokens, in tokens at the price of plain input."""
        return terms.write * self.written + terms.read * self.read + self.plain

    def usage(self, output: int) -> Usage:
        """Return the usage that the API would report for a reply of `output` tokens."""
        return Usage(
            input=self.plain, cache_read=self.read, cache_creation=self.written, output=output
        )

    def __add__(self, other: "CacheBill") -> "CacheBill":
        return CacheBill(*map(add, astuple(self), astuple(other)))


@dataclass(frozen=True, slots=True)
class _Block:
    """One block of a request, with the prefix that ends with it."""

    place: str  # "tools", "system", or the index and role of its message
    content: Any
    prefix: bytes  # the digest of everything up to the end of this block
    end: int  # tokens up to the end of this block


@dataclass(slots=True)
class PromptCache:
    """A server's prompt cache that charges requests in the order they arrive."""

    life: float  # seconds until a stored prefix expires after its last use
    _last_use: dict[bytes, float] = field(default_factory=dict)  # seconds, by stored prefix
    _clock: float = 0.0  # seconds
    _previous_model: Any = None  # here and below: of the previous request
    _previous_blocks: list[_Block] = field(default_factory=list)
    _previous_stored: int = 0  # tokens of the longest stored prefix
    _previous_time: float = 0.0

    def charge(self, body: RequestBody, at: float | None = None) -> CacheBill:
        """Return the bill of one request sent at time `at` in seconds; None means immediately."""
        self._clock = max(self._clock, self._clock if at is None else at)
        blocks, breakpoints = self._blocks(body)
        self._previous_model, self._previous_blocks = body.get("model"), blocks
        total = blocks[-1].end if blocks else 0
        hits = [hit for place in breakpoints if (hit := self._hit(blocks, place))]
        best = max(hits, key=lambda block: block.end, default=None)
        read = best.end if best else 0
        if best:
            self._last_use[best.prefix] = self._clock
        stored = blocks[breakpoints[-1]].end if breakpoints else 0
        missed = read < self._previous_stored
        cold = missed and self._clock - self._previous_time > self.life
        for place in breakpoints:
            self._last_use[blocks[place].prefix] = self._clock
        self._previous_stored, self._previous_time = stored, self._clock
        return CacheBill(stored - read, read, total - stored, int(missed), int(cold))

    def is_cold(self, at: float | None) -> bool:
        """Return True if every stored prefix has expired at time `at`."""
        return not self._last_use or self.pause(at) > self.life

    def pause(self, at: float | None) -> float:
        """Return the seconds from the last use of the cache to time `at`; 0 if it was not used."""
        now = self._clock if at is None else at
        return now - max(self._last_use.values(), default=now)

    def _hit(self, blocks: Sequence[_Block], breakpoint: int) -> _Block | None:
        """Return the last block of the longest stored prefix within reach of the breakpoint, or
        None.
        """
        for block in reversed(blocks[max(0, breakpoint + 1 - LOOKBACK_BLOCKS) : breakpoint + 1]):
            if self._clock - self._last_use.get(block.prefix, float("-inf")) <= self.life:
                return block
        return None

    def _blocks(self, body: RequestBody) -> tuple[list[_Block], list[int]]:
        """Return the blocks of a request and the indexes of its breakpoints.

        Leading blocks equal to the previous request's blocks are reused, because hashing and
        counting them is slow.
        """
        blocks: list[_Block] = []
        breakpoints: list[int] = []
        model, prefix, end = body.get("model"), b"", 0
        same = len(self._previous_blocks) if model == self._previous_model else 0
        for place, content in _sections(body):
            for block in content:
                at = len(blocks)
                if block.get("cache_control") is not None:
                    breakpoints.append(at)
                    block = {k: v for k, v in block.items() if k != "cache_control"}
                if at < same:
                    before = self._previous_blocks[at]
                    if before.place == place and before.content == block:
                        blocks.append(before)
                        prefix, end = before.prefix, before.end
                        continue
                    same = at
                encoded = json.dumps([model, place, block], default=str).encode()
                prefix = hashlib.sha256(prefix + encoded).digest()
                end += tokens.estimate_block(block)
                blocks.append(_Block(place, block, prefix, end))
        return blocks, breakpoints


def prompt_of(request: Request) -> RequestBody:
    """Return the parts of a request that the cache depends on."""
    return {
        "model": request.model,
        "tools": request.tools,
        "system": request.system,
        "messages": request.messages,
    }


def _sections(body: RequestBody) -> Iterator[tuple[str, Sequence[dict[str, Any]]]]:
    """Yield each section of a request with its blocks, in the order of the prefix."""
    yield "tools", body.get("tools", [])
    yield "system", _as_blocks(body.get("system", []))
    for number, message in enumerate(body["messages"]):
        yield f"{number} {message['role']}", _as_blocks(message["content"])


def _as_blocks(content: Any) -> Any:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content
