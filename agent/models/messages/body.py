"""The JSON body of a Messages API request, and the parameters that the log stores.

What a server refuses is left out.
"""

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from ...context.items import COMPACTION, THINKING, begins_with_block, with_plain_text
from ...context.request import Request, adds_tools
from ...lazy import regex
from ...session.entries import Block
from .. import wire
from ..catalog import known_model
from ..gaps import IMAGES, NO_IMAGES_GAP, SHORT_REPLIES, Gap, short_reply_gap
from ..providers import DEFAULT_PROVIDER, MESSAGES, VERTEX, Endpoint, host_of, resolve_model
from .draft import draft_of

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


# Betas for tools added in a system message. Only needed for sessions with older logs.
LATE_TOOLS_BETAS = ("mid-conversation-tool-changes-2026-07-01", "inline-tools-2026-09-15")
COMPACTION_BETA = "compact-2026-09-04"
VERSION = "2026-10-21"  # API version, as in the SDK
_CLAUDE = regex(r"claude-[a-z]+-\d+(?:-\d{1,2})?(?!\d)")  # inside model names of clouds


def body(request: Request, gaps: Collection[str] = ()) -> dict[str, Any]:
    """Return the body of POST /v1/messages for a server with these gaps."""
    return WIRE.fitted_body(request, gaps)


def _whole(request: Request, parameters: Mapping[str, Any]) -> dict[str, Any]:
    messages = [
        _without_signatures(message) if any(map(_is_signed, message["content"])) else message
        for message in request.messages
    ]
    out = {**parameters, "messages": messages}
    if request.system:
        out["system"] = request.system
    if request.tools:
        out["tools"] = request.tools
    # Older logs have requests without an answer (purpose WARMING), sent without `stream`.
    return {**out, "stream": True} if parameters["max_tokens"] else out


def parameters(request: Request) -> dict[str, Any]:
    """Return the parameters of a body without the conversation."""
    provider, name = resolve_model(request.model)
    # Vertex has the model in the path, and the API version in the body.
    way = {"anthropic_version": VERSION} if provider.name == VERTEX else {"model": name}
    out: dict[str, Any] = {**way, "max_tokens": request.max_tokens}
    if takes_thinking(request.model, request.effort):
        if request.thinking:
            out["thinking"] = {"type": "adaptive"}
        if request.effort is not None:
            out["output_config"] = {"effort": request.effort}
    if request.compaction is not None:
        out[COMPACTION] = {"type": "summarize", "instructions": request.compaction}
    return out


def _is_signed(block: Block) -> bool:
    """Return True if a block is a tool call with a signature from another protocol."""
    return block["type"] == "tool_use" and "signature" in block


def _without_signatures(message: dict[str, Any]) -> dict[str, Any]:
    kept = [
        {name: value for name, value in block.items() if name != "signature"}
        if _is_signed(block)
        else block
        for block in message["content"]
    ]
    return {**message, "content": kept}


def betas(request: Request, body: Mapping[str, Any]) -> list[str]:
    """Return the names of the API betas that the body of a request needs."""
    needed = [*LATE_TOOLS_BETAS] if adds_tools(request) else []
    if COMPACTION in body or begins_with_block(body["messages"]):
        needed.append(COMPACTION_BETA)
    return needed


def _headers(request: Request, body: Mapping[str, Any]) -> dict[str, str]:
    needed = betas(request, body)
    return {"anthropic-beta": ",".join(needed)} if needed else {}


def takes_thinking(model: str, effort: str | None = None) -> bool:
    """Return True if a model supports adaptive thinking and effort. If unknown, return True only if
    an effort is set.
    """
    row = known_model(model)
    if (row is None or row.thinking is None) and (found := _CLAUDE.search(model)):
        row = known_model(found[0]) or row
    return effort is not None if row is None or row.thinking is None else row.thinking


WIRE = wire.Wire(
    name=MESSAGES,
    title="Messages API",
    path="/v1/messages",
    models_path="/v1/models",
    gaps=GAPS,
    parameters=parameters,
    body=_whole,
    draft=draft_of,
    headers=_headers,
    takes_unstreamed=False,
)
