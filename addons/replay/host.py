"""The host of the compaction engine in a replay.

It writes a real log to its own folder and folds it into a real view and ledger. Summaries come from
the ledger unless a model is given to write them. Files are assumed to be as the recorded calls left
them.
"""

from contextlib import aclosing
from pathlib import Path

from ...api.base import ModelError
from ...api.context import (
    BareHost,
    CompactionPurpose,
    Request,
    document_from_ledger,
    max_summary_tokens,
    shortened_to,
    tokens,
)
from ...api.context import render_summary as render
from ...api.models import Model, Reply
from ...api.record import Log, Usage
from ...api.session import Compacted, Event
from .cache_prices import CacheBill, PromptCache, prompt_of


class ReplayHost(BareHost):
    """One replayed conversation, as the compaction engine sees it."""

    def __init__(
        self, path: Path, model_id: str, window_tokens: int, writer: Model | None = None
    ) -> None:
        """`path` is the log to write; `writer` is the model that writes summaries."""
        super().__init__(Log(path), model_id, window_tokens)
        self.writer = writer
        self.cache = PromptCache(self.cache_terms().life)
        self.clock: float | None = None  # the time in the recording, in seconds
        # Compactions of the engine and its model calls; the player collects and clears them.
        self.acts: list[Compacted] = []
        self.engine_calls: list[tuple[CacheBill, Usage]] = []
        self.file_digests: dict[str, str] = {}  # sha256 by path

    def emit(self, event: Event) -> None:
        if isinstance(event, Compacted):
            self.acts.append(event)

    def sync(self) -> None:
        """Do nothing: the log of a replay is deleted at the end."""

    def cache_is_cold(self) -> bool:
        return self.cache.is_cold(self.clock)

    def file_sha256(self, path: str) -> str | None:
        return self.file_digests.get(path)

    async def ask_model(self, request: Request, purpose: CompactionPurpose) -> Reply:
        """Answer a request from the engine and record its bill."""
        bill = self.cache.charge(prompt_of(request), self.clock)
        if self.writer is None:
            return self._from_ledger(bill)
        reply = await _whole_reply(self.writer, request)
        self.engine_calls.append((bill, reply.usage))
        return reply

    def _from_ledger(self, bill: CacheBill) -> Reply:
        """Return a summary made from the ledger, within the size limit for a model's summary."""
        document = document_from_ledger(self.ledger, None)
        text = render(shortened_to(document, max_summary_tokens(self.current_window())))
        usage = bill.usage(tokens.estimate(text))
        self.engine_calls.append((bill, usage))
        return Reply([{"type": "text", "text": text}], "end_turn", usage, self.model_id)


async def _whole_reply(model: Model, request: Request) -> Reply:
    async with aclosing(model.stream(request)) as stream:
        async for delta in stream:
            if isinstance(delta, Reply):
                return delta
    raise ModelError("the model ended its stream without a reply", hint="Try again.")
