"""The block that the Messages API itself writes in place of messages it has summarised.

A request with `compaction` is answered with one such block and nothing else: a text that can be
read, and a signature. It goes first in the messages of every later request, exactly as it came, in
place of what it stands for. On models whose thinking is bound to all that stands before it, the
replies right behind what was summarised keep theirs, unlike behind a summary of our own.

Source: platform.claude.com, "Compaction on demand" and "Compaction and preserved thinking", as of
November 2026.
"""

from collections.abc import Sequence
from typing import Any

from ..session.entries import Block
from .items import THINKING

COMPACTION = "compaction"  # type of the block, name of the parameter, and a stop reason
MAX_INSTRUCTIONS_CHARS = 16_384  # of the prompt that takes the place of the server's own

_FIELDS = ("type", "content", "signature", "encrypted_content", "tool_changes")


def is_compaction(block: Block) -> bool:
    """Return True if a block is one that the API takes back: with its text and its signature."""
    texts = (block.get("content"), block.get("signature"))
    sound = block.get("type") == COMPACTION and block.keys() <= {*_FIELDS}
    return sound and all(isinstance(text, str) and text.strip() for text in texts)


def compaction_in(content: Sequence[Block]) -> Block | None:
    """Return the block in a reply to a request with `compaction`; None where there is none."""
    return next((block for block in content if is_compaction(block)), None)


def begins_with_block(messages: Sequence[dict[str, Any]]) -> bool:
    """Return True if the messages of a request begin with such a block."""
    content = messages[0]["content"] if messages else None
    return isinstance(content, list) and bool(content) and content[0].get("type") == COMPACTION


def with_plain_text(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages with the text of the block in its place, for a server that does not take
    the block, and without thinking, which is bound to it."""
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
