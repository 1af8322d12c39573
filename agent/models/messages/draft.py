"""Collects the events of a streamed reply: deltas during the stream, the reply at the end.

Unknown kinds of block are kept unchanged; unknown kinds of event and delta are ignored. A web
search by the server is reported as a finished tool call. Missing fields are filled in, because some
servers omit them. Servers are not trusted: the size of the reply and the token counts are limited.
IDs that are already used, or cannot be sent back, are replaced.
"""

import json
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from typing import Any, NoReturn

from ...context.items import COMPACTION
from ...context.request import SEARCH_ID, Request
from ...events import (
    Accepted,
    Delta,
    TextDelta,
    ThinkingDelta,
    ToolDraft,
    ToolFinished,
    ToolStarted,
)
from ...lazy import dataclass, regex
from ...session.entries import Block, Usage
from ...session.searches import (
    FOUND,
    SEARCH,
    SEARCH_TOOL,
    failure,
    is_search,
    listing,
    query_of,
    results_of,
)
from ..base import Reply
from ..providers import DEFAULT_PROVIDER, resolve_model
from ..transport import parse_arguments
from ..wire import cut_name

_USAGE = {
    "input_tokens": "input",
    "cache_read_input_tokens": "cache_read",
    "cache_creation_input_tokens": "cache_creation",
    "output_tokens": "output",
}
# By kind of delta: (field of the block to append to, field of the delta to append).
_GROWTH = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("signature", "signature"),
    "input_json_delta": ("input", "partial_json"),
}
_CITED = "citations_delta"
# Stop reasons of servers that wrap another API, translated to the Messages API.
_STOP_REASONS = {
    "stop": "end_turn", "eos": "end_turn", "complete": "end_turn", "COMPLETE": "end_turn",
    "length": "max_tokens", "max_length": "max_tokens", "tool_calls": "tool_use",
    "function_call": "tool_use", "content_filter": "refusal",
}  # fmt: skip
_STARTS, _ENDS = "content_block_start", "content_block_stop"
MAX_REPLY_CHARS = 8_000_000  # of the content; 8 times the longest output of a model
MAX_BLOCKS = 10_000
_MAX_CREDIBLE_TOKENS = 10**8  # of a prompt or a reply
_MAX_CREDIBLE_SEARCHES = 1_000  # web searches per reply
_ID = regex(r"[A-Za-z0-9_-]{1,128}")


@dataclass(slots=True)
class _Open:
    """A block that is still being received, with its fields in pieces."""

    block: Block
    pieces: dict[str, list[str]] = field(default_factory=dict)
    size: int = 0  # characters of arguments


@dataclass(slots=True)
class ReplyDraft:
    """A reply under construction."""

    model: str  # the requested model, until the public API returns its full ID
    taken_ids: frozenset[str] = frozenset()  # IDs of calls in the request
    max_tokens: int = _MAX_CREDIBLE_TOKENS  # limit in the request
    sent: Mapping[str, Any] = field(default_factory=dict)  # how the request was sent
    began: bool = False
    stopped: bool = False
    stop_reason: str | None = None
    usage: Usage = field(default_factory=Usage)
    message_id: str | None = None
    _content: dict[int, Block] = field(default_factory=dict)
    _open: dict[int, _Open] = field(default_factory=dict)
    _broken: dict[str, str] = field(default_factory=dict)
    _renamed: dict[str, str] = field(default_factory=dict)  # IDs of searches: old to new
    _searches: dict[str, tuple[str, float]] = field(default_factory=dict)  # (query, start) by ID
    _size: int = 0  # characters of content

    @property
    def complete(self) -> bool:
        """True when the reply has a stop reason and all blocks are closed."""
        return self.stopped or (self.stop_reason is not None and not self._open)

    def take(self, event: dict[str, Any]) -> Iterator[Delta]:
        """Add an event and yield its deltas for front ends. Raises ValueError for an event that is
        invalid at this point.
        """
        kind = event.get("type")
        if kind == "message_start":
            yield self._start(_object(event, "message"))
        elif kind == _STARTS:
            yield from self._start_block(event)
        elif kind == "content_block_delta":
            yield from self._grow(event)
        elif kind == _ENDS:
            index = _index(event)
            self._close(index)
            yield from self._search(self._content[index])
        elif kind == "message_delta":
            self._count(event.get("usage"))
            reason = _text(_object(event, "delta").get("stop_reason")) or self.stop_reason
            self.stop_reason = _STOP_REASONS.get(reason or "", reason)
        elif kind == "message_stop":
            self.stopped = True

    def take_unstreamed(self, answer: dict[str, Any]) -> Iterator[Delta]:
        """Add an answer that is not streamed. See `wire.Draft`."""
        yield from self.take({"type": "message_start", "message": answer})
        blocks = answer.get("content")
        for index, block in enumerate(blocks if isinstance(blocks, list) else ()):
            yield from self.take({"type": _STARTS, "index": index, "content_block": block})
            yield from self.take({"type": _ENDS, "index": index})
        yield from self.take(
            {"type": "message_delta", "delta": answer, "usage": answer.get("usage")}
        )

    def reply(self) -> Reply:
        """Return the collected reply. Calls with truncated arguments are in `broken`."""
        for index in list(self._open):
            self._close(index)
        content = [self._content[i] for i in sorted(self._content)]
        broken = dict(self._broken)
        return Reply(
            content, self.stop_reason, self.usage, self.model, self.message_id, broken, self.sent
        )

    def _start(self, message: dict[str, Any]) -> Accepted:
        self.began = True
        if resolve_model(self.model).provider.name == DEFAULT_PROVIDER:  # others return no full ID
            self.model = cut_name(message.get("model")) or self.model
        self.message_id = cut_name(message.get("id")) or None
        self._count(message.get("usage"))
        return Accepted(self.usage.to_json(), self.sent)

    def _count(self, usage: Any) -> None:
        """Store the token counts. They are cumulative: later counts replace earlier ones."""
        if isinstance(usage, dict):
            counts = {ours: _total(usage, theirs) for theirs, ours in _USAGE.items()}
            found = {
                k: v for k, v in counts.items() if type(v) is int and 0 <= v <= _MAX_CREDIBLE_TOKENS
            }
            self.usage = replace(self.usage, **found)
            # A visible token has at least one character.
            bound = max(self.max_tokens, self._size)
            self.usage = replace(self.usage, output=min(self.usage.output, bound))
            made = usage.get("server_tool_use")
            searches = made.get("web_search_requests") if isinstance(made, dict) else None
            if type(searches) is int and 0 <= searches <= _MAX_CREDIBLE_SEARCHES:
                self.usage = replace(self.usage, web_searches=searches)

    def _start_block(self, event: dict[str, Any]) -> Iterator[Delta]:
        index, block = _index(event), _object(event, "content_block")
        if index in self._open or index in self._content:
            _raise_invalid_event(event)
        if len(self._open) + len(self._content) >= MAX_BLOCKS:
            raise ValueError(f"a reply of more than {MAX_BLOCKS:,} blocks")
        self._open[index] = _Open(dict(block))
        self._add_size(len(json.dumps(block)))
        if block.get("type") == "tool_use":
            yield ToolDraft(cut_name(block.get("name")), 0)
        elif is_search(block):
            yield ToolDraft(SEARCH_TOOL, 0)
        elif block.get("type") == "text" and block.get("text"):
            yield TextDelta(str(block["text"]))

    def _grow(self, event: dict[str, Any]) -> Iterator[Delta]:
        delta = _object(event, "delta")
        kind = _text(delta.get("type"))
        opened = self._open.get(_index(event)) if kind in _GROWTH or kind == _CITED else None
        if kind == _CITED and opened is not None:
            cited = _object(delta, "citation")
            opened.block["citations"] = [*(opened.block.get("citations") or ()), cited]
            self._add_size(len(json.dumps(cited)))
        if kind not in _GROWTH:
            return
        name, source = _GROWTH[kind]
        piece = delta.get(source)
        if opened is None or not isinstance(piece, str):
            _raise_invalid_event(event)
        opened.pieces.setdefault(name, []).append(piece)
        self._add_size(len(piece))
        if kind == "text_delta":
            yield TextDelta(piece)
        elif kind == "thinking_delta":
            yield ThinkingDelta(piece)
        elif kind == "input_json_delta" and opened.block.get("type") == "tool_use":
            opened.size += len(piece)
            yield ToolDraft(cut_name(opened.block.get("name")), opened.size)

    def _add_size(self, chars: int) -> None:
        self._size += chars
        if self._size > MAX_REPLY_CHARS:
            raise ValueError(f"a reply of more than {MAX_REPLY_CHARS:,} characters")

    def _close(self, index: int) -> None:
        opened = self._open.pop(index, None)
        if opened is None:
            raise ValueError(f"the end of block {index}, which has not started")
        block = opened.block
        for name, pieces in opened.pieces.items():
            if name != "input":
                block[name] = str(block.get(name) or "") + "".join(pieces)
        if block.get("type") == "text":
            block["text"] = _text(block.get("text")) or ""
        elif block.get("type") == "tool_use":
            self._complete(block, "".join(opened.pieces.get("input", ())))
        elif "input" in opened.pieces:
            block["input"] = parse_arguments("".join(opened.pieces["input"])) or {}
        if block.get("type") == SEARCH:
            self._name_search(block)
        elif block.get("type") == FOUND:
            named = str(block.get("tool_use_id"))
            block["tool_use_id"] = self._renamed.get(named, named)
        self._content[index] = block

    def _complete(self, block: Block, raw: str) -> None:
        """Set the arguments of a call and fill in missing fields. Replace an ID that is already
        used, because results refer to calls by ID.
        """
        taken = self.taken_ids.union(str(b.get("id")) for b in self._content.values())
        id = _text(block.get("id")) or ""
        fresh = _ID.fullmatch(id) and id not in taken
        block["id"] = id if fresh else f"call_{secrets.token_hex(8)}"
        block["name"] = cut_name(block.get("name"))
        given = block.get("input")
        raw = raw or ("" if given in (None, {}) else json.dumps(given))
        found = parse_arguments(raw) if raw else {}
        block["input"] = found or {}
        if found is None:
            self._broken[block["id"]] = raw

    def _name_search(self, block: Block) -> None:
        """Replace an ID that is already used or cannot be sent back, also in the search's
        result.
        """
        taken = self.taken_ids.union(str(b.get("id")) for b in self._content.values())
        id = _text(block.get("id")) or ""
        if not SEARCH_ID.fullmatch(id) or id in taken:
            block["id"] = self._renamed[id] = f"srvtoolu_{secrets.token_hex(8)}"

    def _search(self, block: Block) -> Iterator[Delta]:
        """Yield the start or the end of a search for front ends, when its block is complete."""
        if is_search(block):
            id, query = str(block["id"]), query_of(block)
            self._searches[id] = (query, time.monotonic())
            yield ToolStarted(id, SEARCH_TOOL, query, {"query": query})
        elif block.get("type") == FOUND:
            id, now = str(block["tool_use_id"]), time.monotonic()
            query, began = self._searches.pop(id, ("", now))
            details = {"results": len(results_of(block))}
            is_error = bool(failure(block))
            yield ToolFinished(
                id, SEARCH_TOOL, query, is_error, listing(block), now - began, details
            )


def draft_of(request: Request) -> ReplyDraft:
    """Return the draft of the reply to a request."""
    return ReplyDraft(request.model, request.call_ids(), request.max_tokens)


def _total(usage: dict[str, Any], name: str) -> Any:
    """Return a token count. Add the server's own summaries, which the API counts separately."""
    told = usage.get("iterations")
    rounds = [r for r in told if isinstance(r, dict)] if isinstance(told, list) else []
    counts = [r.get(name) for r in rounds if r.get("type") == COMPACTION]
    found = [count for count in (usage.get(name), *counts) if type(count) is int]
    return sum(found) if found else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _index(event: dict[str, Any]) -> int:
    index = event.get("index")
    if type(index) is not int:
        _raise_invalid_event(event)
    return index


def _object(event: dict[str, Any], name: str) -> dict[str, Any]:
    value = event.get(name)
    if not isinstance(value, dict):
        _raise_invalid_event(event)
    return value


def _raise_invalid_event(event: dict[str, Any]) -> NoReturn:
    raise ValueError(f"an invalid event: {json.dumps(event)[:120]}")
