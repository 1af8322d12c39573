"""A request as the JSON body of the Messages API, the same for every model of this package."""

from typing import Any

from ..context.wire import Request
from .base import known

_OLDER = ("claude-haiku-4-5", "claude-sonnet-4-5", "claude-opus-4-5")


def body(request: Request) -> dict[str, Any]:
    """The body of POST /v1/messages, without `stream`. Shares its blocks with the request."""
    out: dict[str, Any] = {
        "model": request.model,
        "max_tokens": request.max_tokens,
        "messages": request.messages,
    }
    if request.system:
        out["system"] = request.system
    if request.tools:
        out["tools"] = request.tools
    if thinks(request.model, request.effort):
        if request.thinking:
            out["thinking"] = {"type": "adaptive"}
        if request.effort is not None:
            out["output_config"] = {"effort": request.effort}
    return out


def thinks(model: str, effort: str | None = None) -> bool:
    """Whether a model takes adaptive thinking and effort. Of a model that is not in the table,
    which may stand behind any server, it is believed only when someone set an effort."""
    if known(model) is None:
        return effort is not None
    return not model.startswith(_OLDER)
