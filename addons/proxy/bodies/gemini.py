"""Bodies and streamed replies of Gemini's `generateContent`.

Field names are in camel case or snake case, as in all of Google's JSON. An edit keeps the client's
spelling. Signatures of thoughts are never changed.

Servers are not trusted: the size of the reply and the token counts are limited.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from itertools import groupby
from typing import Any
from urllib.parse import unquote, urlsplit

from ....api.base import dataclass, regex
from ....api.models import Draft, Reply, StreamError, cut_name, parse_error
from ....api.record import Block, Usage
from ....api.session import Accepted, Delta, TextDelta, ThinkingDelta, ToolDraft
from ..forward import GEMINI
from .base import (
    OTHER_ITEM,
    BodyPiece,
    BodyPlace,
    Edits,
    Json,
    Preamble,
    ServerReply,
    is_client_text,
    replaced_inputs,
)

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


_MODEL_ROLE = "model"
_USER_ROLES = ("user", "function", None)
_OUTPUT, _ERROR = "output", "error"  # keys of a function's result, by Google's convention


class GeminiBody:
    """See `base.BodyFormat`."""

    name, upstream = "gemini", GEMINI
    paths = (":generateContent", ":streamGenerateContent")
    count_paths = (":countTokens",)
    other_roles = _USER_ROLES

    def model(self, body: Json, url: str) -> str:
        return unquote(urlsplit(url).path).rpartition("/")[2].partition(":")[0]

    def messages(self, body: Json) -> list[Json] | None:
        found = body.get("contents")
        # With cached content, the beginning of the history is on the server.
        is_whole = isinstance(found, list) and not field_of(body, "cachedContent")
        return found if is_whole else None

    def preamble(self, body: Json) -> Preamble:
        parts = (field_of(body, "systemInstruction") or {}).get("parts") or []
        texts = [part["text"] for part in parts if "text" in part]
        tools: list[Json] = []
        for tool in body.get("tools") or ():
            declared = field_of(tool, "functionDeclarations")
            tools += declared if isinstance(declared, list) else [tool]
        return Preamble("\n\n".join(texts), tools)

    def pieces(self, messages: Sequence[Json], start: int) -> Iterator[BodyPiece]:
        begin = start
        while begin and not _is_reply(messages[begin - 1]):
            begin -= 1  # to the reply whose calls have results
        while begin and _is_reply(messages[begin - 1]):
            begin -= 1
        open_calls = _OpenCalls()
        # Google's SDK sends each chunk of a streamed reply back as a content of its own.
        for is_reply, run in groupby(range(begin, len(messages)), lambda n: _is_reply(messages[n])):
            indexes = [*run]
            if is_reply:
                found = [_reply_piece(messages, indexes)]
                open_calls = _OpenCalls([block for block in found[0].blocks if "id" in block])
            else:
                found = [p for n in indexes for p in _user_pieces(messages[n], n, open_calls)]
            yield from (piece for piece in found if piece.message >= start)

    def edited(self, body: Json, edits: Edits, skip: int) -> Json:
        contents = [*body["contents"]]
        for index in {place.message for place in (*edits.results, *edits.inputs, *edits.dropped)}:
            contents[index] = _edited_content(contents[index], index, edits)
        kept = [content for content in contents[edits.start :] if content.get("parts")]
        if edits.head:
            head = [{"text": block["text"]} for block in edits.head]
            is_user = kept and kept[0].get("role") != _MODEL_ROLE
            first = kept.pop(0) if is_user else {"role": "user", "parts": []}
            kept.insert(0, {**first, "parts": [*head, *first["parts"]]})
        return {**body, "contents": kept}

    def with_question(self, body: Json, question: str) -> Json:
        *before, last = body["contents"]
        asked = {"text": question}
        if last.get("role") == _MODEL_ROLE:
            return {**body, "contents": [*before, last, {"role": "user", "parts": [asked]}]}
        return {**body, "contents": [*before, {**last, "parts": [*last["parts"], asked]}]}

    def with_only_texts(self, body: Json, texts: Sequence[str], max_tokens: int) -> Json:
        names = ("safetySettings", "safety_settings")
        kept = {name: body[name] for name in names if name in body}
        parts = [{"text": text} for text in texts]
        return {
            **kept,
            "contents": [{"role": "user", "parts": parts}],
            "generationConfig": {"maxOutputTokens": max_tokens},
        }

    def output_room(self, body: Json) -> int:
        given = field_of(field_of(body, "generationConfig") or {}, "maxOutputTokens")
        return given if isinstance(given, int) else 0

    def is_cached(self, body: Json) -> bool:
        return True  # the server caches automatically, if at all

    def draft(self, body: Json) -> Draft:
        return GeminiDraft()

    def reply(self, draft: Draft) -> ServerReply:
        found = draft.reply()
        return ServerReply(found.content, found.usage, found.stop_reason, found.message_id)


@dataclass(slots=True)
class _OpenCalls:
    """The calls of the newest reply that have no result yet."""

    calls: list[Block] = field(default_factory=list)

    def take(self, response: Json) -> str:
        """Return the ID of the call that a result answers, and close this call. A server may send
        calls without IDs. Then a client sends no ID, or its own one, and the order counts.
        """
        given, name = response.get("id"), response.get("name")
        tests = (
            lambda call: call["id"] == given,
            lambda call: call["name"] == name,
            lambda call: True,
        )
        found = next((c for test in tests for c in self.calls if test(c)), None)
        if found is None:
            return str(given or name)
        self.calls.remove(found)
        return str(found["id"])


def _is_reply(content: Json) -> bool:
    return content.get("role") == _MODEL_ROLE


def _reply_piece(contents: Sequence[Json], indexes: Sequence[int]) -> BodyPiece:
    """Return the piece of a reply. A call without an ID gets one from its position."""
    parts = [
        (part, BodyPlace(index, number))
        for index in indexes
        for number, part in enumerate(contents[index].get("parts") or ())
    ]
    blocks = [reply_block(part, f"call_{at.message}_{at.block}") for part, at in parts]
    places = tuple(at for _, at in parts)
    return BodyPiece("reply", blocks, places or (BodyPlace(indexes[0]),))


def _user_pieces(content: Json, index: int, open_calls: _OpenCalls) -> Iterator[BodyPiece]:
    """Yield the pieces of a user's content: each result, and the parts between results. Raises
    ValueError for a content of another role.
    """
    if content.get("role") not in _USER_ROLES:
        raise ValueError(f"a content with the role {content['role']!r}")
    words: list[tuple[Block, BodyPlace]] = []
    mine = False

    def said() -> Iterator[BodyPiece]:
        if words:
            blocks = [block for block, _ in words]
            yield BodyPiece("words", blocks, tuple(p for _, p in words), by_client=mine)
            words.clear()

    for number, part in enumerate(content.get("parts") or ()):
        place = BodyPlace(index, number)
        if isinstance(response := field_of(part, "functionResponse"), dict):
            yield from said()
            found, is_error = _result_of(response)
            call = open_calls.take(response)
            yield BodyPiece("result", found, (place,), call=call, is_error=is_error)
            continue
        is_mine = is_client_text(str(part.get("text", "")))
        if is_mine is not mine:
            yield from said()
        mine = is_mine
        words.append((_user_block(part), place))
    yield from said()


def _user_block(part: Json) -> Block:
    """Return a part of a user's content as a block of the log."""
    if isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    data = field_of(part, "inlineData")
    media = field_of(data, "mimeType") if isinstance(data, dict) else None
    if isinstance(media, str) and media.startswith("image/") and data.get("data"):
        source = {"type": "base64", "media_type": media, "data": data["data"]}
        return {"type": "image", "source": source}
    return {"type": "text", "text": "[attachment]"}


def _text_key(response: Json) -> str | None:
    """Return the key of a result that is one text, None for any other result."""
    given = response.get("response")
    if not isinstance(given, dict) or len(given) != 1:
        return None
    ((name, text),) = given.items()
    return name if isinstance(text, str) else None


def _result_of(response: Json) -> tuple[str | list[Block], bool]:
    """Return the content of a result, and True if it is an error. A result that is not one text
    becomes JSON.
    """
    given, name = response.get("response"), _text_key(response)
    text = given[name] if given and name else json.dumps(given, ensure_ascii=False)
    if parts := response.get("parts"):
        return [{"type": "text", "text": text}, *map(_user_block, parts)], name == _ERROR
    return text, name == _ERROR


def _edited_content(content: Json, index: int, edits: Edits) -> Json:
    parts: list[Json] = []
    for number, part in enumerate(content["parts"]):
        place = BodyPlace(index, number)
        if place in edits.dropped:
            continue
        if place in edits.results:
            name = spelled(part, "functionResponse")
            response = {k: v for k, v in part[name].items() if k != "parts"}
            response["response"] = {_text_key(part[name]) or _OUTPUT: edits.results[place]}
            part = {**part, name: response}
        elif place in edits.inputs:
            name = spelled(part, "functionCall")
            given = replaced_inputs(part[name].get("args"), edits.inputs[place])
            part = {**part, name: {**part[name], "args": given}}
        parts.append(part)
    return {**content, "parts": parts}
