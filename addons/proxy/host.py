"""The compaction engine's host in the proxy, for a conversation that a client resends with each
request.

Some models bind their thinking to all earlier content. Such a model refuses a request if content
before a thinking block has changed, unless that thinking is removed. (Anthropic, "Extended
thinking", block binding.)
"""

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ...api.base import ModelError, PromptTooLong, regex
from ...api.context import (
    BareHost,
    CompactionPurpose,
    LearnedWindow,
    Request,
    Window,
    learn_from_refusal,
    measure,
    truncate,
)
from ...api.models import CacheTerms, Reply, cost
from ...api.record import Assistant, Entry, Log
from .bodies.base import ServerReply

# First version of each family with bound thinking.
_SINCE = {"fable": (5, 1), "mythos": (5, 1), "opus": (5, 5), "sonnet": (5, 5), "haiku": (5, 5)}
_NAME = regex(r"(?P<family>[a-z]+)-(?P<major>\d{1,2})(?:-(?P<minor>\d{1,2}))?(?!\d)")


def binds_thinking(model: str) -> bool:
    """Return True for a model with bound thinking."""
    for found in _NAME.finditer(model.rpartition("claude-")[2]):
        version = (int(found["major"]), int(found["minor"] or 0))
        if since := _SINCE.get(found["family"]):
            return version >= since
    return False


# Asks the client's model, with the last sent conversation or only with given texts.
AskClient = Callable[["EngineQuestion"], Awaitable[ServerReply]]
NO_CACHE = CacheTerms(1.0, 1.0, 0.0)


class EngineQuestion:
    """A request of the engine, independent of the protocol."""

    def __init__(self, asked: str, texts: Sequence[str], max_tokens: int) -> None:
        """If `texts` is not empty, send only these texts. Otherwise append `asked` to the
        conversation.
        """
        self.asked, self.texts, self.max_tokens = asked, texts, max_tokens


class ProxyHost(BareHost):
    """See `compaction.host.EngineHost`."""

    def __init__(self, log: Log, model_id: str, window_tokens: int, *, summaries: bool) -> None:
        super().__init__(log, model_id, window_tokens)
        self.summaries = summaries
        self.ask: AskClient | None = None  # set by the newest request
        self.learned = LearnedWindow()
        self.is_cached = True  # True if the server caches the client's requests
        self.last_call: float | None = None  # Unix time

    def record(self, entry: Entry) -> Entry:
        """Append an entry, then release the log so that other processes can write, for example to
        undo.
        """
        try:
            return super().record(entry)
        finally:
            self.log.release()

    def current_window(self) -> Window:
        return measure(self.view, self.learned.limit(self.window_tokens))

    def cache_terms(self) -> CacheTerms:
        return super().cache_terms() if self.is_cached else NO_CACHE

    def cache_is_cold(self) -> bool:
        life = self.cache_terms().life
        return self.last_call is None or time.time() - self.last_call > life

    def learn(self, refusal: PromptTooLong) -> None:
        """Learn the size of the window from a refusal."""
        window = self.current_window()
        size, factor = learn_from_refusal(window, refusal.tokens, refusal.maximum)
        self.learned.size = round((size or window.size) / factor)

    def file_sha256(self, path: str) -> str | None:
        return truncate.file_sha256(path)

    async def before_summary(self, event: dict[str, Any]) -> str | None:
        return None if self.summaries else "summaries are switched off"

    async def ask_model(self, request: Request, purpose: CompactionPurpose) -> Reply:
        """Ask the client's model with the client's key, and record the reply. Raises ModelError."""
        if self.ask is None:
            raise ModelError("the client has not sent a request yet, so no key is known")
        texts: list[str] = []
        if not request.system or "span" in request.origin:
            texts = [b["text"] for m in request.messages for b in m["content"] if "text" in b]
        asked = str(request.origin.get("asked", ""))
        found = await self.ask(EngineQuestion(asked, texts, request.max_tokens))
        self.record(
            Assistant(
                content=found.content,
                usage=found.usage.to_json(),
                stop_reason=found.stop_reason,
                model=self.model_id,
                purpose=purpose,
                message_id=found.message_id,
                cost_usd=cost(self.model_id, found.usage),
            )
        )
        return Reply(found.content, found.stop_reason, found.usage, self.model_id, found.message_id)
