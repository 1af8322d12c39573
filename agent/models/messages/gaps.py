"""Features that Messages API servers lack: Ollama, LM Studio, llama.cpp, vLLM, gateways."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from ...context.items import COMPACTION, THINKING, begins_with_block, with_plain_text
from ...lazy import regex
from ...session.entries import Block
from ..gaps import IMAGES, NO_IMAGES_GAP, SHORT_REPLIES, Gap, short_reply_gap
from ..providers import DEFAULT_PROVIDER, Endpoint, host_of

API_HOST = "api.anthropic.com"
NO_TEXT: Block = {"type": "text", "text": "(no text)"}  # a reply of thinking only, without it

# Error messages for requests that ask for a compaction block, and for requests that contain one.
# The content after an ignored block fails its signature check, so that error matches too.
_NO_COMPACTION = regex(
    rf"{COMPACTION}|extra inputs|un(?:expected|known|recogni[sz]ed)|"
    r"not (?:permitted|allowed|supported)",
    re.I,
)
_NO_BLOCK = regex(rf"{COMPACTION}|signature|thinking|messages\W?0\b|first message|\broles?\b", re.I)
Body = dict[str, Any]


def _is_about_compaction(words: str, body: Mapping[str, Any]) -> bool:
    """Return True if a request was refused for the compaction block that it asks for or
    contains.
    """
    if COMPACTION in body:
        return bool(_NO_COMPACTION.search(words))
    return begins_with_block(body["messages"]) and bool(_NO_BLOCK.search(words))


def _without_compaction(body: Body) -> Body:
    out = {name: value for name, value in body.items() if name != COMPACTION}
    return {**out, "messages": with_plain_text(out["messages"])}


def _without_effort(body: Body) -> Body:
    return {name: value for name, value in body.items() if name != "output_config"}


def _without_thinking(body: Body) -> Body:
    out = {name: value for name, value in body.items() if name != "thinking"}

    def change(blocks: list[Block]) -> list[Block]:
        return [block for block in blocks if block["type"] not in THINKING] or [NO_TEXT]

    return {**out, "messages": [_with_blocks(m, change) for m in out["messages"]]}


def _without_marks(body: Body) -> Body:
    lists: Body = {name: _unmarked(body[name]) for name in ("system", "tools") if name in body}
    return {**body, **lists, "messages": [_with_blocks(m, _unmarked) for m in body["messages"]]}


def _with_strings(body: Body) -> Body:
    out = {**body, "messages": [_with_blocks(m, _as_text) for m in body["messages"]]}
    return {**out, "system": _as_text(out["system"])} if "system" in out else out


def _with_blocks(message: Body, change: Callable[[Any], Any]) -> Body:
    content = message["content"]
    return message if isinstance(content, str) else {**message, "content": change(content)}


def _unmarked(blocks: str | list[Block]) -> str | list[Block]:
    if isinstance(blocks, str):
        return blocks
    return [{k: v for k, v in block.items() if k != "cache_control"} for block in blocks]


def _as_text(blocks: str | list[Block]) -> str | list[Block]:
    """Return blocks as one string if all are text. Do the same inside tool results."""
    if isinstance(blocks, str):
        return blocks
    if all(block.get("type") == "text" for block in blocks):
        return "\n\n".join(block["text"] for block in blocks)
    return [
        {**block, "content": _as_text(block["content"])}
        if block.get("type") == "tool_result" and isinstance(block["content"], list)
        else block
        for block in blocks
    ]


# In the order to try them if an error message names none.
GAPS = {
    COMPACTION: Gap(
        "no server-side compaction", None, _without_compaction, True, _is_about_compaction
    ),
    "cache": Gap(
        "no cache_control",
        regex(r"cache_control|ephemeral|prompt caching", re.I),
        _without_marks,
        optional=True,
    ),
    "effort": Gap(
        "no output_config",
        regex(r"output_config|\beffort\b", re.I),
        _without_effort,
        optional=True,
    ),
    "thinking": Gap(
        "no thinking",
        regex(r"\bthinking\b|redacted_thinking|adaptive", re.I),
        _without_thinking,
        optional=True,
        hides_thinking=True,
    ),
    "blocks": Gap(
        "text in strings only, not in blocks",
        regex(
            r"(?:content|system|messages).*"
            r"(?:expected|must be|valid|should be) (?:an? )?str(?:ing)?\b|"
            r"unexpected list|invalid type: sequence|cannot unmarshal array",
            re.I,
        ),
        _with_strings,
        optional=True,
    ),
    SHORT_REPLIES: short_reply_gap("max_tokens"),
    IMAGES: NO_IMAGES_GAP,
}


def is_public(endpoint: Endpoint) -> bool:
    """Return True for the public API, False for clouds and gateways."""
    if endpoint.address:
        return host_of(endpoint.address) == API_HOST
    return endpoint.provider.name == DEFAULT_PROVIDER
