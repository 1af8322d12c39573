"""A model's reply without secrets that are known: a server may say back the key that it was sent.

What streams is filtered too, before anybody sees it: what may be the beginning of a secret waits
for the rest of it, also over the borders of deltas.
"""

from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace

from ..events import Retrying, TextDelta, ThinkingDelta, ToolFinished, ToolStarted
from ..models.base import Reply, ReplyStream
from .redaction import Redaction, SecretFilter


def reply_filter(redaction: Redaction) -> Callable[[ReplyStream], ReplyStream]:
    """Return a function that takes known secrets out of a stream of deltas and the reply."""
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
    """The text of one kind, filtered; a `Sink` for what comes through."""

    def __init__(self, redaction: Redaction) -> None:
        self._redaction = redaction
        self._out = bytearray()
        self._begin()

    def _begin(self) -> None:
        known = tuple(self._redaction.known)
        self._filter = SecretFilter(self, self._redaction.without_known, known, whole_lines=False)

    def add(self, text: str) -> str:
        """Return what is certain of all that was added and not returned."""
        self._filter.feed(text.encode("utf-8", "surrogatepass"))
        return self._take()

    def rest(self) -> str:
        """Return what was held back, since nothing follows on it."""
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
