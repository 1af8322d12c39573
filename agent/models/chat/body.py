"""The JSON body of a Chat Completions request.

Neutral blocks become messages. Each tool result becomes a `tool` message. Images in results follow
in a `user` message, because a `tool` message accepts only text. Text is sent as one string, which
every server accepts. Models whose cache needs marks always get lists of parts, so that adding a
mark never changes earlier bytes.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from ...context.items import with_plain_text
from ...context.request import ADDITION, GO_ON_PROMPT, Request
from ...lazy import dataclass, regex
from ...session.entries import Block
from ...session.searches import search_text
from ..providers import resolve_model
from ..wire import shorten_name

# Names of the field with the model's reasoning, by server. Only the first field in a reply is
# used, because some servers send the same text twice.
REASONING_FIELDS = ("reasoning_content", "reasoning", "reasoning_text", "thinking")
REASONING_DETAILS = "reasoning_details"  # of OpenRouter and MiniMax, with signatures
REASONING_PARTS = "content"  # "field" value for Mistral: reasoning is in parts of the content
EXTRA = "extra_content"  # of a call: Gemini's thought signature
_MAX_ID_CHARS = 40  # of a call; OpenAI refuses longer IDs
MEDIA_FOLLOWS = "[What the call returned follows below.]"
# Models that reliably cache only marked prompts: Anthropic's and Alibaba's.
_MARKED = regex(r"\bclaude|^~?anthropic/|\bqwen[\w.-]*(?:max|plus|flash)\b", re.I)

ChatMessage = dict[str, Any]


def parameters(request: Request) -> dict[str, Any]:
    """Return the parameters of a body without the conversation."""
    out: dict[str, Any] = {
        "model": resolve_model(request.model).name,
        "max_tokens": request.max_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    return out if request.effort is None else {**out, "reasoning_effort": request.effort}


def body(request: Request, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the complete body of a request with these parameters."""
    draft = _Messages(bool(_MARKED.search(parameters["model"])))
    if request.system:
        draft.out.append({"role": "system", "content": draft.content(request.system)})
    for message in with_plain_text(request.messages):
        draft.add(message)
    # After a paused turn, this protocol needs a user message to continue.
    if draft.out[-1]["role"] == "assistant":
        draft.out.append({"role": "user", "content": GO_ON_PROMPT})
    out = {**parameters, "messages": draft.out}
    tools = [_function(tool) for tool in (*request.tools, *draft.tools) if "input_schema" in tool]
    return {**out, "tools": tools} if tools else out


@dataclass(slots=True)
class _Messages:
    """The messages of a body under construction."""

    is_marked: bool  # True if the model's cache needs marks
    out: list[ChatMessage] = field(default_factory=list)
    tools: list[dict[str, Any]] = field(default_factory=list)  # added by messages
    names: dict[str, str] = field(default_factory=dict)  # tool name by call ID
    ids: dict[str, str] = field(default_factory=dict)  # call IDs: neutral to server

    def add(self, message: Mapping[str, Any]) -> None:
        blocks = message["content"]
        if message["role"] == "assistant":
            self.out.append(self._reply(blocks))
        elif message["role"] == "user":
            self._add_user(blocks)
        else:
            self.tools += [
                block["tool"]["definition"] for block in blocks if block["type"] == ADDITION
            ]

    def _add_user(self, blocks: list[Block]) -> None:
        said: list[Block] = []
        for block in blocks:
            if block["type"] != "tool_result":
                said.append(block)
                continue
            call, given = block["tool_use_id"], block["content"]
            inner = [_text(given)] if isinstance(given, str) else given
            texts = [each for each in inner if each["type"] == "text"] or [_text(MEDIA_FOLLOWS)]
            if "cache_control" in block:
                texts[-1] = {**texts[-1], "cache_control": block["cache_control"]}
            result = {"role": "tool", "tool_call_id": self.ids.get(call, call)}
            self.out.append({**result, "content": self.content(texts)})
            if media := [each for each in inner if each["type"] != "text"]:
                said += [_text(f"[Returned by {self.names.get(call, 'a call')}:]"), *media]
        if said:
            self.out.append({"role": "user", "content": self.content(said)})

    def content(self, blocks: list[Block]) -> str | list[dict[str, Any]]:
        """Return blocks as one string if all are text and the model's cache needs no marks, else as
        parts.
        """
        if not self.is_marked and all(block["type"] == "text" for block in blocks):
            return "\n\n".join(block["text"] for block in blocks)
        return [self._part(block) for block in blocks]

    def _part(self, block: Block) -> dict[str, Any]:
        if block["type"] == "text":
            part: dict[str, Any] = {"type": "text", "text": block["text"]}
        else:
            source = block["source"]
            url = f"data:{source['media_type']};base64,{source['data']}"
            part = {"type": "image_url", "image_url": {"url": url}}
            if block["type"] == "document":
                part = {"type": "file", "file": {"filename": "document.pdf", "file_data": url}}
        has_mark = self.is_marked and "cache_control" in block
        return {**part, "cache_control": block["cache_control"]} if has_mark else part

    def _reply(self, blocks: list[Block]) -> ChatMessage:
        texts: list[Block] = []
        calls: list[dict[str, Any]] = []
        reasoning: ChatMessage = {}
        for block in blocks:
            if block["type"] == "thinking":
                _add_reasoning(reasoning, block)
            elif block["type"] == "text":
                texts.append(block)
            elif block["type"] == "tool_use":
                calls.append(self._call(block))
            elif found := search_text(block):
                texts.append(_text(found))
        parts = reasoning.pop(REASONING_PARTS, [])
        content = [*parts, *map(self._part, texts)] if parts else self.content(texts)
        out = {"role": "assistant", "content": content or None, **reasoning}
        return {**out, "tool_calls": calls} if calls else out

    def _call(self, block: Block) -> dict[str, Any]:
        kept = _kept(block)
        id, own = block["id"], kept.get("id")
        if isinstance(own, str) and own not in self.ids.values():
            self.ids[id] = own
        elif len(id) > _MAX_ID_CHARS:
            self.ids[id] = shorten_name(id, _MAX_ID_CHARS)
        self.names[id] = block["name"]
        arguments = json.dumps(block["input"], ensure_ascii=False, separators=(",", ":"))
        function = {"name": shorten_name(block["name"]), "arguments": arguments}
        out = {"id": self.ids.get(id, id), "type": "function", "function": function}
        return {**out, EXTRA: kept[EXTRA]} if EXTRA in kept else out


def _add_reasoning(message: ChatMessage, block: Block) -> None:
    """Add the reasoning of a reply to its message, in the field that the server used."""
    kept, text = _kept(block), block["thinking"]
    if isinstance(details := kept.get(REASONING_DETAILS), list):
        message[REASONING_DETAILS] = [*message.get(REASONING_DETAILS, ()), *details]
    elif kept.get("field") == REASONING_PARTS:
        part = {"type": "thinking", "thinking": [_text(text)]}
        message[REASONING_PARTS] = [*message.get(REASONING_PARTS, ()), part]
    elif (name := kept.get("field")) in REASONING_FIELDS:
        message[name] = message.get(name, "") + text


def _kept(block: Block) -> dict[str, Any]:
    """Return this protocol's data in a block's signature, {} for a signature of another
    protocol.
    """
    try:
        found = json.loads(block.get("signature", ""))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _function(tool: Mapping[str, Any]) -> dict[str, Any]:
    described = {"name": shorten_name(tool["name"]), "description": tool.get("description", "")}
    return {"type": "function", "function": {**described, "parameters": tool["input_schema"]}}


def _text(text: str) -> Block:
    return {"type": "text", "text": text}
