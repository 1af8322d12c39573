"""Requests of known clients for a summary of their conversation.

They consist of the history and one more user text. The client then continues without them.
"""

from collections.abc import Sequence

from .bodies.base import Json, text_of

COMPACTION_TRIGGER = "compaction_trigger"  # type of codex's last item with OpenAI's API
# Contained in the last message.
PHRASES = (
    "create a detailed summary of the conversation so far",  # Claude Code, copilot
    "CONTEXT CHECKPOINT COMPACTION",  # codex
    "Create a handoff summary",  # Kimi Code
)


def asks_for_compaction(messages: Sequence[Json]) -> bool:
    """Return True if a client asks for a summary in place of its history."""
    if not messages:
        return False
    if messages[-1].get("type") == COMPACTION_TRIGGER:
        return True
    if messages[-1].get("role") != "user":
        return False
    text = text_of(messages[-1].get("content"))
    return any(phrase in text for phrase in PHRASES)
