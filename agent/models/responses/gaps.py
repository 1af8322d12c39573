"""Features of the Responses API that servers lack.

OpenAI refuses parameters that a model does not support, such as an effort. vLLM, llama.cpp, Ollama,
LM Studio and gateways serve `/v1/responses`, each without some features.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from ...lazy import regex
from ..gaps import IMAGES, NO_IMAGES_GAP, SHORT_REPLIES, Gap, short_reply_gap
from .draft import MESSAGE, REASONING, ResponseItem

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
