"""Collects the events of a streamed response: deltas during the stream, the reply at the end.

The reply is built from the finished items, because deltas contain only text. Unknown kinds of event
and item are ignored. Servers are not trusted: the size of the reply and the token counts are
limited. IDs of calls that are already used, or cannot be sent back, are replaced.

A reasoning item must be sent back unchanged, with its encrypted content, and followed by the same
item with the same ID as before. Otherwise the API refuses it ("provided without its required
following item"). The API also refuses an item with an ID if its reasoning item is missing. Messages
of newer models have a phase that must be sent back too.

The log cannot store these data, so they are packed into thinking blocks. The `signature` of a
`thinking` block contains the reasoning item, and the ID and phase of each following item up to the
next reasoning item. If the context drops the thinking, the following items are sent without IDs.
"""

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple

from ...context.request import Request
from ...events import Accepted, Delta, TextDelta, ThinkingDelta, ToolDraft
from ...lazy import dataclass, regex
from ...session.entries import Block, Usage
from ..base import Reply
from ..transport import parse_arguments
from ..wire import StreamError, cut_name, shorten_name

REASONING, MESSAGE, CALL = "reasoning", "message", "function_call"  # types of items

ResponseItem = dict[str, Any]


class ReasoningState(NamedTuple):
    """The content of a thinking block's signature."""

    item: ResponseItem | None  # reasoning item, if any
    behind: list[ResponseItem]  # type, ID, phase and arguments of each following item


def pack(state: ReasoningState) -> str:
    """Return a state as a signature."""
    told = {"behind": state.behind} if state.item is None else {**state._asdict()}
    return json.dumps(told, ensure_ascii=False, separators=(",", ":"))


def unpack(signature: str) -> ReasoningState | None:
    """Return the state in a signature, None for a signature of another protocol."""
    told = parse_arguments(signature) or {}
    item, behind = told.get("item"), told.get("behind")
    if not isinstance(behind, list) or not all(isinstance(each, dict) for each in behind):
        return None
    return ReasoningState(item if isinstance(item, dict) else None, behind)


def is_resendable(item: ResponseItem) -> bool:
    """Return True if a reasoning item has content for a server that stores nothing."""
    return bool(item.get("encrypted_content") or item.get("content"))


def data_to_resend(item: ResponseItem, parsed: Mapping[str, Any] | None) -> ResponseItem:
    """Return the data to send back for an item that is not reasoning. For a call with `parsed`
    arguments, include their text if `arguments_of` would give another text.
    """
    kept = {name: item[name] for name in ("type", "id", "phase") if item.get(name)}
    if item.get("type") == CALL and parsed and arguments_of(parsed) != item.get("arguments"):
        kept["arguments"] = item["arguments"]
    return kept


def arguments_of(given: Mapping[str, Any]) -> str:
    """Return the arguments of a call as text."""
    return json.dumps(given, ensure_ascii=False, separators=(",", ":"))


def with_reasoning(items: Iterator[ResponseItem | ReasoningState]) -> Iterator[ResponseItem]:
    """Yield the items of one reply. Insert each reasoning item before the item that followed it;
    drop it if that item is missing.
    """
    waiting: list[ResponseItem] = []
    behind: list[ResponseItem] = []
    for item in items:
        if isinstance(item, ReasoningState):
            waiting += [item.item] if item.item is not None else []
            behind = [*item.behind]
            continue
        had = behind.pop(0) if behind else {}
        if had.get("type") != item["type"]:
            waiting, behind, had = [], [], {}
        yield from waiting
        waiting = []
        yield _completed(item, had)


def _completed(item: ResponseItem, had: ResponseItem) -> ResponseItem:
    """Return an item with its original ID, phase and argument text."""
    out: ResponseItem = {**item, **{name: had[name] for name in ("id", "phase") if name in had}}
    if item["type"] == CALL:
        raw = had.get("arguments")
        if isinstance(raw, str) and arguments_of(parse_arguments(raw) or {}) == item["arguments"]:
            out["arguments"] = raw
    elif "id" in out:  # a message with an ID needs the complete form
        out["status"] = "completed"
        out["content"] = [{"type": "output_text", "text": item["content"], "annotations": []}]
    return out


_ENDS = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")
_STOP_REASONS = {"max_output_tokens": "max_tokens", "content_filter": "refusal"}
_MAX_REPLY_CHARS = 8_000_000  # of the items; 8 times the longest output of a model
_MAX_ITEMS = 10_000
_MAX_CREDIBLE_TOKENS = 10**8  # of a prompt or a reply
_ID = regex(r"[A-Za-z0-9_-]{1,128}")


@dataclass(slots=True)
class ResponseDraft:
    """A reply under construction. See `wire.Draft`."""

    model: str  # full ID, with the provider
    taken_ids: frozenset[str] = frozenset()  # IDs of calls in the request
    names: Mapping[str, str] = field(default_factory=dict)  # tool names by the names sent
    sent: Mapping[str, Any] = field(default_factory=dict)
    began: bool = False
    complete: bool = False
    usage: Usage = field(default_factory=Usage)
    message_id: str | None = None
    stop_reason: str = "end_turn"
    _open: dict[object, tuple[str, int]] = field(default_factory=dict)  # (name, size so far)
    _items: dict[object, ResponseItem] = field(default_factory=dict)  # finished items
    _size: int = 0  # characters of items

    @property
    def stopped(self) -> bool:
        return self.complete

    @property
    def items(self) -> Sequence[ResponseItem]:
        """The finished items, as the server sent them."""
        return [*self._items.values()]

    def take(self, event: dict[str, Any]) -> Iterator[Delta]:
        """Add an event. See `wire.Draft`."""
        kind, piece = event.get("type"), event.get("delta")
        if not self.began:
            self.began = True
            yield Accepted(self.usage.to_json(), self.sent)
        if kind in ("response.output_item.added", "response.output_item.done"):
            item = _object(event, "item")
            place = self._place(event, item)
            if kind == "response.output_item.done":
                self._close(place, item)
                return
            self._open[place] = name, size = self._name(item), 0
            if item.get("type") == CALL:
                yield ToolDraft(name, size)
        elif kind == "response.reasoning_summary_part.added" and event.get("summary_index"):
            yield ThinkingDelta("\n\n")
        elif kind in _ENDS:
            self._end(_object(event, "response"))
        elif not isinstance(piece, str):
            return
        elif kind in ("response.output_text.delta", "response.refusal.delta"):
            yield TextDelta(piece)
        elif kind in ("response.reasoning_summary_text.delta", "response.reasoning_text.delta"):
            yield ThinkingDelta(piece)
        elif kind == "response.function_call_arguments.delta":
            place = self._place(event, {})
            name, size = self._open.get(place, ("", 0))
            self._open[place] = name, size + len(piece)
            yield ToolDraft(name, size + len(piece))

    def take_unstreamed(self, answer: dict[str, Any]) -> Iterator[Delta]:
        """Add the answer of a server that does not stream. See `wire.Draft`."""
        self.began = True
        self._end(answer)
        yield Accepted(self.usage.to_json(), self.sent)
        for block in self.reply().content:
            if block["type"] == "text":
                yield TextDelta(block["text"])
            elif block["type"] == "thinking" and block["thinking"]:
                yield ThinkingDelta(block["thinking"])

    def reply(self) -> Reply:
        """Return the collected reply. See `wire.Draft`."""
        content: list[Block] = []
        broken: dict[str, str] = {}
        # Each thinking block with the state of its item and the following items.
        states: list[tuple[Block, ReasoningState]] = []
        for item in self._items.values():
            reasons = item.get("type") == REASONING
            if reasons or (not states and item.get("phase")):
                thinking: Block = {
                    "type": "thinking",
                    "thinking": _thought(item) if reasons else "",
                }
                states.append((thinking, ReasoningState(item if reasons else None, [])))
                content.append(thinking)
            if not reasons:
                block = self._block(item, content, broken)
                content += [block] if block else []
                if states:
                    states[-1][1].behind.append(data_to_resend(item, (block or {}).get("input")))
        for thinking, state in states:
            resent = state.item is None or is_resendable(state.item)
            thinking["signature"] = pack(state) if resent else ""
        reason, usage, id = self.stop_reason, self.usage, self.message_id
        return Reply(content, reason, usage, self.model, id, broken, self.sent)

    def _place(self, event: dict[str, Any], item: ResponseItem) -> object:
        """Return the key of an item: its index, else its ID, else the key of the newest item."""
        known = (event.get("output_index"), event.get("item_id"), item.get("id"))
        newest = next(reversed(self._open), len(self._items))
        return next((place for place in known if isinstance(place, int | str)), newest)

    def _close(self, place: object, item: ResponseItem) -> None:
        self._open.pop(place, None)
        self._size += len(json.dumps(item))
        if self._size > _MAX_REPLY_CHARS:
            raise ValueError(f"a reply of more than {_MAX_REPLY_CHARS:,} characters")
        if len(self._items) >= _MAX_ITEMS:
            raise ValueError(f"a reply of more than {_MAX_ITEMS:,} items")
        self._items[place] = item

    def _end(self, response: dict[str, Any]) -> None:
        """Store the end of the response. Raises StreamError if it failed."""
        status, error = response.get("status"), response.get("error")
        if status in ("failed", "cancelled") or isinstance(error, dict):
            told = error if isinstance(error, dict) else {}
            kind = _text(told.get("code")) or _text(told.get("type")) or str(status)
            raise StreamError(kind, _text(told.get("message")))
        output = _dicts(response.get("output"))
        if output and (self._open or len(output) > len(self._items)):
            self._open, self._items, self._size = {}, {}, 0
            for place, item in enumerate(output):
                self._close(place, item)
        if self._open:
            raise ValueError("a response that ended before all items were finished")
        self._count(response.get("usage"))
        self.message_id = cut_name(response.get("id")) or None
        self.stop_reason = self._why_stopped(response)
        self.complete = True

    def _why_stopped(self, response: dict[str, Any]) -> str:
        details = response.get("incomplete_details")
        if response.get("status") == "incomplete" and isinstance(details, dict):
            return _STOP_REASONS.get(_text(details.get("reason")), "end_turn")
        items = self._items.values()
        if any(item.get("type") == CALL for item in items):
            return "tool_use"
        parts = [part.get("type") for item in items for part in _dicts(item.get("content"))]
        return "refusal" if "refusal" in parts and "output_text" not in parts else "end_turn"

    def _count(self, usage: object) -> None:
        """Store the token counts. The API's input count includes cache reads and writes."""
        told = usage if isinstance(usage, dict) else {}
        details = told.get("input_tokens_details")
        parts = details if isinstance(details, dict) else {}
        prompt = _tokens(told.get("input_tokens"))
        read = min(_tokens(parts.get("cached_tokens")), prompt)
        written = min(_tokens(parts.get("cache_write_tokens")), prompt - read)
        output = _tokens(told.get("output_tokens"))
        self.usage = Usage(prompt - read - written, read, written, output)

    def _block(
        self, item: ResponseItem, content: list[Block], broken: dict[str, str]
    ) -> Block | None:
        """Return an item as a block, None for an empty item or an unknown type. Add arguments that
        are not a JSON object to `broken`.
        """
        if item.get("type") == MESSAGE:
            parts = _dicts(item.get("content"))
            text = "".join(_text(part.get("text")) or _text(part.get("refusal")) for part in parts)
            return {"type": "text", "text": text} if text.strip() else None
        if item.get("type") != CALL:
            return None
        taken = self.taken_ids.union(str(block.get("id")) for block in content)
        id, raw = _text(item.get("call_id")), _text(item.get("arguments"))
        if not _ID.fullmatch(id) or id in taken:
            id = f"call_{secrets.token_hex(8)}"
        given = parse_arguments(raw) if raw else {}
        if given is None:
            broken[id] = raw
        return {"type": "tool_use", "id": id, "name": self._name(item), "input": given or {}}

    def _name(self, item: ResponseItem) -> str:
        name = cut_name(item.get("name"))
        return self.names.get(name, name)


def draft_of(request: Request) -> ResponseDraft:
    """Return the draft of the reply to a request."""
    names = {shorten_name(tool["name"]): tool["name"] for tool in request.tools}
    return ResponseDraft(request.model, request.call_ids(), names)


def _thought(item: ResponseItem) -> str:
    """Return the summary of a reasoning item, or its text if there is no summary."""
    texts = (
        "\n\n".join(_text(part.get("text")) for part in _dicts(item.get(name)))
        for name in ("summary", "content")
    )
    return next((text for text in texts if text), "")


def _dicts(value: object) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _tokens(count: object) -> int:
    return count if type(count) is int and 0 <= count <= _MAX_CREDIBLE_TOKENS else 0


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _object(event: dict[str, Any], name: str) -> dict[str, Any]:
    value = event.get(name)
    if not isinstance(value, dict):
        raise ValueError(f"an invalid event: {json.dumps(event)[:120]}")
    return value
