"""Collects the chunks of a reply of Gemini.

Servers are not trusted: the size of the reply and the token counts are limited.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any

from ....api.base import dataclass, regex
from ....api.models import Reply, StreamError, cut_name, parse_error
from ....api.record import Block, Usage
from ....api.session import Accepted, Delta, TextDelta, ThinkingDelta, ToolDraft
from .base import OTHER_ITEM, Json

MAX_REPLY_CHARS = 8_000_000
_MAX_CREDIBLE_TOKENS = 10**8  # of a prompt or a reply
_CAPITAL = regex(r"[A-Z]")
_STOP_REASONS = {"STOP": "end_turn", "MAX_TOKENS": "max_tokens"}
_REFUSALS = (
    "SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY",
)  # fmt: skip


def spelled(node: Json, name: str) -> str:
    """Return a field's name as an object spells it: in camel case (`name`) or snake case."""
    snake = _CAPITAL.sub(lambda found: f"_{found[0].lower()}", name)
    return snake if snake in node and name not in node else name


def field_of(node: Json, name: str) -> Any:
    """Return a field whose name is in camel case (`name`) or snake case, None without it."""
    return node.get(spelled(node, name))


def reply_block(part: Json, id: str) -> Block:
    """Return a part of a reply as a block of the log. `id` is for a call without an ID."""
    if isinstance(call := field_of(part, "functionCall"), dict):
        given = call.get("args")
        return {
            "type": "tool_use",
            "id": str(call.get("id") or id),
            "name": str(call.get("name")),
            "input": given if isinstance(given, dict) else {},
        }
    text = part.get("text")
    if not isinstance(text, str):
        return {"type": OTHER_ITEM, "item": part}
    if part.get("thought") is True:
        signature = field_of(part, "thoughtSignature")
        return {"type": "thinking", "thinking": text, "signature": str(signature or "")}
    return {"type": "text", "text": text}


@dataclass(slots=True)
class GeminiDraft:
    """A reply under construction. See `wire.Draft`."""

    sent: Mapping[str, Any] = field(default_factory=dict)
    began: bool = False
    stopped: bool = False
    stop_reason: str | None = None
    usage: Usage = field(default_factory=Usage)
    message_id: str | None = None
    _content: list[Block] = field(default_factory=list)
    _size: int = 0  # characters of content

    @property
    def complete(self) -> bool:
        """True when the reply has a stop reason."""
        return self.stop_reason is not None

    def take(self, event: Json) -> Iterator[Delta]:
        """Add a chunk and yield its deltas for front ends."""
        if "error" in event:
            raise StreamError(*(parse_error(event) or ("", "")))
        self._count(field_of(event, "usageMetadata"))
        if not self.began:
            self.began = True
            self.message_id = cut_name(field_of(event, "responseId")) or None
            yield Accepted(self.usage.to_json(), self.sent)
        candidates = event.get("candidates")
        candidate = _object(candidates[0]) if isinstance(candidates, list) and candidates else {}
        for part in _object(candidate.get("content")).get("parts") or ():
            yield from self._add(_object(part))
        if reason := str(field_of(candidate, "finishReason") or ""):
            refused = reason in _REFUSALS
            self.stop_reason = "refusal" if refused else _STOP_REASONS.get(reason, "end_turn")
        elif field_of(_object(field_of(event, "promptFeedback")), "blockReason"):
            self.stop_reason = "refusal"

    def take_unstreamed(self, answer: Json) -> Iterator[Delta]:
        """Add the answer of a server that does not stream."""
        yield from self.take(answer)

    def reply(self) -> Reply:
        """Return the collected reply."""
        is_call = any(block["type"] == "tool_use" for block in self._content)
        reason = "tool_use" if is_call and self.stop_reason == "end_turn" else self.stop_reason
        return Reply(self._content, reason, self.usage, "", self.message_id, {}, self.sent)

    def _add(self, part: Json) -> Iterator[Delta]:
        """Add a part. Join a text with the text before it, because a stream splits texts."""
        self._size += len(json.dumps(part))
        if self._size > MAX_REPLY_CHARS:
            raise ValueError(f"a reply of more than {MAX_REPLY_CHARS:,} characters")
        block = reply_block(part, f"call_{len(self._content)}")
        kind, name = block["type"], {"text": "text", "thinking": "thinking"}.get(block["type"])
        if name and self._content and self._content[-1]["type"] == kind:
            before = self._content[-1]
            self._content[-1] = {**before, **block, name: before[name] + block[name]}
        else:
            self._content.append(block)
        if kind == "text":
            yield TextDelta(block["text"])
        elif kind == "thinking":
            yield ThinkingDelta(block["thinking"])
        elif kind == "tool_use":
            yield ToolDraft(cut_name(block["name"]), len(json.dumps(block["input"])))

    def _count(self, usage: Any) -> None:
        """Store the token counts. Later counts replace earlier ones."""
        if not isinstance(usage, dict):
            return
        prompt = _tokens(usage, "promptTokenCount") + _tokens(usage, "toolUsePromptTokenCount")
        read = min(prompt, _tokens(usage, "cachedContentTokenCount"))
        output = _tokens(usage, "candidatesTokenCount") + _tokens(usage, "thoughtsTokenCount")
        self.usage = Usage(prompt - read, read, 0, output)


def _object(value: Any) -> Json:
    """Return an object, {} for a missing one. Raises ValueError for any other value."""
    if not isinstance(value, dict | None):
        raise ValueError(f"not an object: {value!r:.80}")
    return value or {}


def _tokens(usage: Json, name: str) -> int:
    """Return a plausible count, else 0."""
    found = field_of(usage, name)
    return found if type(found) is int and 0 < found <= _MAX_CREDIBLE_TOKENS else 0
