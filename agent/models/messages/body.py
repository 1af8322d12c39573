"""The JSON body of a request to the Messages API, and what the log keeps of it."""

import hashlib
import json
from collections.abc import Collection, Mapping
from typing import Any

from ...context.compaction_block import COMPACTION, begins_with_block
from ...context.request import Request, adds_tools
from ..catalog import MESSAGES, known_model
from .gaps import fitted

# Betas for tools that a system message adds: only sessions with older logs need them.
LATE_TOOLS_BETAS = ("mid-conversation-tool-changes-2026-07-01", "inline-tools-2026-09-15")
COMPACTION_BETA = "compact-2026-09-04"


def body(
    request: Request, gaps: Collection[str] = (), given: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the body of POST /v1/messages, without `stream`, for a server with these gaps. The
    parameters are those of the request, unless others are `given`. It shares the request's
    blocks."""
    out = {**(parameters(request) if given is None else given)}
    out["messages"] = [*map(_without_signatures, request.messages)]
    if request.system:
        out["system"] = request.system
    if request.tools:
        out["tools"] = request.tools
    return fitted(out, gaps) if gaps else out


def parameters(request: Request) -> dict[str, Any]:
    """Return what a body has beside the words: the model, and how it is to answer."""
    out: dict[str, Any] = {"model": request.model, "max_tokens": request.max_tokens}
    if takes_thinking(request.model, request.effort):
        if request.thinking:
            out["thinking"] = {"type": "adaptive"}
        if request.effort is not None:
            out["output_config"] = {"effort": request.effort}
    if request.compaction is not None:
        out[COMPACTION] = {"type": "summarize", "instructions": request.compaction}
    return out


def _without_signatures(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message without the signatures that another protocol gave its calls."""
    content = message["content"]
    if not any(block["type"] == "tool_use" and "signature" in block for block in content):
        return message
    kept = [
        {name: value for name, value in block.items() if name != "signature"}
        if block["type"] == "tool_use"
        else block
        for block in content
    ]
    return {**message, "content": kept}


def encode(body: Mapping[str, Any]) -> bytes:
    """Return a body as the bytes that the SDK sends. Raises ValueError for what is not JSON."""
    # Older logs have requests that ask for no answer (purpose WARMING): they went without `stream`.
    sent = {**body, "stream": True} if body["max_tokens"] else body
    whole = dict(sorted(sent.items()))
    text = json.dumps(whole, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode()


def betas(request: Request, body: Mapping[str, Any]) -> list[str]:
    """Return the names of the API's betas that the body of a request needs."""
    needed = [*LATE_TOOLS_BETAS] if adds_tools(request) else []
    if COMPACTION in body or begins_with_block(body["messages"]):
        needed.append(COMPACTION_BETA)
    return needed


def sent_of(request: Request, data: bytes, gaps: Collection[str] = ()) -> dict[str, Any]:
    """Return how a request was sent, as the log keeps it: `data` are its bytes."""
    sent = {
        "protocol": MESSAGES,
        "parameters": parameters(request),
        "sha256": hashlib.sha256(data).hexdigest(),
    }
    return {**sent, "gaps": [*gaps]} if gaps else sent


def rebuild(request: Request, sent: Mapping[str, Any]) -> bytes:
    """Return the bytes of a request that was sent so. See `base.Provider`."""
    return encode(body(request, tuple(sent.get("gaps", ())), {**sent["parameters"]}))


def takes_thinking(model: str, effort: str | None = None) -> bool:
    """Return whether a model takes adaptive thinking and an effort. A model that is not in the
    table may stand behind any server: then only if an effort was set."""
    row = known_model(model)
    return effort is not None if row is None else row.thinking
