"""The JSON body of a Responses API request.

The server stores nothing (`store: false`): each request contains the whole conversation as a list
of items.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from ...context.items import THINKING, with_plain_text
from ...context.request import ADDITION, Request
from ...session.entries import Block
from ...session.searches import search_text
from ..catalog import cache_terms
from ..providers import resolve_model
from ..wire import shorten_name
from .draft import CALL, MESSAGE, ReasoningState, ResponseItem, arguments_of, unpack, with_reasoning
from .gaps import BREAKPOINT, CACHE_OPTIONS

ENCRYPTED = "reasoning.encrypted_content"
MIN_OUTPUT_TOKENS = 16  # the API refuses a lower limit
PDF_NAME = "document.pdf"  # the API requires a file name


def parameters(request: Request) -> dict[str, Any]:
    """Return the parameters of a body without the conversation. Parameters that a model or server
    does not support are removed later (see `gaps`).
    """
    reasoning = {"effort": request.effort} if request.effort is not None else {}
    if request.thinking:
        reasoning["summary"] = "auto"
    return {
        "model": resolve_model(request.model).name,
        "max_output_tokens": max(request.max_tokens, MIN_OUTPUT_TOKENS),
        "stream": True,
        "store": False,
        "include": [ENCRYPTED],
        "prompt_cache_key": _cache_key(request),
        **({CACHE_OPTIONS: _cache_options(request)} if _has_breakpoints(request.model) else {}),
        **({"reasoning": reasoning} if reasoning else {}),
    }


def _has_breakpoints(model: str) -> bool:
    """Return True if the model's prompt cache stores only content that ends at a breakpoint. This
    applies to models with a price for cache writes.
    """
    return cache_terms(model).write > 1.0


def _cache_options(request: Request) -> dict[str, str]:
    """Return the cache options. If no other request will continue this one, do not write its end to
    the cache.
    """
    goes_on = any("cache_control" in block for block in request.messages[-1]["content"])
    return {"mode": "implicit" if goes_on else "explicit"}


def _cache_key(request: Request) -> str:
    """Return a key that is equal for requests with the same beginning, so that they use the same
    cache.
    """
    first = [block.get("text") for block in request.messages[0]["content"]]
    told = [request.model, _text_of(request.system), request.tools, first]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:32]


def body(request: Request, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of POST /responses. For a cache with breakpoints, the API adds a breakpoint
    at the end. Send the instructions as a message with another breakpoint, because only the
    instructions stay the same after a summary, in another session and in a subagent.
    """
    out = {**parameters, "input": [*_items(request)]}
    if request.system and CACHE_OPTIONS in parameters:
        text = {"type": "input_text", "text": _text_of(request.system)}
        part = {**text, BREAKPOINT: {"mode": "explicit"}}
        out["input"].insert(0, {"type": MESSAGE, "role": "developer", "content": [part]})
    elif request.system:
        out["instructions"] = _text_of(request.system)
    if tools := [*_tools(request)]:
        out["tools"] = tools
    return out


def _tools(request: Request) -> Iterator[ResponseItem]:
    """Yield the tools, followed by tools that messages of older logs add. Skip server-side tools,
    which belong to another protocol.
    """
    added = [
        block["tool"]["definition"]
        for message in request.messages
        for block in message["content"]
        if block["type"] == ADDITION
    ]
    for tool in (*request.tools, *added):
        if "input_schema" in tool:
            yield {
                "type": "function",
                "name": shorten_name(tool["name"]),
                "description": tool.get("description", ""),
                "parameters": tool["input_schema"],
                "strict": False,
            }


def _items(request: Request) -> Iterator[ResponseItem]:
    for message in with_plain_text(request.messages):
        if message["role"] == "assistant":
            yield from with_reasoning(_reply_items(message["content"]))
        elif message["role"] == "user":
            yield from _user_items(message["content"])


def _user_items(blocks: list[Block]) -> Iterator[ResponseItem]:
    """Yield the items of a user message: first the results of calls, then the rest."""
    results = [block for block in blocks if block["type"] == "tool_result"]
    for block in results:
        call = shorten_name(block["tool_use_id"])
        yield {"type": "function_call_output", "call_id": call, "output": _output(block["content"])}
    if said := [_part(block) for block in blocks if block["type"] != "tool_result"]:
        yield {"type": MESSAGE, "role": "user", "content": said}


def _output(content: str | list[Block]) -> str | list[ResponseItem]:
    if isinstance(content, str):
        return content
    if all(block["type"] == "text" for block in content):
        return _text_of(content)
    return [_part(block) for block in content]


def _part(block: Block) -> ResponseItem:
    if block["type"] == "text":
        return {"type": "input_text", "text": block["text"]}
    source = block["source"]
    url = f"data:{source['media_type']};base64,{source['data']}"
    if block["type"] == "image":
        return {"type": "input_image", "image_url": url, "detail": "auto"}
    return {"type": "input_file", "filename": PDF_NAME, "file_data": url}


def _reply_items(blocks: list[Block]) -> Iterator[ResponseItem | ReasoningState]:
    for block in blocks:
        if block["type"] in THINKING:
            if state := unpack(block.get("signature", "")):
                yield state
        elif block["type"] == "tool_use":
            yield {
                "type": CALL,
                "call_id": shorten_name(block["id"]),
                "name": shorten_name(block["name"]),
                "arguments": arguments_of(block["input"]),
            }
        elif text := block.get("text") or search_text(block):
            yield {"type": MESSAGE, "role": "assistant", "content": text}


def _text_of(blocks: list[Block]) -> str:
    return "\n\n".join(block["text"] for block in blocks)
