"""Replies: hearing one out, and what one without a call means: an answer, something unfinished, or
the end of a turn."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Any

from .context.view import Item
from .context.wire import Request
from .errors import CtxagentError, LimitReached, ModelError
from .events import Accepted, Emit, Retrying, TextDelta
from .model.base import Model, Reply, Usage, cost
from .model.body import parameters
from .record.entries import Assistant

PATIENCE = 3  # replies in a row that are neither an answer nor a call
ATTEMPT = "attempt"  # the purpose of a call that broke off: nothing of it counts but its price

CUT = "Your reply was cut off at the output limit of {limit:,} tokens. Go on exactly where it \
stopped. If you were writing a file, write it in smaller pieces."
EMPTY = "Your reply was empty. Go on with the task; if it is done, say what you did."


async def heard(
    model: Model, request: Request, tell: Emit, keep: Callable[[Assistant], None], purpose: str
) -> Reply:
    """The reply to a request, its deltas told as they come; `keep` is given its entry at once or,
    when this is cancelled, that of what there was of it. Of an attempt that broke off after the
    server had taken the request, it is given what that has cost."""
    usage, said, sent = Usage(), "", ""

    def broken_off() -> None:
        if usage.prompt:
            attempt = Reply([], None, usage, model.id, sent=sent)
            keep(entry_of(attempt, request, ATTEMPT))

    try:
        async with aclosing(model.stream(request)) as stream:
            async for delta in stream:
                if isinstance(delta, Reply):
                    keep(entry_of(delta, request, purpose))
                    return delta
                if isinstance(delta, Accepted):
                    usage, sent = Usage.from_json(delta.usage), delta.sent
                elif isinstance(delta, TextDelta):
                    said += delta.text
                elif isinstance(delta, Retrying):
                    broken_off()
                    usage, said = Usage(), ""
                tell(delta)
    except asyncio.CancelledError:
        if said or usage.prompt:
            content = [{"type": "text", "text": said}] if said else []
            cut = Reply(content, "interrupted", usage, model.id, sent=sent)
            keep(entry_of(cut, request, purpose))
        raise
    except ModelError:
        broken_off()
        raise
    raise ModelError("the model ended its stream without a reply", hint="Try again.")


def entry_of(reply: Reply, request: Request, purpose: str) -> Assistant:
    """The entry of a reply, with what was sent for it."""
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


def missing(reply: Reply) -> str | None:
    """What a reply without calls still lacks: None when it is an answer, else words that ask for
    the rest, or "" to call again as it stands."""
    if reply.stop_reason == "pause_turn":
        return ""
    if reply.stop_reason == "max_tokens":
        return CUT.format(limit=reply.usage.output)
    return None if text_of(reply.content).strip() else EMPTY


def check_ending(reply: Reply) -> None:
    """Raises for replies that end the turn whatever else is in them: their calls are not run."""
    if reply.stop_reason == "refusal":
        raise CtxagentError(
            "the model declined to answer (stop reason: refusal)",
            hint="Its reply is in the log but not in the context. Say it in other words.",
        )
    if reply.stop_reason == "model_context_window_exceeded":
        raise LimitReached(
            "the model's context window is full",
            limit="context",
            hint="Start a fresh session; everything said stays in the log.",
        )


def text_of(blocks: list[dict[str, Any]]) -> str:
    return "".join(str(b.get("text", "")) for b in blocks if b.get("type") == "text")


def last_text(items: Sequence[Item]) -> str:
    """The newest words of the model since the last ones that were said to it."""
    for item in reversed(items):
        if item.role == "assistant" and (text := text_of(item.blocks)):
            return text
        words = item.role == "user" and item.source != "notice"
        if words and any(b.get("type") == "text" for b in item.blocks):
            break
    return ""


def gave_up(reply: Reply) -> CtxagentError:
    if reply.stop_reason == "max_tokens":
        return LimitReached(
            f"{PATIENCE} replies in a row were cut off at the output limit",
            limit="output",
            hint="Raise --max-tokens or ask for less at a time.",
        )
    what = "paused" if reply.stop_reason == "pause_turn" else "were empty"
    return CtxagentError(f"{PATIENCE} replies in a row {what}", hint="Say what to do next.")
