"""A host of the compaction engine for conversations of other programs. It runs no tools, has no
hooks and asks no questions.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...tools.system.kept_text import KeptText
from ..context.view import View, fold
from ..context.window import Window, measure
from ..events import Event
from ..models.catalog import CacheTerms, cache_terms, cost, price_factor
from ..session.entries import Checkpoint, Entry, Revert, Usage
from ..session.ledger import Ledger
from ..session.log import Log
from ..session.store import find_texts
from .preserve import PreservedSection


class BareHost:
    """A log with its view and its ledger. See `host.EngineHost`. Subclasses call the model and know
    the state of the cache and the files.
    """

    effort: str | None = None

    def __init__(self, log: Log, model_id: str, window_tokens: int) -> None:
        self.log, self.model_id, self.window_tokens = log, model_id, window_tokens
        self.view, self.ledger = View(), Ledger()

    @property
    def folder(self) -> Path:
        return self.log.path.parent

    def emit(self, event: Event) -> None:
        """Ignore the event: there is no front end."""

    def record(self, entry: Entry) -> Entry:
        recorded = self.log.append(entry)
        if not isinstance(recorded, Revert):
            self.view.add(recorded)
        self.ledger.add(recorded)
        return recorded

    def record_model(self) -> None:
        """Do nothing: there is one model."""

    def rebuild_view(self) -> None:
        self.view = fold(self.log.entries())

    def sync(self) -> None:
        self.log.sync_all()

    def current_window(self) -> Window:
        return measure(self.view, self.window_tokens)

    def takes_images(self) -> bool:
        return True

    def has_compaction(self) -> bool:
        return False

    def has_one_slot(self) -> bool:
        return False

    def cache_terms(self) -> CacheTerms:
        return cache_terms(self.model_id)

    def price_factor(self, prompt: int) -> float:
        return price_factor(self.model_id, prompt)

    def call_cost_usd(self, cached_tokens: int, output_tokens: int) -> float | None:
        return cost(self.model_id, Usage(cache_read=cached_tokens, output=output_tokens))

    def preserved_sections(self) -> Sequence[PreservedSection]:
        return ()

    def recall(self, refs: Collection[int]) -> Mapping[int, KeptText]:
        return find_texts(self.log.path, refs)

    def reinserted(self, staying: Collection[int]) -> Sequence[Entry]:
        return ()

    async def take_checkpoint(self, trigger: str) -> Checkpoint | None:
        return None

    async def before_summary(self, event: dict[str, Any]) -> str | None:
        return None

    async def after_summary(self, event: dict[str, Any]) -> None:
        """Do nothing: there are no hooks."""

    def redact(self, words: str) -> str:
        return words
