"""The Responses API as a `Wire`: its body, and the parts that a server may refuse."""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ...context.items import THINKING, with_plain_text
from ...context.request import ADDITION, Request
from ...lazy import regex
from ...session.entries import Block
from ...session.searches import search_text
from ..catalog import cache_terms
from ..gaps import IMAGES, NO_IMAGES_GAP, SHORT_REPLIES, Gap, short_reply_gap
from ..providers import RESPONSES, resolve_model
from ..wire import Wire, shorten_name
from .draft import (
    CALL,
    MESSAGE,
    REASONING,
    ReasoningState,
    ResponseItem,
    arguments_of,
    draft_of,
    unpack,
    with_reasoning,
)

CACHE_OPTIONS, BREAKPOINT = "prompt_cache_options", "prompt_cache_breakpoint"
OMITTED_FILE = "[A file is left out here: the server takes no files.]"
MEDIA_IN_NEXT_MESSAGE = "[What came with this result is in the next message.]"

_Body = dict[str, Any]


def _without(parameter: str) -> Callable[[_Body], _Body]:
    return lambda body: {name: value for name, value in body.items() if name != parameter}


def _reasoning_without(field: str) -> Callable[[_Body], _Body]:
    """Return a function that removes a field of the parameter `reasoning`, and `reasoning` if it is
    then empty.
    """

    def fit(body: _Body) -> _Body:
        left = {name: value for name, value in body.get("reasoning", {}).items() if name != field}
        return {**body, "reasoning": left} if left else _without("reasoning")(body)

    return fit


def _effort_at_most(highest: str, above: str) -> Callable[[_Body], _Body]:
    """Return a function that replaces the effort `above` by `highest`."""

    def fit(body: _Body) -> _Body:
        asked = body.get("reasoning", {})
        return (
            {**body, "reasoning": {**asked, "effort": highest}}
            if asked.get("effort") == above
            else body
        )

    return fit


def _without_reasoning(body: _Body) -> _Body:
    """Remove reasoning items, and the IDs that link other items to them."""
    kept = [item for item in body["input"] if item["type"] != REASONING]
    return {**body, "input": [*map(_without_id, kept)]}


def _without_id(item: ResponseItem) -> ResponseItem:
    out = {name: value for name, value in item.items() if name not in ("id", "status")}
    if item["type"] == MESSAGE and "id" in item:
        out["content"] = item["content"][0]["text"]
    return out


def _results_as_text(body: _Body) -> _Body:
    """Send results as text only, and their images and files in a message after the results of one
    reply.
    """
    out: list[ResponseItem] = []
    media: list[ResponseItem] = []
    for item in (*body["input"], {"type": ""}):
        if item["type"] != "function_call_output":
            out += [{"type": MESSAGE, "role": "user", "content": media}] if media else []
            media = []
        elif isinstance(item["output"], list):
            texts = [part["text"] for part in item["output"] if part["type"] == "input_text"]
            media += [part for part in item["output"] if part["type"] != "input_text"]
            item = {**item, "output": "\n\n".join([*texts, MEDIA_IN_NEXT_MESSAGE])}
        out.append(item)
    return {**body, "input": out[:-1]}


def _without_breakpoints(body: _Body) -> _Body:
    out = _without(CACHE_OPTIONS)(body)
    first, *rest = body["input"]
    if first.get("role") == "developer":
        plain = {name: first["content"][0][name] for name in ("type", "text")}
        out["input"] = [{**first, "content": [plain]}, *rest]
    return out


def _without_files(body: _Body) -> _Body:
    def fit(value: Any) -> Any:
        if isinstance(value, dict) and value.get("type") == "input_file":
            return {"type": "input_text", "text": OMITTED_FILE}
        return [*map(fit, value)] if isinstance(value, list) else value

    items = [{name: fit(value) for name, value in item.items()} for item in body["input"]]
    return {**body, "input": items}


def _names_limit(words: str, body: Mapping[str, Any]) -> bool:
    """Return True if a server refuses the reply limit because it is higher than its own."""
    return "max_output_tokens" in body and bool(re.search("max_(?:output_)?tokens", words))


_BREAKPOINTS = regex(f"{CACHE_OPTIONS}|{BREAKPOINT}")
_PARAMETER = r"parameter\W+reasoning\b(?!\.)"
_EFFORT = regex(
    r"\beffort\b|reasoning value|not support thinking|'(?:low|medium|high|xhigh|max)' is not|"
    + _PARAMETER,
    re.I,
)
_SUMMARY = regex(rf"reasoning\W?summar|{_PARAMETER}", re.I)
_INCLUDE = regex(r"encrypted content is not supported|\binclude\b", re.I)
_REASONING = regex(r"encrypted[ _]content|'reasoning'|type of 'item'|item\['content", re.I)
_RESULTS = regex(r"output of tool call|\boutput\b.*\bstr(?:ing)?\b|invalid type for 'input'", re.I)
_FILES = regex(r"input_file|\bfiles?\b|\bpdf\b", re.I)

# In the order in which they are tried and applied.
GAPS = {
    "stream": Gap("no streaming", regex(r"\bstream", re.I), _without("stream")),
    "cache": Gap(
        "no prompt_cache_key", regex("prompt_cache_key"), _without("prompt_cache_key"), True
    ),
    "breakpoints": Gap("no cache breakpoints", _BREAKPOINTS, _without_breakpoints, True),
    "store": Gap("no store", regex(r"\bstore\b"), _without("store")),  # OpenAI stores by default
    "include": Gap("no encrypted reasoning", _INCLUDE, _without("include"), True),
    "summary": Gap("no summaries", _SUMMARY, _reasoning_without("summary"), True),
    "max": Gap("no effort above xhigh", _EFFORT, _effort_at_most("xhigh", "max")),
    "xhigh": Gap("no effort above high", _EFFORT, _effort_at_most("high", "xhigh")),
    "effort": Gap("no effort", _EFFORT, _reasoning_without("effort"), True),
    "results": Gap("only text as results of tools", _RESULTS, _results_as_text, True),
    "reasoning": Gap(
        "no reasoning of earlier replies", _REASONING, _without_reasoning, True, hides_thinking=True
    ),
    "files": Gap("no files", _FILES, _without_files),
    "limit": Gap(
        "no replies of this length", None, _without("max_output_tokens"), matches=_names_limit
    ),
    SHORT_REPLIES: short_reply_gap("max_output_tokens"),
    IMAGES: NO_IMAGES_GAP,
}


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


WIRE = Wire(RESPONSES, "Responses API", "/responses", "/models", GAPS, parameters, body, draft_of)
