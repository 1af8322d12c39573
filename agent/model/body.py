"""A request as the JSON body of the Messages API, the same for every model of this package."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from ..context.wire import Request
from .base import known

_OLDER = ("claude-haiku-4-5", "claude-sonnet-4-5", "claude-opus-4-5")


def body(request: Request) -> dict[str, Any]:
    """The body of POST /v1/messages, without `stream`. Shares its blocks with the request."""
    return bodied(request, parameters(request))


def parameters(request: Request) -> dict[str, Any]:
    """What a body has beside the words: the model, and how it is to answer."""
    out: dict[str, Any] = {"model": request.model, "max_tokens": request.max_tokens}
    if thinks(request.model, request.effort):
        if request.thinking:
            out["thinking"] = {"type": "adaptive"}
        if request.effort is not None:
            out["output_config"] = {"effort": request.effort}
    return out


def bodied(request: Request, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The body with these parameters, whatever those of the request would be."""
    out = {**chosen, "messages": request.messages}
    if request.system:
        out["system"] = request.system
    if request.tools:
        out["tools"] = request.tools
    return out


def encoded(body: Mapping[str, Any]) -> bytes:
    """A body as the bytes that go out: as the SDK writes it, which a test holds. Raises ValueError
    for what is no JSON."""
    streamed = dict(sorted({**body, "stream": True}.items()))
    text = json.dumps(streamed, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode()


def digest(data: bytes) -> str:
    """What the log keeps of the bytes of a request."""
    return hashlib.sha256(data).hexdigest()


def thinks(model: str, effort: str | None = None) -> bool:
    """Whether a model takes adaptive thinking and effort. Of a model that is not in the table,
    which may stand behind any server, it is believed only when someone set an effort."""
    if known(model) is None:
        return effort is not None
    return not model.startswith(_OLDER)
