"""Requests of known clients outside of the main line of a conversation ("asides").

They consist of the history and one more user text. The client then continues its conversation
without them.
"""

from collections.abc import Sequence
from typing import Literal

from ..lazy import dataclass
from .bodies.base import Json, text_of

AsideKind = Literal["question", "compaction"]


@dataclass(frozen=True, slots=True)
class Aside:
    """A pattern that identifies a kind of aside."""

    client: str
    kind: AsideKind
    phrase: str  # contained in the last message


COMPACTION_TRIGGER = "compaction_trigger"  # type of codex's last item with OpenAI's API
ASIDES = (
    Aside("Claude Code", "compaction", "create a detailed summary of the conversation so far"),
    Aside("codex", "compaction", "CONTEXT CHECKPOINT COMPACTION"),
)


def aside_of(messages: Sequence[Json]) -> AsideKind | None:
    """Return the kind of aside of a request, None for the main line."""
    if not messages:
        return None
    if messages[-1].get("type") == COMPACTION_TRIGGER:
        return "compaction"
    if messages[-1].get("role") != "user":
        return None
    text = text_of(messages[-1].get("content"))
    return next((aside.kind for aside in ASIDES if aside.phrase in text), None)
