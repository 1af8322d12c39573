"""The JSON body of a Messages API request, and the parameters that the log stores."""

from collections.abc import Collection, Mapping
from typing import Any

from ...context.items import COMPACTION, begins_with_block
from ...context.request import Request, adds_tools
from ...lazy import regex
from ...session.entries import Block
from .. import wire
from ..catalog import known_model
from ..providers import MESSAGES, VERTEX, resolve_model
from .draft import draft_of
from .gaps import GAPS

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
