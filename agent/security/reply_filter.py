"""Remove known secrets from a model's reply, since a server may return the API key it received.

Streamed text is filtered before it is displayed. A possible beginning of a secret is held back
until the rest arrives, even across deltas.
"""

from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace

from ..events import Retrying, TextDelta, ThinkingDelta, ToolFinished, ToolStarted
from ..models.base import Reply, ReplyStream
from .redaction import Redaction, SecretFilter


def reply_filter(redaction: Redaction) -> Callable[[ReplyStream], ReplyStream]:
    """Return a function that removes known secrets from a stream of deltas and the reply."""
    return lambda stream: _filtered(stream, redaction) if redaction.known else stream


async def _filtered(stream: ReplyStream, redaction: Redaction) -> ReplyStream:
    text, thinking = _Held(redaction), _Held(redaction)
    async with aclosing(stream):
        async for delta in stream:
            if isinstance(delta, Retrying):
                text, thinking = _Held(redaction), _Held(redaction)
            if not isinstance(delta, ThinkingDelta) and (rest := thinking.rest()):
                yield ThinkingDelta(rest)
            if not isinstance(delta, TextDelta) and (rest := text.rest()):
                yield TextDelta(rest)
            if isinstance(delta, TextDelta):
                if shown := text.add(delta.text):
                    yield TextDelta(shown)
            elif isinstance(delta, ThinkingDelta):
                if shown := thinking.add(delta.text):
                    yield ThinkingDelta(shown)
            elif isinstance(delta, ToolStarted):
                title = redaction.without_known(delta.title)
                yield replace(delta, title=title, input={"query": title})
            elif isinstance(delta, ToolFinished):
                title, said = map(redaction.without_known, (delta.title, delta.text))
                yield replace(delta, title=title, text=said)
            elif isinstance(delta, Reply):
                content = redaction.clean_blocks(delta.content)
                broken = {id: redaction.without_known(raw) for id, raw in delta.broken.items()}
                yield replace(delta, content=content, broken=broken)
            else:
                yield delta


class _Held:
    """Filtered text of one kind of delta, and a `Sink` for the filter's output."""

    def __init__(self, redaction: Redaction) -> None:
        self._redaction = redaction
        self._out = bytearray()
        self._begin()

    def _begin(self) -> None:
        known = tuple(self._redaction.known)
        self._filter = SecretFilter(self, self._redaction.without_known, known, whole_lines=False)

    def add(self, text: str) -> str:
        """Add text. Return the new text that is certain to contain no part of a secret."""
        self._filter.feed(text.encode("utf-8", "surrogatepass"))
        return self._take()

    def rest(self) -> str:
        """Return the text held back, since no more text follows."""
        self._filter.close()
        self._begin()
        return self._take()

    def _take(self) -> str:
        out = self._out.decode("utf-8", "surrogatepass")
        self._out.clear()
        return out

    def feed(self, data: bytes) -> None:
        self._out += data

    def close(self) -> None:
        pass
