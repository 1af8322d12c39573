"""The compaction block: a summary that the Messages API writes in place of messages.

A request with `compaction` gets a reply with one such block: a readable text and a signature. Every
later request starts with this block, byte for byte, in place of the summarised messages. Some
models bind thinking to all messages before it. With these models, the replies after the block keep
their thinking. After a summary of our own, they lose it.

Source: platform.claude.com, "Compaction on demand" and "Compaction and preserved thinking", as of
November 2026.
"""

from collections.abc import Sequence
from typing import Any

from ..session.entries import Block
from .items import THINKING

COMPACTION = "compaction"  # type of the block, name of the parameter, and a stop reason
MAX_INSTRUCTIONS_CHARS = 16_384  # of a prompt that replaces the server's own

_FIELDS = ("type", "content", "signature", "encrypted_content", "tool_changes")


def is_compaction(block: Block) -> bool:
    """Return True if a block is a valid compaction block, with a text and a signature."""
    texts = (block.get("content"), block.get("signature"))
    sound = block.get("type") == COMPACTION and block.keys() <= {*_FIELDS}
    return sound and all(isinstance(text, str) and text.strip() for text in texts)


def compaction_in(content: Sequence[Block]) -> Block | None:
    """Return the compaction block in a reply, or None if there is none."""
    return next((block for block in content if is_compaction(block)), None)


def begins_with_block(messages: Sequence[dict[str, Any]]) -> bool:
    """Return True if the messages of a request start with a compaction block."""
    content = messages[0]["content"] if messages else None
    return isinstance(content, list) and bool(content) and content[0].get("type") == COMPACTION


def with_plain_text(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Replace a leading compaction block by its text, for servers that do not accept the block.
    Drop thinking, which is bound to the block.
    """
    if not begins_with_block(messages):
        return messages
    block, *_ = messages[0]["content"]
    marked = {name: value for name, value in block.items() if name == "cache_control"}
    content = [{"type": "text", "text": block["content"], **marked}]
    rest = [{**message, "content": _without_thinking(message)} for message in messages[1:]]
    if rest and rest[0]["role"] == "user":
        content += rest.pop(0)["content"]
    return [{"role": "user", "content": content}, *rest]


def _without_thinking(message: dict[str, Any]) -> list[Block]:
    kept = [block for block in message["content"] if block["type"] not in THINKING]
    return kept or message["content"]
