"""A Responses API server on the loopback interface, with the scripts and faults of `loopback`.

    with ResponsesServer([Say("Done.", thinking="Hm.")]) as server:
        run(environ={"AZURE_OPENAI_ENDPOINT": server.url, "AZURE_OPENAI_API_KEY": "test"})
    assert server.rejected == []

It refuses what the documentation forbids and what the real API was observed to refuse: unknown
fields, calls without an output, reasoning that is not from the server or has lost the item that
followed it, an item with an ID that has lost its reasoning. The encrypted content contains all
checked data, so that another server can verify it. A valid request is converted to the Messages
API, then checked further and answered in that form; `requests` has that form, `bodies` the
original.
"""

import base64
import binascii
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from .loopback import Body, Fail, Say, Server, Step
from .validator import EFFORTS, Invalid

LEAST_OUTPUT_TOKENS = 16
LONGEST_KEY = LONGEST_CALL_ID = LONGEST_NAME = 64
ENCRYPTED = ["reasoning.encrypted_content"]
TOO_LONG = (
    "Your input exceeds the context window of this model. Please adjust your input and try again."
)
INCOMPLETE = {"max_tokens": "max_output_tokens", "refusal": "content_filter"}
NOISE: tuple[Body, ...] = (
    {"type": "response.hologram.delta", "output_index": 0, "delta": "cube"},
    {"type": "keepalive"},
)

_TOP = {
    "model", "input", "stream", "store", "include", "max_output_tokens", "prompt_cache_key",
    "instructions", "tools", "reasoning", "prompt_cache_options",
}  # fmt: skip
_ITEMS = {
    "message": ({"type", "role", "content"}, {"id", "status", "phase"}),
    "function_call": ({"type", "call_id", "name", "arguments"}, {"id", "status"}),
    "function_call_output": ({"type", "call_id", "output"}, set()),
    "reasoning": ({"type", "id", "summary", "encrypted_content"}, set()),
}
_PARTS = {
    "input_text": {"type", "text"},
    "input_image": {"type", "image_url", "detail"},
    "input_file": {"type", "filename", "file_data"},
}
_URL = re.compile(r"data:([a-z]+/[a-z]+);base64,(.*)", re.S)
_ID = re.compile(r"(?:msg|fc)_\w+?(?:_after_(rs_\w+))?")


class ResponsesServer(Server):
    """See the module. `can_stream` enables streaming; `lacks` are parameters, or fields of
    `reasoning`, that it refuses.
    """

    protocol, model = "responses", "azure/gpt-5.6"
    path = "/openai/v1/responses"  # path of Azure, because OpenAI's address is fixed
    address_variable, key_variable = "AZURE_OPENAI_ENDPOINT", "AZURE_OPENAI_API_KEY"

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.bodies: list[Body] = []  # unconverted
        self.lacks: tuple[str, ...] = ()
        self.can_stream = True

    def answer(self, body: Body, headers: dict[str, str], raw: bytes) -> tuple[Step, str, Body]:
        self.bodies.append(body)
        asked = {*body, *(f"reasoning.{name}" for name in body.get("reasoning", {}))}
        for name in self.lacks:
            if name in asked:
                return Fail(400, f"Unsupported parameter: '{name}'"), "", {}
        try:
            read = self._read(body)
        except Invalid as error:
            self.requests.append(body)
            self.rejected.append((str(error), body))
            self.asked.set()
            return Fail(error.status, str(error)), "", {}
        return super().answer(read, headers, raw)

    def _read(self, body: Body) -> Body:
        return read_body({"include": ENCRYPTED, **body} if self.lenient else body)

    def refusal(self, path: str, headers: Mapping[str, str]) -> Fail | None:
        if path != self.path:
            return Fail(404, f"no such path: {path}")
        if headers.get("authorization", "").startswith("Bearer ") or headers.get("api-key"):
            return None
        return Fail(401, "You didn't provide an API key.", kind="invalid_api_key")

    def message(self, step: Say, body: Body, id: str, usage: Body) -> Body:
        return super().message(step, self._read(body), id, usage)

    def streams(self, body: Body) -> bool:
        return self.can_stream and super().streams(body)

    def whole(self, whole: Body) -> Body:
        return response(Say(), whole)

    def events(self, say: Say, whole: Body) -> Iterator[Body]:
        for number, event in enumerate(events(say, response(say, whole))):
            yield {**event, "sequence_number": number}

    def framed(self, event: Body | str) -> str:
        if isinstance(event, dict) and "error" in event:
            event = {**event["error"], "type": "error"}
        return super().framed(event)

    def text_of(self, event: Body) -> str | None:
        if not str(event.get("type")).endswith(".delta"):
            return None
        return str(event["delta"]) if event["type"] == "response.output_text.delta" else ""

    def error(self, kind: str, words: str) -> Body:
        if words.startswith(("prompt is too long", "input length and")):
            kind, words = "context_length_exceeded", TOO_LONG
        told = {"type": "invalid_request_error", "code": kind, "message": words, "param": None}
        return {"error": told}


def response(say: Say, whole: Body) -> Body:
    """Convert a reply of the Messages API to a response."""
    usage = whole["usage"]
    read, written = (
        usage.get("cache_read_input_tokens", 0),
        usage.get("cache_creation_input_tokens", 0),
    )
    prompt = usage.get("input_tokens", 0) + read + written
    why = INCOMPLETE.get(whole["stop_reason"])
    return {
        "id": whole["id"].replace("msg", "resp"),
        "object": "response",
        "created_at": 1_800_000_000,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "model": f"{whole['model']}-2026-11-01",
        "status": "incomplete" if why else "completed",
        "incomplete_details": {"reason": why} if why else None,
        "error": None,
        "output": [*items_of(say, whole)],
        "usage": {
            "input_tokens": prompt,
            "input_tokens_details": {"cached_tokens": read, "cache_write_tokens": written},
            "output_tokens": usage["output_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": prompt + usage["output_tokens"],
        },
    }


def items_of(say: Say, whole: Body) -> Iterator[Body]:
    """Yield the output items of a response. The encrypted content of a reasoning item names the
    item that follows it.
    """
    content = whole["content"]
    kinds = [
        "rs" if b["type"] == "thinking" else "fc" if b["type"] == "tool_use" else "msg"
        for b in content
    ]
    ids: list[str] = []
    for place, kind in enumerate(kinds):
        after = f"_after_{ids[-1]}" if place and kinds[place - 1] == "rs" and kind != "rs" else ""
        ids.append(f"{kind}_{whole['id'][4:]}x{place}{after}")
    raws = [given for _, given in say.tools]
    first = len(content) - len(raws)
    for place, (id, block) in enumerate(zip(ids, content, strict=True)):
        if block["type"] == "thinking":
            behind = ids[place + 1] if place + 1 < len(ids) else None
            yield reasoning(id, block["thinking"], block["signature"], whole["model"], behind)
        elif block["type"] == "text":
            phase = "commentary" if "fc" in kinds else "final_answer"
            part = {"type": "output_text", "text": block["text"], "annotations": [], "logprobs": []}
            yield {"id": id, "type": "message", "status": "completed", "role": "assistant",
                   "content": [part], "phase": phase}  # fmt: skip
        elif block["type"] == "tool_use":
            given = raws[place - first] if place >= first else block["input"]
            arguments = given if isinstance(given, str) else json.dumps(given)
            call = {"id": id, "type": "function_call", "status": "completed"}
            yield {**call, "call_id": block["id"], "name": block["name"], "arguments": arguments}


def reasoning(id: str, thought: str, signature: str, model: str, behind: str | None) -> Body:
    secret = json.dumps([model, id, thought, signature, behind])
    return {
        "id": id,
        "type": "reasoning",
        "encrypted_content": base64.b64encode(secret.encode()).decode(),
        "summary": [{"type": "summary_text", "text": text} for text in thought.split("\n\n")],
    }


def events(say: Say, whole: Body) -> Iterator[Body]:
    begun = {**whole, "output": [], "status": "in_progress", "usage": None}
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for place, item in enumerate(whole["output"]):
        placed = {"output_index": place, "item_id": item["id"]}
        yield {"type": "response.output_item.added", "output_index": place, "item": _empty(item)}
        yield from NOISE if say.noise else ()
        for kind, fields, text in _texts(item):
            if kind == "reasoning_summary_text":
                part = {"type": "summary_text", "text": ""}
                yield {
                    "type": "response.reasoning_summary_part.added",
                    **placed,
                    **fields,
                    "part": part,
                }
            for piece in _pieces(text, say.deltas):
                yield {"type": f"response.{kind}.delta", **placed, **fields, "delta": piece}
            done = (
                {"arguments": text, "name": item["name"]} if "arguments" in item else {"text": text}
            )
            yield {"type": f"response.{kind}.done", **placed, **fields, **done}
        yield {"type": "response.output_item.done", "output_index": place, "item": item}
    yield {"type": f"response.{whole['status']}", "response": whole}


def _empty(item: Body) -> Body:
    """Return an item as it is when it begins; its encrypted content is still incomplete."""
    started = {"message": {"content": []}, "function_call": {"arguments": ""},
               "reasoning": {"summary": [], "encrypted_content": "gA"}}  # fmt: skip
    return {**item, **started[item["type"]], "status": "in_progress"}


def _texts(item: Body) -> Iterator[tuple[str, Body, str]]:
    if item["type"] == "reasoning":
        for place, part in enumerate(item["summary"]):
            yield "reasoning_summary_text", {"summary_index": place}, part["text"]
    elif item["type"] == "message":
        yield "output_text", {"content_index": 0, "logprobs": []}, item["content"][0]["text"]
    else:
        yield "function_call_arguments", {}, item["arguments"]


def _pieces(text: str, count: int) -> Iterator[str]:
    size = max(1, -(-len(text) // count))
    for start in range(0, len(text), size):
        yield text[start : start + size]


def read_body(body: Body) -> Body:
    """Convert a request to the Messages API. Raises Invalid unless the API must accept it."""
    _check(isinstance(body, dict), "not an object")
    _check_fields(body, "body", {"model", "input", "store", "include", "max_output_tokens"}, _TOP)
    _check(body["store"] is False, "store: this organization keeps nothing")
    _check(body["include"] == ENCRYPTED, "include: unknown")
    limit = body["max_output_tokens"]
    _check(type(limit) is int and limit >= LEAST_OUTPUT_TOKENS, "max_output_tokens: too low")
    key = body.get("prompt_cache_key", "k")
    _check(
        isinstance(key, str) and 0 < len(key) <= LONGEST_KEY, "prompt_cache_key: string too long"
    )
    asked = body.get("reasoning", {"summary": "auto"})
    _check_fields(asked, "reasoning", set(), {"effort", "summary"})
    _check(bool(asked), "reasoning: empty")
    _check(asked.get("effort", "low") in EFFORTS, "reasoning.effort: Invalid value")
    _check(asked.get("summary", "auto") == "auto", "reasoning.summary: Invalid value")
    items, system = body["input"], body.get("instructions")
    if items and isinstance(items[0], dict) and items[0].get("role") == "developer":
        first, *items = items
        _check(system is None, "instructions: said twice")
        _check_fields(first, "input[0]", {"type", "role", "content"}, set())
        (part,) = first["content"]
        _check_fields(part, "input[0].content", _PARTS["input_text"], {"prompt_cache_breakpoint"})
        system, breakpoint = part["text"], part.get("prompt_cache_breakpoint")
        _check(breakpoint in (None, {"mode": "explicit"}), "prompt_cache_breakpoint: Invalid value")
        _check(breakpoint is None or "prompt_cache_options" in body, "prompt_cache_breakpoint: "
               "not supported with this model")  # fmt: skip
    options = body.get("prompt_cache_options", {"mode": "implicit"})
    _check(options in ({"mode": "implicit"}, {"mode": "explicit"}), "prompt_cache_options: Invalid")
    messages = _messages(items, body["model"])
    last = messages[-1]["content"]
    last[-1] = {**last[-1], "cache_control": {"type": "ephemeral"}}  # the whole prompt is cached
    read = {"model": body["model"], "max_tokens": limit, "messages": messages}
    if system is not None:
        read["system"] = [{"type": "text", "text": system}]
    if "tools" in body:
        read["tools"] = [_tool(tool) for tool in body["tools"]]
    return read


def _tool(tool: Body) -> Body:
    _check_fields(tool, "tools", {"type", "name", "description", "parameters", "strict"}, set())
    _check(tool["type"] == "function" and tool["strict"] is False, "tools: not a loose function")
    _check(len(tool["name"]) <= LONGEST_NAME, "tools.name: string too long")
    described = {"name": tool["name"], "description": tool["description"]}
    return {**described, "input_schema": tool["parameters"]}


def _messages(items: Any, model: str) -> list[Body]:
    _check(isinstance(items, list) and bool(items), "input: a list of items")
    messages: list[Body] = []
    for place, item in enumerate(items):
        where = f"input[{place}]"
        kind = item.get("type") if isinstance(item, dict) else None
        _check(kind in _ITEMS, f"{where}: unknown type of item {kind!r}")
        _check_fields(item, where, *_ITEMS[str(kind)])
        _check_neighbours(items, place)
        if kind == "reasoning":
            role, blocks = "assistant", [_thought(item, model, where)]
        elif kind == "function_call":
            role, blocks = "assistant", [_call(item, where)]
        elif kind == "function_call_output":
            output = item["output"]
            told = output if isinstance(output, str) else _parts(output, where)
            block = {"type": "tool_result", "tool_use_id": item["call_id"], "content": told}
            role, blocks = "user", [block]
        else:
            role, blocks = item["role"], _said(item, where)
        if not messages or messages[-1]["role"] != role:
            messages.append({"role": role, "content": []})
        messages[-1]["content"] += blocks
    return messages


def _check_neighbours(items: list[Body], place: int) -> None:
    """Check that reasoning precedes the item that followed it, and that an item follows its
    reasoning.
    """
    item, id = items[place], items[place].get("id")
    if id is None:
        return
    if item["type"] == "reasoning":
        behind = _secret(item, f"input[{place}]")[4]
        follower = items[place + 1].get("id") if place + 1 < len(items) else None
        _check(follower is not None and follower == behind, f"Item '{id}' of type 'reasoning' was "
               "provided without its required following item.")  # fmt: skip
        return
    found = _ID.fullmatch(id)
    _check(found is not None, f"input[{place}].id: Invalid {id!r}")
    needed = found and found[1]
    before = items[place - 1].get("id") if place else None
    _check(not needed or before == needed, f"Item '{id}' of type '{item['type']}' was provided "
           f"without its required 'reasoning' item: '{needed}'.")  # fmt: skip


def _secret(item: Body, where: str) -> list[Any]:
    try:
        told = json.loads(base64.b64decode(item["encrypted_content"], validate=True))
    except (ValueError, TypeError, binascii.Error):
        raise Invalid(f"{where}: The encrypted content could not be verified.") from None
    model, id, thought, signature, behind = told
    made = reasoning(id, thought, signature, model, behind)
    same = json.dumps(made) == json.dumps(item)
    _check(same, f"{where}: The encrypted content for item {id} could not be verified.")
    return list(told)


def _thought(item: Body, model: str, where: str) -> Body:
    made_by, _, thought, signature, _ = _secret(item, where)
    _check(made_by == model, f"{where}: The encrypted content is that of another model.")
    return {"type": "thinking", "thinking": thought, "signature": signature}


def _call(item: Body, where: str) -> Body:
    _check(len(item["call_id"]) <= LONGEST_CALL_ID, f"{where}.call_id: string too long")
    try:
        given = json.loads(item["arguments"])
    except ValueError:
        raise Invalid(f"{where}.arguments: no JSON") from None
    return {"type": "tool_use", "id": item["call_id"], "name": item["name"], "input": given}


def _said(item: Body, where: str) -> list[Body]:
    content = item["content"]
    if item["role"] == "user":
        _check(not {"id", "status", "phase"} & {*item}, f"{where}: not of a user message")
        _check(isinstance(content, list) and bool(content), f"{where}.content: a list of parts")
        return _parts(content, where)
    _check(item["role"] == "assistant", f"{where}.role: Invalid value")
    if isinstance(content, list):
        _check({"id", "status", "phase"} <= {*item}, f"{where}: id, status, phase: Field required")
        (part,) = content
        _check_fields(part, f"{where}.content", {"type", "text", "annotations"}, set())
        _check(part["type"] == "output_text", f"{where}.content: Invalid value")
        content = part["text"]
    else:
        _check("id" not in item, f"{where}: a message with an ID is a list of parts")
    return [{"type": "text", "text": content}]


def _parts(parts: Any, where: str) -> list[Body]:
    _check(isinstance(parts, list) and bool(parts), f"{where}: a list of parts")
    return [_part(part, f"{where}.{place}") for place, part in enumerate(parts)]


def _part(part: Any, where: str) -> Body:
    kind = part.get("type") if isinstance(part, dict) else None
    _check(kind in _PARTS, f"{where}.type: Invalid value: {kind!r}")
    _check_fields(part, where, _PARTS[str(kind)], set())
    if kind == "input_text":
        return {"type": "text", "text": part["text"]}
    found = _URL.fullmatch(part["image_url" if kind == "input_image" else "file_data"])
    _check(found is not None, f"{where}: not a base64 data URL")
    assert found is not None
    source = {"type": "base64", "media_type": found[1], "data": found[2]}
    return {"type": "image" if kind == "input_image" else "document", "source": source}


def _check(holds: bool, message: str) -> None:
    if not holds:
        raise Invalid(message)


def _check_fields(node: Any, where: str, must: set[str], may: set[str]) -> None:
    _check(isinstance(node, dict), f"{where}: not an object")
    if missing := must - node.keys():
        raise Invalid(f"Missing required parameter: '{where}.{min(missing)}'")
    if extra := node.keys() - must - may:
        raise Invalid(f"Unknown parameter: '{where}.{min(extra)}'")
