"""Simulated clients of the proxy: scripts of turns as request bodies of each protocol, in the
shapes that real clients send, and the server's answers to them.
"""

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]
PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)
MARK = {"cache_control": {"type": "ephemeral"}}
REMINDER = "<system-reminder>\nThese files count: AGENTS.md: never push.\n</system-reminder>"
SYSTEM = "You are a coding agent. " + "Rules. " * 20
PATHS = {
    "messages": "/v1/messages",
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "gemini": "/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse",
}
COUNT_PATHS = {
    "messages": "/v1/messages/count_tokens",
    "responses": "/v1/responses/input_tokens",
    "gemini": "/v1beta/models/gemini-2.5-pro:countTokens",
}


@dataclass(frozen=True)
class Called:
    """A call and its result."""

    id: str
    name: str
    input: Json
    result: str
    kind: str = "function_call"
    is_list: bool = False


@dataclass(frozen=True)
class Turn:
    """A user message, if any, and the model's answer."""

    words: tuple[str, ...] = ()
    image: bool = False
    thinking: str = ""
    text: str = ""
    calls: tuple[Called, ...] = ()


@dataclass(frozen=True)
class Client:
    """A client of one protocol. With `odd` it sends content that strict servers refuse: unknown
    fields and unusual types of items.
    """

    protocol: str
    turns: Sequence[Turn]
    odd: bool = True
    extra: Json = field(default_factory=dict)  # fields of each body

    @property
    def path(self) -> str:
        return PATHS[self.protocol]

    def bodies(self) -> Iterator[Json]:
        """Yield the request of each turn."""
        makers = {
            "messages": _messages, "chat": _chat, "responses": _responses, "gemini": _contents,
        }  # fmt: skip
        make = makers[self.protocol]
        for count in range(1, len(self.turns) + 1):
            yield {**make(self, self.turns[:count]), **self.extra}

    def answer(self, turn: Turn, number: int, *, stream: bool = True) -> bytes:
        """Return the server's answer, as the bytes of a stream or as one object."""
        make = {
            "messages": _message_answer, "chat": _chat_answer, "responses": _response_answer,
            "gemini": _content_answer,
        }  # fmt: skip
        return make[self.protocol](self, turn, number, stream)


def _messages(client: Client, turns: Sequence[Turn]) -> Json:
    messages: list[Json] = []
    for number, turn in enumerate(turns):
        content: list[Json] = []
        for call in turns[number - 1].calls if number else ():
            parts = [{"type": "text", "text": call.result}]
            block = {"type": "tool_result", "tool_use_id": call.id,
                     "content": parts if call.is_list else call.result}  # fmt: skip
            content.append(block | ({"is_error": False} if client.odd else {}))
        content += [{"type": "text", "text": text} for text in turn.words]
        if turn.image:
            source = {"type": "base64", "media_type": "image/png", "data": PIXEL}
            content.append({"type": "image", "source": source})
        messages.append({"role": "user", "content": content})
        if turn is turns[-1]:
            break
        messages.append({"role": "assistant", "content": _said(client, turn, number)})
    for message in messages[:-1] if client.odd else ():  # a text is a block while it has a mark
        if len(message["content"]) == 1 and message["content"][0]["type"] == "text":
            message["content"] = message["content"][0]["text"]
    last = messages[-1]["content"]
    last[-1] = {**last[-1], **MARK}
    system = [{"type": "text", "text": SYSTEM, **MARK}]
    tools = [{"name": "Bash", "description": "Run.", "input_schema": {"type": "object"}}]
    body: Json = {"model": "claude-sonnet-5-5", "max_tokens": 4096, "system": system}
    body |= {"tools": tools, "messages": messages, "stream": True}
    if client.odd:
        body["system"].insert(0, {"type": "text", "text": "x-anthropic-billing-header: a=b;"})
        body |= {"context_management": {"edits": []}, "temperature": 1.0, "holograms": None}
    return body


def _said(client: Client, turn: Turn, number: int) -> list[Json]:
    """Return the content of a reply, as the client sends it back."""
    content: list[Json] = []
    if turn.thinking:
        content.append({"type": "thinking", "thinking": turn.thinking, "signature": f"s{number}"})
    if turn.text:
        text = {"type": "text", "text": turn.text}
        content.append(text | ({"citations": None} if client.odd else {}))
    content += [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": call.input}
        for call in turn.calls
    ]
    return content


def _chat(client: Client, turns: Sequence[Turn]) -> Json:
    messages: list[Json] = [{"role": "system", "content": SYSTEM}]
    for number, turn in enumerate(turns):
        for call in turns[number - 1].calls if number else ():
            parts = [{"type": "text", "text": call.result}]
            result = parts if call.is_list else call.result
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
        for text in turn.words if client.odd else ["\n".join(turn.words)] * bool(turn.words):
            content: Any = text
            if turn.image:
                image = {"url": f"data:image/png;base64,{PIXEL}"}
                content = [
                    {"type": "text", "text": text},
                    {"type": "image_url", "image_url": image},
                ]
            messages.append({"role": "user", "content": content})
        if turn is turns[-1]:
            break
        reply: Json = {"role": "assistant", "content": turn.text or (None if turn.calls else " ")}
        if turn.thinking:
            reply["reasoning_content"] = turn.thinking
        if turn.calls:
            reply["tool_calls"] = [
                {"id": call.id, "type": "function",
                 "function": {"name": call.name, "arguments": json.dumps(call.input)}}
                for call in turn.calls
            ]  # fmt: skip
        if client.odd:
            reply["refusal"] = None
        messages.append(reply)
    function = {"name": "Bash", "description": "Run.", "parameters": {"type": "object"}}
    body: Json = {"model": "gpt-5", "messages": messages, "stream": True, "max_tokens": 4096}
    body["tools"] = [{"type": "function", "function": function}]
    if client.odd:
        body |= {"user": "me", "seed": 7, "logit_bias": {"50256": -1e2}}
    return body


def _responses(client: Client, turns: Sequence[Turn]) -> Json:
    developer = {"type": "message", "role": "developer"}
    items: list[Json] = [developer | {"content": [{"type": "input_text", "text": SYSTEM}]}]
    for number, turn in enumerate(turns):
        for call in turns[number - 1].calls if number else ():
            parts = [{"type": "input_text", "text": call.result}]
            result = parts if call.is_list else call.result
            items.append({"type": f"{call.kind}_output", "call_id": call.id, "output": result})
        for place, text in enumerate(turn.words):
            part: list[Json] = [{"type": "input_text", "text": text}]
            if turn.image:
                part.append({"type": "input_image", "detail": "auto",
                             "image_url": f"data:image/png;base64,{PIXEL}"})  # fmt: skip
            item: Json = {"type": "message", "role": "user", "content": part}
            if client.odd and place:
                del item["type"]
            items.append(item)
        if turn is turns[-1]:
            break
        items += _output(client, turn, number)
    tool = {"type": "function", "name": "Bash", "description": "Run.",
            "parameters": {"type": "object"}, "strict": False}  # fmt: skip
    body: Json = {"model": "gpt-5", "input": items, "tools": [tool], "stream": True, "store": False}
    body |= {"include": ["reasoning.encrypted_content"], "max_output_tokens": 4096}
    if client.odd:
        body |= {"client_metadata": {"turn": len(turns)}, "prompt_cache_key": "k"}
    return body


def _output(client: Client, turn: Turn, number: int) -> list[Json]:
    """Return the items of a response, as the client sends them back."""
    items: list[Json] = []
    if turn.thinking and client.odd:
        items.append({"type": "reasoning", "id": f"rs_{number}", "encrypted_content": "gA==",
                      "summary": [{"type": "summary_text", "text": turn.thinking}]})  # fmt: skip
    if turn.text:
        part = {"type": "output_text", "text": turn.text, "annotations": []}
        item = {"type": "message", "role": "assistant", "content": [part]}
        phase = "commentary" if turn.calls else "final_answer"
        made = {"id": f"msg_{number}", "status": "completed", "phase": phase}
        items.append(item if client.odd else {**item, **made})
    for call in turn.calls:
        item = {"type": call.kind, "call_id": call.id}
        if call.kind == "function_call":
            item |= {"name": call.name, "arguments": json.dumps(call.input)}
        elif call.kind == "custom_tool_call":
            item |= {"name": "apply_patch", "input": json.dumps(call.input), "status": "completed"}
        else:
            item |= {"action": {"type": "exec", "command": ["ls"]}, "status": "completed"}
        items.append(item)
    return items


def _contents(client: Client, turns: Sequence[Turn]) -> Json:
    contents: list[Json] = []
    for number, turn in enumerate(turns):
        parts: list[Json] = []
        for call in turns[number - 1].calls if number else ():
            given: Json = {"output": call.result}
            if call.is_list:
                given = {"stdout": call.result, "code": 0}
            named = {"id": f"mine-{call.id}"} if client.odd else {"id": call.id}
            parts.append({"functionResponse": {**named, "name": call.name, "response": given}})
        parts += [{"text": text} for text in turn.words]
        if turn.image:
            parts.append({"inlineData": {"mimeType": "image/png", "data": PIXEL}})
        contents.append({"role": "user", "parts": parts})
        if turn is turns[-1]:
            break
        contents.append({"role": "model", "parts": _parts(client, turn, number)})
    function = {"name": "Bash", "description": "Run.", "parameters": {"type": "OBJECT"}}
    body: Json = {
        "contents": contents,
        "systemInstruction": {"parts": [{"text": SYSTEM}]},
        "tools": [{"functionDeclarations": [function]}],
        "generationConfig": {"maxOutputTokens": 4096, "temperature": 0},
    }
    if client.odd:
        body |= {"safetySettings": [], "toolConfig": {"hologram": None}}
    return body


def _parts(client: Client, turn: Turn, number: int) -> list[Json]:
    """Return the parts of a reply, as the client sends them back."""
    parts: list[Json] = []
    if turn.thinking:
        parts.append({"text": turn.thinking, "thought": True})
    if turn.text:
        parts.append({"text": turn.text})
    for place, call in enumerate(turn.calls):
        named: Json = {} if client.odd else {"id": call.id}
        part: Json = {"functionCall": {**named, "name": call.name, "args": call.input}}
        if place == 0:
            part["thoughtSignature"] = f"c2ln{number}"
        parts.append(part)
    return parts


def _message_answer(client: Client, turn: Turn, number: int, stream: bool) -> bytes:
    content = _said(client, turn, number)
    usage = {"input_tokens": 3, "output_tokens": 5}
    whole = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "m",
             "content": content, "stop_reason": "tool_use" if turn.calls else "end_turn",
             "stop_sequence": None, "usage": usage}  # fmt: skip
    if not stream:
        return json.dumps(whole).encode()
    begun = {**whole, "content": [], "stop_reason": None}
    events: list[Json] = [{"type": "message_start", "message": begun}]
    for place, block in enumerate(content):
        start, deltas = _begun(block)
        events.append({"type": "content_block_start", "index": place, "content_block": start})
        events += [{"type": "content_block_delta", "index": place, "delta": d} for d in deltas]
        events.append({"type": "content_block_stop", "index": place})
    delta = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    events += [{"type": "message_delta", "delta": delta, "usage": usage}, {"type": "message_stop"}]
    return _sse(events)


def _begun(block: Json) -> tuple[Json, list[Json]]:
    if block["type"] == "text":
        return {**block, "text": ""}, [{"type": "text_delta", "text": block["text"]}]
    if block["type"] == "thinking":
        thought = {"type": "thinking_delta", "thinking": block["thinking"]}
        signed = {"type": "signature_delta", "signature": block["signature"]}
        return {**block, "thinking": "", "signature": ""}, [thought, signed]
    given = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    return {**block, "input": {}}, [given]


def _chat_answer(client: Client, turn: Turn, number: int, stream: bool) -> bytes:
    calls = [
        {"index": place, "id": call.id, "type": "function",
         "function": {"name": call.name, "arguments": json.dumps(call.input)}}
        for place, call in enumerate(turn.calls)
    ]  # fmt: skip
    message: Json = {"role": "assistant", "content": turn.text or None}
    if turn.thinking:
        message["reasoning_content"] = turn.thinking
    if calls:
        message["tool_calls"] = calls
    why = "tool_calls" if calls else "stop"
    usage = {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}
    whole = {"id": f"c{number}", "model": "m", "created": 1, "usage": usage}
    if not stream:
        choice = {"index": 0, "message": message, "finish_reason": why}
        return json.dumps({**whole, "object": "chat.completion", "choices": [choice]}).encode()
    whole["object"] = "chat.completion.chunk"
    first = {"index": 0, "delta": message, "finish_reason": None}
    last = {"index": 0, "delta": {}, "finish_reason": why}
    events: list[Json] = [{**whole, "choices": [first]}, {**whole, "choices": [last]}]
    return _sse(events) + b"data: [DONE]\n\n"


def _response_answer(client: Client, turn: Turn, number: int, stream: bool) -> bytes:
    output = [
        {"id": f"i{number}_{place}", **item}
        for place, item in enumerate(_output(client, turn, number))
    ]
    usage = {"input_tokens": 3, "output_tokens": 5, "total_tokens": 8}
    whole = {"id": f"resp_{number}", "object": "response", "status": "completed", "model": "m",
             "output": output, "usage": usage, "error": None}  # fmt: skip
    if not stream:
        return json.dumps(whole).encode()
    begun = {**whole, "output": [], "status": "in_progress", "usage": None}
    events: list[Json] = [{"type": "response.created", "response": begun}]
    events += [
        {"type": "response.output_item.done", "output_index": place, "item": item}
        for place, item in enumerate(output)
    ]
    return _sse([*events, {"type": "response.completed", "response": whole}])


def _content_answer(client: Client, turn: Turn, number: int, stream: bool) -> bytes:
    usage = {"promptTokenCount": 3, "candidatesTokenCount": 5, "totalTokenCount": 8}
    named = {"usageMetadata": usage, "modelVersion": "m", "responseId": f"r{number}"}
    parts = _parts(client, turn, number) or [{"text": ""}]
    if not stream:
        whole = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}
        return json.dumps({"candidates": [whole], **named}).encode()
    events: list[Json] = []
    for part in parts:
        candidate: Json = {"content": {"role": "model", "parts": [part]}, "index": 0}
        if part is parts[-1]:
            candidate["finishReason"] = "STOP"
        events.append({"candidates": [candidate], **named})
    return _sse(events)


def _sse(events: Sequence[Json]) -> bytes:
    lines = [
        f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" if "type" in event
        else f"data: {json.dumps(event)}\n\n"
        for event in events
    ]  # fmt: skip
    return "".join(lines).encode()


def session_of(
    protocol: str, calls: int, task: str = "Count the whales.", lines: int = 200
) -> Client:
    """Return a client that works on a task, with a large result for each call."""
    turns = []
    for number in range(calls):
        text = "".join(f"{number}.{line}: a line of the output\n" for line in range(lines))
        call = Called(f"call_{number}", "Bash", {"command": f"look {number}"}, text)
        words = (REMINDER, task) if number == 0 else ()
        turns.append(Turn(words, text=f"Step {number}.", calls=(call,)))
    return Client(protocol, turns, odd=False)


# Scripts by chance

_PLAIN_TEXTS = (
    "ls",
    "Grüße 🐋",
    'a "quoted" \\ text\n\twith a tab',
    "日本語",
    "x" * 300,
    "x" * 900,
)
_TEXTS = (*_PLAIN_TEXTS, "\u2028\u0085", " ", "\ud800")


def turns_by_chance(rng: random.Random, count: int, task: str, *, odd: bool = True) -> list[Turn]:
    """Return a random script of `count` turns with all shapes that clients send. Without `odd`,
    strict servers accept it.
    """
    turns: list[Turn] = []
    texts = _TEXTS if odd else _PLAIN_TEXTS
    for number in range(count):
        last = number == count - 1
        is_said = number == 0 or not turns[-1].calls or (odd and rng.random() < 0.2)
        words = [f"{rng.choice(texts)} {number}"] if is_said else []
        if number == 0:
            words = [REMINDER, task]
        elif words and rng.random() < 0.3:
            words.insert(0, f"<system-reminder>{number}</system-reminder>")
        calls = () if last and rng.random() < 0.5 else _calls(rng, number, odd=odd)
        text = f"{rng.choice(texts)} said {number}" if not calls or rng.random() < 0.6 else ""
        thinking = f"thought {number}" if odd and rng.random() < 0.4 else ""
        image = bool(words) and rng.random() < 0.15
        turns.append(Turn(tuple(words), image, thinking, text, calls))
    return turns


def _calls(rng: random.Random, number: int, *, odd: bool) -> tuple[Called, ...]:
    calls, texts = [], _TEXTS if odd else _PLAIN_TEXTS
    for place in range(rng.choice((1, 1, 1, 2, 3))):
        id = f"call_{place}" if odd and rng.random() < 0.2 else f"call_{number}_{place}"
        given = {"command": rng.choice(texts), "n": rng.choice((1, 2**70, 1e-7, 1.0, None, True))}
        result = rng.choice(texts) * rng.choice((1, 40, 40))
        kind = (
            rng.choice(("function_call",) * 3 + ("custom_tool_call", "local_shell_call"))
            if odd
            else "function_call"
        )
        calls.append(Called(id, "Bash", given, result, kind, is_list=rng.random() < 0.3))
    return tuple(calls)


def serialized(rng: random.Random, body: Json) -> bytes:
    """Serialize a body in a randomly chosen JSON style."""
    if isinstance(body, dict) and rng.random() < 0.3:
        body = dict(sorted(body.items(), reverse=rng.random() < 0.5))
    is_ascii = rng.random() < 0.5 or "\\ud800" in json.dumps(body)
    separators = rng.choice(((",", ":"), (", ", ": ")))
    indent = rng.choice((None, None, 1))
    return json.dumps(body, ensure_ascii=is_ascii, separators=separators, indent=indent).encode()
