"""What the Messages API does with `compaction`: it answers with one signed block, takes that block
back first in the messages and only as it was, and has the thinking behind it stay bound to what the
block stands for.

Source: platform.claude.com, "Compaction on demand" and "Compaction and preserved thinking", as of
November 2026.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from .validator import Invalid

Body = dict[str, Any]
Parts = list[tuple[str, Body]]
BETA = "compact-2026-09-04"
REFUSED_PARAMETER = "compaction: Extra inputs are not permitted"
REFUSED_BLOCK = (
    "messages.0.content.0: Input tag 'compaction' found using 'type' does not match any of the "
    "expected tags: 'text', 'tool_use'"
)


class Compactions:
    """The blocks that a server has given, and what each stands for."""

    def __init__(self) -> None:
        self._given: dict[str, tuple[str, Parts]] = {}  # text and messages, by signature

    def refusal(self, body: Body) -> str:
        """Why a server refuses a request that does not summarise; "" where it takes it."""
        if "compaction" in body:
            return REFUSED_PARAMETER
        return REFUSED_BLOCK if block_in(body) else ""

    def check(self, body: Body, headers: Mapping[str, str]) -> None:
        """Raises Invalid for a request without the beta, and for a block that was altered."""
        block = block_in(body)
        if not block and "compaction" not in body:
            return
        if BETA not in headers.get("anthropic-beta", "").split(","):
            raise Invalid(f"anthropic-beta: {BETA} is missing")
        if block:
            text, _ = self._given.get(block["signature"], ("", []))
            if text != block["content"]:
                raise Invalid("compaction_content_mismatch: send the block as it was returned")

    def told(self, parts: Parts) -> Parts:
        """All that the model is told, with what a block stands for in its place."""
        place = next((n for n, (_, b) in enumerate(parts) if b.get("type") == "compaction"), None)
        if place is None:
            return parts
        _, before = self._given.get(parts[place][1]["signature"], ("", []))
        return [*parts[:place], *before, *parts[place + 1 :]]

    def give(self, text: str, messages: Parts) -> Body:
        """A block with this text, for messages in which earlier blocks have been replaced."""
        told = json.dumps([text, messages], sort_keys=True)
        signature = "cmp" + hashlib.sha256(told.encode()).hexdigest()
        self._given[signature] = (text, messages)
        return {"type": "compaction", "content": text, "signature": signature}

    def answer(self, text: str, body: Body, told: Parts, whole: Body) -> Body:
        """The answer to a request for a block, where `whole` is what the script says, `text` of it
        the summary, and `told` all that the model was told: empty where there is no text."""
        fixed = len(body.get("system", [])) + len(body.get("tools", []))
        ended = whole["stop_reason"] == "end_turn" and text.strip()
        content = [self.give(text, told[fixed:])] if ended else []
        counted = {"type": "compaction", **whole["usage"]}
        usage = {"input_tokens": 0, "output_tokens": 0, "iterations": [counted]}
        reason = "compaction" if content else whole["stop_reason"]
        return {**whole, "content": content, "stop_reason": reason, "usage": usage}


def block_in(body: Body) -> Body | None:
    """The block that a request begins with."""
    first = body["messages"][0]["content"][0]
    return first if isinstance(first, dict) and first["type"] == "compaction" else None
