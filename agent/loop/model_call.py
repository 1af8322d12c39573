"""One call of the model: stream the reply and make its entry for the log."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

from ..context import tokens
from ..context.request import Request
from ..context.view import INTERRUPTED, Item
from ..errors import ModelError
from ..events import (
    Accepted,
    Delta,
    Emit,
    Retrying,
    TextDelta,
    ThinkingDelta,
    ToolDraft,
    ToolFinished,
)
from ..models.base import Model, Reply, ReplyStream
from ..models.catalog import cost
from ..session.entries import PLAN, SKILL, SKILL_LIST, Assistant, Block, Usage
from ..session.searches import FOUND

BROKEN_ATTEMPT = "attempt"  # the purpose of a call that broke off: only its price counts


@dataclass(slots=True)
class _Partial:
    """The part of a reply that has arrived."""

    usage: Usage = field(default_factory=Usage)  # as the server gave it with the first event
    sent: Mapping[str, Any] = field(default_factory=dict)  # how the request was sent
    text: str = ""
    thinking: str = ""
    arguments: int = 0  # characters of the calls' arguments
    searches: int = 0  # of the web, that have ended
    _draft: int = 0  # of those, in the newest call

    def add(self, delta: Delta) -> None:
        if isinstance(delta, Accepted):
            self.usage, self.sent = Usage.from_json(delta.usage), delta.sent
        elif isinstance(delta, TextDelta):
            self.text += delta.text
        elif isinstance(delta, ThinkingDelta):
            self.thinking += delta.text
        elif isinstance(delta, ToolDraft):
            is_same_call = delta.size >= self._draft
            self.arguments += delta.size - (self._draft if is_same_call else 0)
            self._draft = delta.size
        elif isinstance(delta, ToolFinished):
            self.searches += not delta.is_error

    def reply(self, content: list[Block], model: str, ratio: float) -> Reply:
        """Return the reply as far as it has arrived. The server counts the output only at its end,
        so the tokens are estimated, at `ratio` real tokens per estimated token."""
        said = tokens.estimate(self.text) + tokens.estimate(self.thinking)
        said += tokens.estimate_length(self.arguments)
        usage = replace(
            self.usage,
            output=max(self.usage.output, round(ratio * said)),
            web_searches=max(self.usage.web_searches, self.searches),
        )
        return Reply(content, INTERRUPTED, usage, model, sent=self.sent)


async def stream_reply(
    model: Model,
    request: Request,
    emit: Emit,
    keep: Callable[[Assistant], None],
    purpose: str,
    *,
    ratio: float,
    clean: Callable[[ReplyStream], ReplyStream] = lambda stream: stream,
) -> Reply:
    """Ask the model, pass its deltas to `emit`, and return its reply. `clean` filters both.

    `keep` gets the entry of the reply at once; after a cancellation, an entry of what had arrived.
    If an attempt breaks off after the server took the request, `keep` gets an entry with its cost.
    `ratio` is the number of real tokens per estimated token. Raises ModelError.
    """
    partial = _Partial()

    def broken_off() -> None:
        attempt = replace(partial.reply([], model.id, ratio), stop_reason=None)
        if attempt.usage.prompt:
            keep(reply_entry(attempt, request, BROKEN_ATTEMPT))

    try:
        async with aclosing(clean(model.stream(request))) as stream:
            async for delta in stream:
                if isinstance(delta, Reply):
                    keep(reply_entry(delta, request, purpose))
                    return delta
                partial.add(delta)
                if isinstance(delta, Retrying):
                    broken_off()
                    partial = _Partial()
                emit(delta)
    except asyncio.CancelledError:
        content = [{"type": "text", "text": partial.text}] if partial.text else []
        cut = partial.reply(content, model.id, ratio)
        if content or cut.usage.prompt:
            keep(reply_entry(cut, request, purpose))
        raise
    except ModelError:
        broken_off()
        raise
    raise ModelError("the model ended its stream without a reply", hint="Try again.")


def reply_entry(reply: Reply, request: Request, purpose: str) -> Assistant:
    """Return the entry of a reply, with the parameters and the digest of its request."""
    dollars = cost(reply.model, reply.usage)
    if dollars is None:  # a server may answer under another name
        dollars = cost(request.model, reply.usage)
    return Assistant(
        content=reply.content,
        usage=reply.usage.to_json(),
        stop_reason=reply.stop_reason,
        model=reply.model,
        purpose=purpose,
        message_id=reply.message_id,
        cost_usd=dollars,
        broken=reply.broken,
        request={**request.origin, **reply.sent} if reply.sent else {},
    )


def text_of(blocks: list[dict[str, Any]]) -> str:
    """Return the text of a reply. If the reply searched the web, return the text after the last
    result, unless that is empty."""
    searched = [n for n, block in enumerate(blocks, 1) if block.get("type") == FOUND]
    behind = _joined(blocks[searched[-1] :]) if searched else ""
    return behind if behind.strip() else _joined(blocks)


def _joined(blocks: list[dict[str, Any]]) -> str:
    return "".join(str(b.get("text", "")) for b in blocks if b.get("type") == "text")


def last_text(items: Sequence[Item]) -> str:
    """Return the newest text of the model since the last message of the user."""
    for item in reversed(items):
        if item.role == "assistant" and (text := text_of(item.blocks)):
            return text
        words = item.role == "user" and item.source not in ("notice", PLAN, SKILL, SKILL_LIST)
        if words and any(b.get("type") == "text" for b in item.blocks):
            break
    return ""
