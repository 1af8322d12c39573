"""One call of the model: stream its reply, and make the entry that the log keeps of it."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Any

from ..context.request import Request
from ..context.view import Item
from ..errors import ModelError
from ..events import Accepted, Emit, Retrying, TextDelta
from ..models.base import Model, Reply
from ..models.catalog import cost
from ..models.request_body import parameters
from ..session.entries import Assistant, Usage

BROKEN_ATTEMPT = "attempt"  # the purpose of a call that broke off: only its price counts


async def stream_reply(
    model: Model, request: Request, emit: Emit, keep: Callable[[Assistant], None], purpose: str
) -> Reply:
    """Ask the model, pass its deltas to `emit`, and return its reply.

    `keep` is given the reply's entry at once, or, when cancelled, an entry of what had arrived. For
    an attempt that broke off after the server had taken the request, `keep` is given an entry with
    what that has cost. Raises ModelError.
    """
    usage, text, sent = Usage(), "", ""

    def broken_off() -> None:
        if usage.prompt:
            attempt = Reply([], None, usage, model.id, sent=sent)
            keep(reply_entry(attempt, request, BROKEN_ATTEMPT))

    try:
        async with aclosing(model.stream(request)) as stream:
            async for delta in stream:
                if isinstance(delta, Reply):
                    keep(reply_entry(delta, request, purpose))
                    return delta
                if isinstance(delta, Accepted):
                    usage, sent = Usage.from_json(delta.usage), delta.sent
                elif isinstance(delta, TextDelta):
                    text += delta.text
                elif isinstance(delta, Retrying):
                    broken_off()
                    usage, text = Usage(), ""
                emit(delta)
    except asyncio.CancelledError:
        if text or usage.prompt:
            content = [{"type": "text", "text": text}] if text else []
            cut = Reply(content, "interrupted", usage, model.id, sent=sent)
            keep(reply_entry(cut, request, purpose))
        raise
    except ModelError:
        broken_off()
        raise
    raise ModelError("the model ended its stream without a reply", hint="Try again.")


def reply_entry(reply: Reply, request: Request, purpose: str) -> Assistant:
    """Return the entry of a reply, with what was sent for it."""
    dollars = cost(reply.model, reply.usage)
    if dollars is None:  # a server may answer under another name
        dollars = cost(request.model, reply.usage)
    asked = {**request.origin, "parameters": parameters(request), "sha256": reply.sent}
    return Assistant(
        content=reply.content,
        usage=reply.usage.to_json(),
        stop_reason=reply.stop_reason,
        model=reply.model,
        purpose=purpose,
        message_id=reply.message_id,
        cost_usd=dollars,
        broken=reply.broken,
        request=asked if reply.sent else {},
    )


def text_of(blocks: list[dict[str, Any]]) -> str:
    return "".join(str(b.get("text", "")) for b in blocks if b.get("type") == "text")


def last_text(items: Sequence[Item]) -> str:
    """Return the model's newest words since the person last text something."""
    for item in reversed(items):
        if item.role == "assistant" and (text := text_of(item.blocks)):
            return text
        words = item.role == "user" and item.source != "notice"
        if words and any(b.get("type") == "text" for b in item.blocks):
            break
    return ""
