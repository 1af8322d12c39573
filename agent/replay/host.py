"""The compaction engine's host in a replay: a conversation without an agent.

It has a real log in a folder of its own, folded into a real view and ledger, but runs no tools and
asks nobody. Summaries are made from the ledger unless a model is given that writes them. Files are
taken to be as the recorded calls left them.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...tools.system.kept_text import KeptText
from ..compaction.document import render
from ..compaction.host import CompactionPurpose
from ..compaction.preserve import PreservedSection
from ..compaction.summary.merge import document_from_ledger
from ..compaction.summary.request import max_summary_tokens
from ..compaction.summary.shorten import shortened_to
from ..context import tokens
from ..context.request import Request
from ..context.view import View, fold
from ..context.window import Window, measure
from ..errors import ModelError
from ..events import Compacted, Event
from ..models.base import Model, Reply
from ..models.catalog import CacheTerms, cache_terms, cost, price_factor
from ..session.entries import Checkpoint, Entry, Revert, Usage
from ..session.ledger import Ledger
from ..session.log import Log
from ..session.store import find_text
from .cache_prices import CacheBill, PromptCache, prompt_of


@dataclass
class ReplayHost:
    """One replayed conversation, as the compaction engine sees it."""

    path: Path  # of the log
    model_id: str
    window_tokens: int
    writer: Model | None = None  # writes the summaries
    view: View = field(default_factory=View)
    ledger: Ledger = field(default_factory=Ledger)
    cache: PromptCache = field(init=False)
    effort: str | None = None
    clock: float | None = None  # the time in the recording, in seconds
    # What the engine did, and the calls of the model it made for that, until the player takes them.
    acts: list[Compacted] = field(default_factory=list)
    engine_calls: list[tuple[CacheBill, Usage]] = field(default_factory=list)
    file_digests: dict[str, str] = field(default_factory=dict)  # sha256 by path

    def __post_init__(self) -> None:
        self.log, self.cache = Log(self.path), PromptCache(self.cache_terms().life)

    @property
    def folder(self) -> Path:
        return self.path.parent

    def emit(self, event: Event) -> None:
        if isinstance(event, Compacted):
            self.acts.append(event)

    def record(self, entry: Entry) -> Entry:
        recorded = self.log.append(entry)
        if not isinstance(recorded, Revert):
            self.view.add(recorded)
        self.ledger.add(recorded)
        return recorded

    def record_model(self) -> None:
        """Do nothing: a replay has one model."""

    def rebuild_view(self) -> None:
        self.view = fold(self.log.entries())

    def sync(self) -> None:
        """Do nothing: the log of a replay is deleted in the end."""

    def current_window(self) -> Window:
        return measure(self.view, self.window_tokens)

    def takes_images(self) -> bool:
        return True

    def has_compaction(self) -> bool:
        return False  # nobody is asked, or a writer of words

    def has_one_slot(self) -> bool:
        return False

    def cache_is_cold(self) -> bool:
        return self.cache.is_cold(self.clock)

    def cache_terms(self) -> CacheTerms:
        return cache_terms(self.model_id)

    def price_factor(self, prompt: int) -> float:
        return price_factor(self.model_id, prompt)

    def call_cost_usd(self, cached_tokens: int, output_tokens: int) -> float | None:
        return cost(self.model_id, Usage(cache_read=cached_tokens, output=output_tokens))

    def file_sha256(self, path: str) -> str | None:
        return self.file_digests.get(path)

    def preserved_sections(self) -> Sequence[PreservedSection]:
        return ()

    def recall(self, ref: int) -> KeptText | None:
        return find_text(self.path, ref)

    def more_masks(self) -> Iterator[tuple[str, Sequence[dict[str, Any]]]]:
        return iter(())

    def reinserted(self, staying: Collection[int]) -> Sequence[Entry]:
        return ()

    async def take_checkpoint(self, trigger: str) -> Checkpoint | None:
        return None

    async def before_summary(self, event: dict[str, Any]) -> str | None:
        return None

    async def after_summary(self, event: dict[str, Any]) -> None:
        """Do nothing: nobody listens to a replay."""

    def redact(self, words: str) -> str:
        return words

    async def ask_model(self, request: Request, purpose: CompactionPurpose) -> Reply:
        """Answer a request of the engine's own, and record its bill."""
        bill = self.cache.charge(prompt_of(request), self.clock)
        if self.writer is None:
            return self._from_ledger(bill)
        reply = await _whole_reply(self.writer, request)
        self.engine_calls.append((bill, reply.usage))
        return reply

    def _from_ledger(self, bill: CacheBill) -> Reply:
        """Return a summary made from the ledger, no longer than a model's may be."""
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
