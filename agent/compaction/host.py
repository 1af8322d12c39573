"""The protocol by which the engine sees a conversation: what it asks for and what it gives back."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from ...tools.system.kept_text import KeptText
from ..context.request import Request
from ..context.view import View
from ..context.window import Window
from ..events import Emit
from ..models.base import Reply
from ..models.catalog import CacheTerms
from ..session.entries import Checkpoint, Entry
from ..session.ledger import Ledger
from .preserve import PreservedSection

CompactionPurpose = Literal["summary", "verify"]


class EngineHost(Protocol):
    """A conversation: its log, its view and its model."""

    @property
    def view(self) -> View: ...

    @property
    def ledger(self) -> Ledger: ...

    @property
    def effort(self) -> str | None: ...

    @property
    def emit(self) -> Emit: ...

    @property
    def folder(self) -> Path:
        """The folder of the session's log."""

    @property
    def model_id(self) -> str: ...

    def cache_terms(self) -> CacheTerms:
        """Return what the server's prompt cache costs, and how long it lives."""

    def price_factor(self, prompt: int) -> float:
        """Return by what all prices are multiplied for a prompt of so many tokens."""

    def call_cost_usd(self, cached_tokens: int, output_tokens: int) -> float | None:
        """Return what a call costs; None when the model's price is not known."""

    def takes_images(self) -> bool:
        """Return whether the model takes images, as far as is known."""

    def has_compaction(self) -> bool:
        """Return whether the API can summarise the conversation by itself, as far as is known."""

    def has_one_slot(self) -> bool:
        """Return whether the server answers only one request at a time."""

    def cache_is_cold(self) -> bool:
        """Return whether the prompt cache has expired since the newest call."""

    def current_window(self) -> Window:
        """Return the context's size and the model's window."""

    def record(self, entry: Entry) -> Entry:
        """Append an entry to the log and fold it into the view and the ledger."""

    def record_model(self) -> None:
        """Record the model where the log has another one. Raises RecordError."""

    def rebuild_view(self) -> None:
        """Fold the view again from the whole log."""

    def sync(self) -> None:
        """Force the log and `conversation.md` to disk. Raises RecordError."""

    def reinserted(self, staying: Collection[int]) -> Sequence[Entry]:
        """Return what must be said again after a summary: instructions, todo list, mode, jobs, and
        skills that do not stand among the items with the seqs `staying`."""

    async def take_checkpoint(self, trigger: str) -> Checkpoint | None:
        """Take a checkpoint and record it; None, after a warning, when that failed."""

    def file_sha256(self, path: str) -> str | None:
        """Return the sha256 of a file as it is now; None where none can be read."""

    def preserved_sections(self) -> Sequence[PreservedSection]:
        """Return the state of each category that is always kept, as it is on disk now."""

    def more_masks(self) -> Iterator[tuple[str, Sequence[dict[str, Any]]]]:
        """Yield the name of each additional layer and the targets of its mask. The next layer runs
        when the caller goes on."""

    def recall(self, refs: Collection[int]) -> Mapping[int, KeptText]:
        """Return the whole texts of entries as the Recall tool gives them, without those that are
        missing."""

    def redact(self, words: str) -> str:
        """Return the user's words without the secrets that must not be recorded or sent."""

    async def ask_model(self, request: Request, purpose: CompactionPurpose) -> Reply:
        """Send a request of the engine's own to the model and record the reply with a purpose."""

    async def before_summary(self, event: dict[str, Any]) -> str | None:
        """Announce a summary. Return the reason of a veto, or None."""

    async def after_summary(self, event: dict[str, Any]) -> None:
        """Announce a recorded summary."""
