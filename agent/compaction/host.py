"""The protocol between the engine and a conversation, and a host for logs without an agent."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from ...tools.offered import EVERY, Offered
from ...tools.system.kept_text import KeptText
from ..context.request import Request
from ..context.view import View, fold
from ..context.window import Window, measure
from ..events import Emit, Event, Notice
from ..models.base import Reply
from ..models.catalog import CacheTerms, cache_terms, cost, price_factor
from ..session.entries import Checkpoint, Entry, Revert, Usage, User
from ..session.ledger import Ledger
from ..session.log import Log
from ..session.server_speed import TokenSeconds
from ..session.store import find_texts
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
    def offered(self) -> Offered:
        """The tools of the conversation; texts for the model name only these."""

    @property
    def folder(self) -> Path:
        """The folder of the session's log."""

    @property
    def model_id(self) -> str: ...

    def cache_terms(self) -> CacheTerms:
        """Return the prices and the lifetime of the server's prompt cache."""

    def token_seconds(self) -> TokenSeconds | None:
        """Return the speed of a server whose price is time; None for a paid model, and before the
        first timings.
        """

    def price_factor(self, prompt: int) -> float:
        """Return the factor for all prices of a request with `prompt` tokens."""

    def call_cost_usd(self, cached_tokens: int, output_tokens: int) -> float | None:
        """Return the cost of a call in dollars; None if the model's price is unknown."""

    def takes_images(self) -> bool:
        """Return True unless the model is known to reject images."""

    def has_compaction(self) -> bool:
        """Return True if the API is known to offer summaries of its own."""

    def has_one_slot(self) -> bool:
        """Return True if the server answers only one request at a time."""

    def cache_is_cold(self) -> bool:
        """Return True if the prompt cache has expired since the newest call."""

    def user_was_away(self) -> bool:
        """Return True if the prompt cache of this conversation and model has expired since its
        newest call, and a user has returned since. Always False in runs without a user.
        """

    def current_window(self) -> Window:
        """Return the context's size and the model's window."""

    def warn_once(self, text: str) -> None:
        """Show the user a warning, once per session."""

    def record(self, entry: Entry) -> Entry:
        """Append an entry to the log and fold it into the view and the ledger."""

    def record_model(self) -> None:
        """Record the model if the log has another one. Raises RecordError."""

    def rebuild_view(self) -> None:
        """Rebuild the view from the whole log."""

    def sync(self) -> None:
        """Flush the log and `conversation.md` to disk. Raises RecordError."""

    def reinserted(self, staying: Collection[int]) -> Sequence[Entry]:
        """Return the entries to add after a summary: instructions, todo list, mode, jobs and
        skills. `staying` has the seqs of the items that stay; skills among them are not repeated.
        """

    async def take_checkpoint(self, trigger: str) -> Checkpoint | None:
        """Take a checkpoint and record it. Return None, after a warning, if it failed."""

    def file_sha256(self, path: str) -> str | None:
        """Return the current sha256 of a file; None if the file cannot be read."""

    def preserved_sections(self) -> Sequence[PreservedSection]:
        """Return the state on disk of each section that is always kept."""

    def recall(self, refs: Collection[int]) -> Mapping[int, KeptText]:
        """Return the full texts of entries, as the Recall tool gives them. Missing entries are left
        out.
        """

    def redact(self, words: str) -> str:
        """Return a user's text without secrets that must not be recorded or sent."""

    async def ask_model(self, request: Request, purpose: CompactionPurpose) -> Reply:
        """Send a request of the engine to the model, and record the reply with its purpose."""

    async def before_summary(self, event: dict[str, Any]) -> str | None:
        """Run the hooks before a summary. Return the reason of a veto, or None."""

    async def after_summary(self, event: dict[str, Any]) -> None:
        """Run the hooks after a summary is recorded."""


class BareHost:
    """A log with its view and its ledger. See `host.EngineHost`. Subclasses call the model and know
    the state of the cache and the files.
    """

    effort: str | None = None
    offered = EVERY

    def __init__(self, log: Log, model_id: str, window_tokens: int) -> None:
        self.log, self.model_id, self.window_tokens = log, model_id, window_tokens
        self.view, self.ledger = View(), Ledger()
        self.instructions: list[User] = []  # another agent's texts before the first reply

    @property
    def folder(self) -> Path:
        return self.log.path.parent

    def emit(self, event: Event) -> None:
        """Ignore the event: there is no front end."""

    def warn_once(self, text: str) -> None:
        self.emit(Notice("warning", text))

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

    def token_seconds(self) -> TokenSeconds | None:
        return None

    def user_was_away(self) -> bool:
        return False

    def price_factor(self, prompt: int) -> float:
        return price_factor(self.model_id, prompt)

    def call_cost_usd(self, cached_tokens: int, output_tokens: int) -> float | None:
        return cost(self.model_id, Usage(cache_read=cached_tokens, output=output_tokens))

    def preserved_sections(self) -> Sequence[PreservedSection]:
        return ()

    def recall(self, refs: Collection[int]) -> Mapping[int, KeptText]:
        return find_texts(self.log.path, refs)

    def reinserted(self, staying: Collection[int]) -> Sequence[Entry]:
        """Return the other agent's own instructions, which stay valid."""
        return [
            User(content=entry.content, source="instructions")
            for entry in self.instructions
            if entry.seq not in staying
        ]

    async def take_checkpoint(self, trigger: str) -> Checkpoint | None:
        return None

    async def before_summary(self, event: dict[str, Any]) -> str | None:
        return None

    async def after_summary(self, event: dict[str, Any]) -> None:
        """Do nothing: there are no hooks."""

    def redact(self, words: str) -> str:
        return words
