"""Whom the engine serves: what a conversation gives it, and what it gives back."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from ..context.view import View
from ..context.window import Window
from ..context.wire import Request
from ..events import Emit
from ..record.entries import Checkpoint, Entry
from ..record.ledger import Ledger
from .preserve import Section

Purpose = Literal["summary", "verify"]


@dataclass(frozen=True, slots=True)
class Said:
    """A model's answer to a request of the engine's own. `cost_usd` is None for no known price."""

    text: str
    stop_reason: str | None
    cost_usd: float | None


class Host(Protocol):
    """A conversation: its log, its view and its model."""

    view: View
    ledger: Ledger
    effort: str | None

    @property
    def emit(self) -> Emit: ...

    @property
    def folder(self) -> Path:
        """Where the session's log is."""
        ...

    @property
    def model_id(self) -> str: ...

    def prices(self) -> tuple[float, float]:
        """Of reading and writing the prompt cache, relative to the input price."""
        ...

    def price(self, read: int, written: int) -> float | None:
        """Dollars for so many tokens of prompt read from the cache and so many of output."""
        ...

    def cold(self) -> bool:
        """Whether the prompt cache has ended since the newest call."""
        ...

    def measured(self) -> Window: ...

    def record(self, entry: Entry) -> Entry: ...

    def refold(self) -> None:
        """Fold the view again, from the whole log."""
        ...

    def sync(self) -> None: ...

    @property
    def renewal(self) -> Callable[[], Sequence[Entry]]:
        """What must stand in the context after a summary: instructions, todo list, mode, jobs."""
        ...

    @property
    def checkpoint(self) -> Callable[[str], Awaitable[Checkpoint | None]]:
        """Takes a checkpoint, with what triggered it, and records it; None, with a warning told,
        when that failed."""
        ...

    def digest(self, path: str) -> str | None:
        """The sha256 of a file as it is now; None where there is none that can be read."""
        ...

    def sections(self) -> Sequence[Section]:
        """What there is of each category that is always kept, as it is on disk now."""
        ...

    def recall(self, ref: int) -> str | None:
        """The whole text of an entry, by the way that the model has; None when it is not there."""
        ...

    def cleared(self, words: str) -> str:
        """The person's words without what must not be recorded, nor sent for that."""
        ...

    async def ask_aside(self, request: Request, purpose: Purpose = "summary") -> Said:
        """Put a request of the engine's own to the model; its reply is recorded with a purpose."""
        ...

    @property
    def hook(self) -> Callable[[str, dict[str, Any]], Awaitable[str | None]]:
        """Runs the person's commands at a point by name; the reason of a veto, or None."""
        ...
