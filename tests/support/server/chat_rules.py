"""The rules of Chat Completions for the body of a request, as strict as any server.

Source: the references of OpenAI, Mistral, Groq and DeepSeek, November 2026. Fields that this agent
has no reason to send are refused, every call has one result right after its message, and roles
alternate. `in_blocks` converts a body to the Messages API.
"""

import base64
import json
import re
from collections.abc import Iterator
from typing import Any

from .validator import EFFORTS, Invalid

Body = dict[str, Any]

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_URL = re.compile(r"data:(image/(?:png|jpeg|gif|webp)|application/pdf);base64,(.+)")
_TOP = {
    "model": str,
    "messages": list,
    "tools": list,
    "max_tokens": int,
    "max_completion_tokens": int,
    "stream": bool,
    "stream_options": dict,
    "reasoning_effort": str,
}
# For each role: required and optional fields of a message.
_FIELDS = {
    "system": ({"role", "content"}, set[str]()),
    "user": ({"role", "content"}, set[str]()),
    "assistant": ({"role", "content"}, {"tool_calls", "reasoning_content", "reasoning"}),
    "tool": ({"role", "content", "tool_call_id"}, set[str]()),
}
# Roles that may follow a message of each role; "" is the beginning or the end.
_NEXT = {
    "": ("system", "user"),
    "system": ("user",),
    "user": ("assistant", ""),
    "assistant": ("user",),
    "calls": ("tool",),
    "tool": ("tool", "assistant", "user", ""),
}


def check_chat(body: Body) -> None:
    """Raise Invalid for a body that some server would refuse."""
    for name, value in body.items():
        if name not in _TOP or type(value) is not _TOP[name]:
            raise Invalid(f"{name}: no field of a request, or of another type")
    if not {"model", "messages"} <= body.keys():
        raise Invalid("model and messages are required")
    if body.get("stream_options", {"include_usage": True}) != {"include_usage": True}:
        raise Invalid("stream_options: only include_usage is known")
    if "stream_options" in body and not body.get("stream"):
        raise Invalid("stream_options: only with stream")
    if body.get("reasoning_effort", EFFORTS[0]) not in EFFORTS:
        raise Invalid("reasoning_effort: unknown")
    if _SURROGATE.search(json.dumps(body, ensure_ascii=False)):
        raise Invalid("a lone surrogate")
    _check_tools(body.get("tools"))
    _check_messages(body["messages"])


def _check_tools(tools: list[Body] | None) -> None:
    names = set[str]()
    for tool in [] if tools is None else tools or [{}]:
        function = tool.get("function", {})
        if tool.keys() != {"type", "function"} or tool["type"] != "function":
            raise Invalid(f"tools: {tool}")
        if function.keys() != {"name", "description", "parameters"}:
            raise Invalid(f"tools: {function}")
        if not _NAME.fullmatch(function["name"]) or function["name"] in names:
            raise Invalid(f"tools: the name {function['name']!r}")
        if function["parameters"].get("type") != "object":
            raise Invalid("tools: parameters are of type object")
        names.add(function["name"])


def _check_messages(messages: list[Body]) -> None:
    before, ids, open = "", set[str](), list[str]()
    for place, message in enumerate(messages):
        role, where = message.get("role", ""), f"messages.{place}"
        needed, possible = _FIELDS.get(role, (set[str](), set[str]()))
        if not needed <= message.keys() <= needed | possible or not needed:
            raise Invalid(f"{where}: fields {[*message]}")
        if role not in _NEXT[before]:
            raise Invalid(f"{where}: unexpected role '{role}' after role '{before}'")
        before = role
        if role == "tool":
            if message["tool_call_id"] not in open:
                raise Invalid(f"{where}: a result without a call, or a second one")
            open.remove(message["tool_call_id"])
        if open:
            before = "calls"
        if "tool_calls" in message:
            calls = message["tool_calls"]
            open, before = [_checked_call(call, where) for call in calls], "calls"
            if not open or len({*open}) < len(open) or ids & {*open}:
                raise Invalid(f"{where}: IDs of calls are not unique")
            ids |= {*open}
        _check_content(message, where)
        for name in ("reasoning_content", "reasoning"):
            if not isinstance(message.get(name, ""), str):
                raise Invalid(f"{where}.{name}: no text")
    if "" not in _NEXT[before]:
        raise Invalid(f"the last message has the role '{before}'")


def _checked_call(call: Body, where: str) -> str:
    """Check a call; return its ID."""
    if call.keys() - {"extra_content"} != {"id", "type", "function"} or call["type"] != "function":
        raise Invalid(f"{where}.tool_calls: {call}")
    function = call["function"]
    if function.keys() != {"name", "arguments"} or not _NAME.fullmatch(function["name"]):
        raise Invalid(f"{where}.tool_calls: {function}")
    try:
        given = json.loads(function["arguments"])
    except (TypeError, ValueError):
        given = None
    if not isinstance(given, dict):
        raise Invalid(f"{where}.tool_calls: the arguments are no JSON object in a text")
    if not isinstance(call["id"], str) or not call["id"]:
        raise Invalid(f"{where}.tool_calls: no ID")
    return str(call["id"])


def _check_content(message: Body, where: str) -> None:
    content = message["content"]
    if content is None and message.get("tool_calls"):
        return
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    if not isinstance(content, list) or not content:
        raise Invalid(f"{where}.content: neither a text nor parts")
    for part in content:
        if message["role"] != "user" and part.get("type") != "text":
            raise Invalid(f"{where}.content: only text")
        _check_part(part, where)


def _check_part(part: Body, where: str) -> None:
    kind = part.get("type")
    inner = part.get(kind) if isinstance(kind, str) else None
    url = ""
    if kind == "text" and isinstance(inner, str) and inner.strip() and len(part) == 2:
        return
    if kind == "image_url" and isinstance(inner, dict) and inner.keys() == {"url"}:
        url = inner["url"]
    if kind == "file" and isinstance(inner, dict) and inner.keys() == {"filename", "file_data"}:
        url = inner["file_data"]
    found = _URL.fullmatch(url)
    if not found or ("image" in found[1]) != (kind == "image_url") or len(part) != 2:
        raise Invalid(f"{where}.content: a part of the type {kind}")
    base64.b64decode(found[2], validate=True)


def in_blocks(body: Body) -> Body:
    """Convert a valid body to the Messages API, without fields specific to Chat Completions."""
    out: Body = {"model": body["model"], "max_tokens": _length(body), "messages": []}
    for message in body["messages"]:
        blocks = [*_blocks(message)]
        if message["role"] == "system":
            out["system"] = blocks
            continue
        role = "user" if message["role"] == "tool" else message["role"]
        if not out["messages"] or out["messages"][-1]["role"] != role:
            out["messages"].append({"role": role, "content": []})
        out["messages"][-1]["content"] += blocks
    if "tools" in body:
        out["tools"] = [
            {"name": each["name"], "description": each["description"],
             "input_schema": each["parameters"]}
            for each in (tool["function"] for tool in body["tools"])
        ]  # fmt: skip
    return out


def _length(body: Body) -> int:
    return int(body.get("max_tokens", body.get("max_completion_tokens", 1000)))


def _blocks(message: Body) -> Iterator[Body]:
    content = message["content"] or []
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    plain = [_block(part) for part in parts]
    if message["role"] == "tool":
        yield {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": plain}
        return
    yield from plain
    for call in message.get("tool_calls", ()):
        given = json.loads(call["function"]["arguments"])
        name = call["function"]["name"]
        yield {"type": "tool_use", "id": call["id"], "name": name, "input": given}


def _block(part: Body) -> Body:
    if part["type"] == "text":
        return {"type": "text", "text": part["text"]}
    is_image = part["type"] == "image_url"
    found = _URL.fullmatch(part["image_url"]["url"] if is_image else part["file"]["file_data"])
    assert found is not None
    source = {"type": "base64", "media_type": found[1], "data": found[2]}
    return {"type": "image" if is_image else "document", "source": source}
