"""What the screen of `/context` shows, and what it can do."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Protocol

from ..lazy import dataclass

if TYPE_CHECKING:
    from ..compaction.edits import ContextItem

EditKind = Literal["drop", "restore", "pin", "compact", "before", "undo"]


@dataclass(frozen=True, slots=True)
class ContextPage:
    """All items in the order of the context, and lines on what fills the window."""

    head: Sequence[str]
    items: "Sequence[ContextItem]"


@dataclass(frozen=True, slots=True)
class ContextEdit:
    """A planned edit, and lines on what it would change."""

    kind: EditKind
    refs: Sequence[int]
    lines: Sequence[str]
    instructions: str = ""  # for a summary


class ContextSource(Protocol):
    """The context of the open session. Its methods raise CtxagentError."""

    @property
    def version(self) -> object:
        """A value that differs after each change of the items."""

    async def load(self) -> ContextPage: ...

    async def plan(self, kind: EditKind, refs: Sequence[int]) -> ContextEdit:
        """Plan an edit of these items. Nothing changes."""

    @property
    def waits(self) -> bool:
        """Whether an edit would wait for the end of a model call."""

    async def apply(self, edit: ContextEdit) -> str:
        """Apply an edit, and return what was done. It goes on if the caller is cancelled."""

    def stop(self) -> None:
        """Stop the edit that is being applied."""

    async def text(self, ref: int) -> str:
        """Return the whole text of an item."""

    async def report(self, width: int) -> str:
        """Return the report on the window."""
