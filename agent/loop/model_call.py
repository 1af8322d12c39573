"""The log entry of one model call, also for a partial reply."""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from ..context import tokens
from ..context.items import Item
from ..context.request import Request
from ..context.view import INTERRUPTED, REPEATED
from ..events import Accepted, Delta, TextDelta, ThinkingDelta, ToolDraft, ToolFinished
from ..lazy import dataclass
from ..models.base import Reply, text_of
from ..models.catalog import cost
from ..session.entries import HOOK, MEMORY, PLAN, SKILL, SKILL_LIST, Assistant, Block, Usage

BROKEN_ATTEMPT = "attempt"  # purpose of a failed call: only its cost counts


@dataclass(slots=True)
class PartialReply:
    """The part of a reply that has arrived so far."""

    model: str
    ratio: float  # real tokens per estimated token
    usage: Usage = field(default_factory=Usage)  # from the server's first event
    sent: Mapping[str, Any] = field(default_factory=dict)  # how the request was sent
    text: str = ""
    thinking: str = ""
    arguments: int = 0  # characters of the calls' arguments
    searches: int = 0  # finished web searches
    _draft: int = 0  # characters of arguments in the newest call

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

    def reply(self, text: str) -> Reply:
        """Return the partial reply, with this text. Servers count output only at the end, so its
        tokens are estimated.
        """
        said = tokens.estimate(self.text) + tokens.estimate(self.thinking)
        said += tokens.estimate_length(self.arguments)
        usage = replace(
            self.usage,
            output=max(self.usage.output, round(self.ratio * said)),
            web_searches=max(self.usage.web_searches, self.searches),
        )
        content: list[Block] = [{"type": "text", "text": text}] if text else []
        return Reply(content, INTERRUPTED, usage, self.model, sent=self.sent)

    def stopped(self, repeated: str) -> Reply:
        """Return the reply that was stopped because it repeated a text. The repeated text is kept
        once.
        """
        in_text = self.text.endswith(repeated)
        begin = _repetition_start(self.text if in_text else self.thinking, len(repeated))
        end = begin + len(repeated)
        reply = self.reply(self.text[:end] if in_text else self.text)
        repeats = (self.text if in_text else self.thinking)[begin:end]
        return replace(reply, stop_reason=REPEATED, repeats=repeats)


def _repetition_start(text: str, period: int) -> int:
    """Return the index where the repetition at the end of a text begins."""
    start = len(text) - period
    while start >= period and text[start - period : start] == text[start : start + period]:
        start -= period
    while start and text[start - 1] == text[start - 1 + period]:
        start -= 1
    return start


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
        dialect=dict(reply.dialect),
        request={**request.origin, **reply.sent} if reply.sent else {},
    )


_NOT_FROM_USER = ("notice", PLAN, SKILL, SKILL_LIST, MEMORY, HOOK)  # sources that are not the user


def last_text(items: Sequence[Item]) -> str:
    """Return the model's newest text since the last user message; "" if there is none."""
    for item in reversed(items):
        if item.role == "assistant" and (text := text_of(item.blocks)):
            return text
        words = item.role == "user" and item.source not in _NOT_FROM_USER
        if words and any(b.get("type") == "text" for b in item.blocks):
            break
    return ""
