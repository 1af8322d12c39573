"""Collects the chunks of a Chat Completions reply: deltas during the stream, the reply at the end.

Servers differ in most parts of a chunk. A call may come in pieces, in any order, or whole. `index`,
`id` and `finish_reason` may be missing or wrong. Reasoning has many field names, or is text between
tags. Missing parts are filled in. Servers are not trusted: the size of the reply and the token
counts are limited. IDs that are already used, or cannot be sent back, are replaced.
"""

import json
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from typing import Any

from ...context.request import Request
from ...events import Accepted, Delta, TextDelta, ThinkingDelta, ToolDraft
from ...lazy import dataclass, regex
from ...session.entries import Block, Usage
from ..base import Reply
from ..timings import cached_tokens, server_timings
from ..transport import parse_arguments, parse_error
from ..wire import StreamError, cut_name, shorten_name
from .body import EXTRA, REASONING_DETAILS, REASONING_FIELDS, REASONING_PARTS

MAX_REPLY_CHARS = 8_000_000  # of the content; 8 times the longest output of a model
MAX_CALLS = 1_000
_MAX_CREDIBLE_TOKENS = 10**8  # of a prompt or a reply
_MAX_EXTRA_CHARS = 100_000  # of extra data that a server wants back with a call
_MAX_COMPARED_CHARS = 20_000_000  # per call, takes about 1 s
_MAX_BLANK_CHARS = 1_000  # before reasoning between tags
_ID = regex(r"[A-Za-z0-9_-]{1,128}")
_STOP_REASONS = {
    "stop": "end_turn", "eos": "end_turn", "eos_token": "end_turn", "end": "end_turn",
    "stop_sequence": "end_turn", "length": "max_tokens", "max_tokens": "max_tokens",
    "model_length": "max_tokens", "tool_calls": "tool_use", "function_call": "tool_use",
    "refusal": "refusal", "safety": "refusal", "recitation": "refusal",
}  # fmt: skip
_FILTERED = "content_filter"  # Gemini appends the reason
_ABORT_REASONS = ("error", "network_error", "abort", "cancelled", "insufficient_system_resource")
_OPEN_TAG, _CLOSE_TAG = "<think>", "</think>"
# Names of token counts, by server.
_READ = ("cached_tokens", "prompt_cache_hit_tokens", "cache_read_input_tokens")
_WRITTEN = ("cache_write_tokens", "cache_creation_tokens", "cache_creation_input_tokens")


@dataclass(slots=True)
class _Call:
    """A tool call that is still being received."""

    id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list)
    size: int = 0
    compared: int = 0  # characters parsed so far to check whether the call is complete
    extra: Any = None

    def continues_with(self, id: str, name: str, piece: str) -> bool:
        """Return True if a piece belongs to this call. For a server that sends no index or always
        0, a new call starts with another ID, or with a name when this call's arguments are
        complete.
        """
        if id and self.id:
            return id == self.id
        if not (name and self.name and piece.lstrip().startswith("{")):
            return True
        ended = bool(self.pieces) and self.pieces[-1].rstrip().endswith("}")
        self.compared += self.size if ended else 0
        if self.compared > _MAX_COMPARED_CHARS:
            return True
        return not (ended and parse_arguments("".join(self.pieces)) is not None)


@dataclass(slots=True)
class _Tags:
    """Splits text that starts with reasoning between tags, as local servers send it."""

    held: str = ""  # buffered text that may be part of a tag
    place: str = "before"  # then "inside", "behind", "out"; or directly "out"

    def split(self, piece: str) -> Iterator[tuple[bool, str]]:
        """Yield (is reasoning, text) for the text that can be classified so far."""
        self.held += piece
        if self.place == "before":
            begun = self.held.lstrip()
            may_begin = len(begun) < len(_OPEN_TAG) and _OPEN_TAG.startswith(begun)
            if may_begin and len(self.held) <= _MAX_BLANK_CHARS:
                return
            self.place = "inside" if begun.startswith(_OPEN_TAG) else "out"
            self.held = begun[len(_OPEN_TAG) :] if self.place == "inside" else self.held
        if self.place == "inside":
            thought, tag, said = self.held.partition(_CLOSE_TAG)
            cut = len(thought) if tag else max(0, len(thought) - len(_CLOSE_TAG) + 1)
            self.held = said if tag else thought[cut:]
            yield True, thought[:cut]
            if not tag:
                return
            self.place = "behind"
        if self.place == "behind":
            self.held = self.held.lstrip()
            self.place = "out" if self.held else "behind"
        yield from self.rest()

    def rest(self) -> Iterator[tuple[bool, str]]:
        """Yield the buffered text at the end of the stream."""
        held, self.held = self.held, ""
        yield self.place == "inside", held


def draft(request: Request) -> "ChatDraft":
    """Return an empty reply to a request."""
    names = {shorten_name(tool["name"]): tool["name"] for tool in request.tools}
    return ChatDraft(request.model, request.call_ids(), request.max_tokens, names)


@dataclass(slots=True)
class ChatDraft:
    """A reply under construction. See `wire.Draft`."""

    model: str
    taken_ids: frozenset[str] = frozenset()  # IDs of calls in the request
    max_tokens: int = _MAX_CREDIBLE_TOKENS  # limit in the request
    names: Mapping[str, str] = field(default_factory=dict)  # tool names by the names sent
    sent: Mapping[str, Any] = field(default_factory=dict)  # how the request was sent
    began: bool = False
    stopped: bool = False
    stop_reason: str | None = None
    usage: Usage = field(default_factory=Usage)
    timings: Mapping[str, Any] = field(default_factory=dict)  # see `Reply.timings`
    message_id: str | None = None
    _text: list[str] = field(default_factory=list)
    _tags: _Tags = field(default_factory=_Tags)
    _tagged: list[str] = field(default_factory=list)  # reasoning between tags
    _reasoning: list[str] = field(default_factory=list)
    _reasoning_field: str = ""
    _details: list[dict[str, Any]] = field(default_factory=list)
    _calls: list[_Call] = field(default_factory=list)
    _by_index: dict[int, _Call] = field(default_factory=dict)
    _broken: dict[str, str] = field(default_factory=dict)
    _refused: bool = False  # True if the text is a refusal
    _size: int = 0  # characters of content

    @property
    def complete(self) -> bool:
        """True when the reply has a stop reason."""
        return self.stop_reason is not None

    def take(self, event: dict[str, Any]) -> Iterator[Delta]:
        """Add a chunk and yield its deltas for front ends."""
        if event.get("object") == "error":  # older servers send errors without an envelope
            raise StreamError(*(parse_error(event) or ("", "")))
        choices = event.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else {}
        if not isinstance(choice, dict):
            raise ValueError(f"an invalid choice: {json.dumps(event)[:120]}")
        self.timings = server_timings(event) or self.timings
        has_usage = self._count(event.get("usage")) or self._count(choice.get("usage"))
        if not self.began:
            self.began = True
            self.message_id = cut_name(event.get("id")) or None
            yield Accepted(self.usage.to_json(), self.sent)
        delta = choice.get("delta") or choice.get("message")
        if isinstance(delta, dict):
            yield from self._grow(delta)
        if reason := choice.get("finish_reason"):
            yield from self._finish(str(reason).lower())
        self.stopped = self.complete and has_usage  # the usage comes last

    def take_unstreamed(self, answer: dict[str, Any]) -> Iterator[Delta]:
        """Add the answer of a server that does not stream."""
        yield from self.take(answer)
        if not self.complete:
            if not answer.get("choices"):
                raise ValueError(f"an answer without a reply: {json.dumps(answer)[:120]}")
            yield from self._finish("stop")

    def reply(self) -> Reply:
        """Return the collected reply. Calls with truncated arguments are in `broken`."""
        content = [*self._thoughts()]
        if (text := "".join(self._text)).strip():
            content.append({"type": "text", "text": text})
        taken = {*self.taken_ids}
        for call in self._calls:
            content.append(self._complete(call, taken))
        reason = "tool_use" if self._calls and self.stop_reason == "end_turn" else self.stop_reason
        broken = dict(self._broken)
        usage = self._usage_with_cache()
        return Reply(
            content, reason, usage, self.model, self.message_id, broken, self.sent,
            timings=self.timings,
        )  # fmt: skip

    def _usage_with_cache(self) -> Usage:
        """Return the usage. If only the timings report what was read from the cache, use them."""
        usage = self.usage
        if usage.cache_read or not self.timings:
            return usage
        read = min(usage.input, cached_tokens(self.timings, usage.prompt))
        return replace(usage, input=usage.input - read, cache_read=read)

    def _thoughts(self) -> Iterator[Block]:
        """Yield the reasoning blocks. The signature records in which field to send reasoning back.
        Reasoning between tags is not sent back, as such models require.
        """
        text = "".join(self._reasoning)
        kept: dict[str, Any] = {"field": self._reasoning_field} if self._reasoning_field else {}
        if self._details:
            kept[REASONING_DETAILS] = self._details
            text = text or "".join(_detail_text(each) for each in self._details)
        if kept:
            yield {"type": "thinking", "thinking": text, "signature": _packed(kept)}
        if tagged := "".join(self._tagged).strip():
            yield {"type": "thinking", "thinking": tagged, "signature": ""}

    def _grow(self, delta: dict[str, Any]) -> Iterator[Delta]:
        name = self._reasoning_field or next((n for n in REASONING_FIELDS if delta.get(n)), "")
        yield from self._reason(name, delta.get(name))
        for detail in _listed(delta.get(REASONING_DETAILS)):
            yield from self._add_detail(detail, is_shown=not name)
        content = delta.get("content")
        for part in content if isinstance(content, list) else [content]:
            yield from self._add_part(part)
        if refused := _text(delta.get("refusal")):
            self._refused = True
            yield from self._add(self._text, refused)
        for piece in _listed(delta.get("tool_calls")):
            yield from self._add_call(piece)

    def _add_part(self, part: Any) -> Iterator[Delta]:
        """Add a text, or a part of the content in Mistral's format."""
        if isinstance(part, str):
            yield from self._add_split(self._tags.split(part))
        elif isinstance(part, dict) and part.get("type") == "thinking":
            inner = part.get("thinking")
            pieces = inner if isinstance(inner, list) else [{"text": inner}]
            yield from self._reason(REASONING_PARTS, "".join(map(_detail_text, pieces)))
        else:
            yield from self._add(self._text, _detail_text(part))

    def _add_split(self, split: Iterator[tuple[bool, str]]) -> Iterator[Delta]:
        for is_reasoning, text in split:
            yield from self._add(self._tagged if is_reasoning else self._text, text)

    def _reason(self, name: str, text: Any) -> Iterator[Delta]:
        if _text(text):
            self._reasoning_field = name
            yield from self._add(self._reasoning, text)

    def _add(self, pieces: list[str], text: str) -> Iterator[Delta]:
        if text:
            self._add_size(len(text))
            pieces.append(text)
            yield TextDelta(text) if pieces is self._text else ThinkingDelta(text)

    def _add_detail(self, detail: Any, *, is_shown: bool) -> Iterator[Delta]:
        """Add a piece of the reasoning details. Append texts; keep the other fields unchanged."""
        if not isinstance(detail, dict):
            return
        self._add_size(len(json.dumps(detail)))
        text = _detail_text(detail)
        last = self._details[-1] if self._details else {}
        if all(last.get(name) == detail.get(name) for name in ("type", "index", "data")):
            grown = {
                k: _text(last.get(k)) + detail[k] for k in ("text", "summary") if detail.get(k)
            }
            self._details[-1] = {**last, **{k: v for k, v in detail.items() if v}, **grown}
        else:
            self._details.append(detail)
        if is_shown and text:
            yield ThinkingDelta(text)

    def _add_call(self, piece: Any) -> Iterator[Delta]:
        function = piece.get("function") if isinstance(piece, dict) else None
        if not isinstance(function, dict):
            return
        id, name = cut_name(piece.get("id")), cut_name(function.get("name"))
        given = function.get("arguments")
        raw = json.dumps(given) if isinstance(given, dict) else _text(given)
        call = self._call_of(piece.get("index"), id, name, raw)
        call.id, call.name = call.id or id, call.name or name
        if piece.get(EXTRA) and len(json.dumps(piece[EXTRA])) <= _MAX_EXTRA_CHARS:
            call.extra = piece[EXTRA]
        if raw:
            call.pieces.append(raw)
            call.size += len(raw)
            self._add_size(len(raw))
        yield ToolDraft(call.name, call.size)

    def _call_of(self, index: Any, id: str, name: str, raw: str) -> _Call:
        """Return the call that a piece belongs to; create it if needed."""
        if type(index) is int:
            call = self._by_index.get(index)
        else:
            call = self._calls[-1] if self._calls else None
            call = next((each for each in self._calls if id and each.id == id), call)
        if call is None or not call.continues_with(id, name, raw):
            if len(self._calls) >= MAX_CALLS:
                raise ValueError(f"a reply of more than {MAX_CALLS:,} calls")
            call = _Call()
            self._calls.append(call)
        if type(index) is int:
            self._by_index[index] = call
        return call

    def _complete(self, call: _Call, taken: set[str]) -> Block:
        """Return a call with missing parts filled in. Replace an ID that is already used or cannot
        be logged, because results refer to calls by ID. Keep the server's ID in the signature: some
        models recognise their calls by it.
        """
        fresh = _ID.fullmatch(call.id) and call.id not in taken
        id = call.id if fresh else f"call_{secrets.token_hex(8)}"
        taken.add(id)
        kept = {EXTRA: call.extra} if call.extra else {}
        if not _ID.fullmatch(call.id) and call.id.isprintable() and 0 < len(call.id) <= 128:
            kept["id"] = call.id
        raw = "".join(call.pieces)
        given = parse_arguments(raw) if raw.strip() else {}
        if given is None:
            self._broken[id] = raw
        name = self.names.get(call.name, call.name)
        block = {"type": "tool_use", "id": id, "name": name, "input": given or {}}
        return {**block, "signature": _packed(kept)} if kept else block

    def _finish(self, reason: str) -> Iterator[Delta]:
        if reason in _ABORT_REASONS:
            raise ValueError(f"the server aborted the reply: {reason}")
        yield from self._add_split(self._tags.rest())
        refused = self._refused or reason.startswith(_FILTERED)
        found = "refusal" if refused else _STOP_REASONS.get(reason, "end_turn")
        self.stop_reason = self.stop_reason or found

    def _add_size(self, chars: int) -> None:
        self._size += chars
        if self._size > MAX_REPLY_CHARS:
            raise ValueError(f"a reply of more than {MAX_REPLY_CHARS:,} characters")

    def _count(self, usage: Any) -> bool:
        """Store the token counts and return True, or return False if there are none. Some servers
        count reasoning only in the total.
        """
        if not isinstance(usage, dict) or not (prompt := _tokens(usage, "prompt_tokens")):
            return False
        inner = usage.get("prompt_tokens_details")
        counts = {**usage, **(inner if isinstance(inner, dict) else {})}
        read = min(prompt, _tokens(counts, *_READ))
        written = min(prompt - read, _tokens(counts, *_WRITTEN))
        output = max(_tokens(usage, "completion_tokens"), _tokens(usage, "total_tokens") - prompt)
        bound = max(self.max_tokens, self._size)  # a visible token has at least one character
        self.usage = Usage(prompt - read - written, read, written, min(output, bound))
        return True


def _tokens(counts: Mapping[str, Any], *names: str) -> int:
    """Return the first existing and plausible of these counts, else 0."""
    found = (counts.get(name) for name in names)
    return next((n for n in found if type(n) is int and 0 < n <= _MAX_CREDIBLE_TOKENS), 0)


def _detail_text(detail: Any) -> str:
    found = detail if isinstance(detail, dict) else {}
    return _text(found.get("text")) or _text(found.get("summary"))


def _packed(kept: Mapping[str, Any]) -> str:
    return json.dumps(kept, ensure_ascii=False, separators=(",", ":"))


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
