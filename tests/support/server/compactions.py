"""The behaviour of the Messages API with `compaction`: it answers with one signed block, accepts
that block only unchanged and at the start of the messages, and keeps later thinking bound to the
messages that the block replaces.

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
    """The compaction blocks returned by a server, with the messages that each replaces."""

    def __init__(self) -> None:
        self._given: dict[str, tuple[str, Parts]] = {}  # (text, messages) by signature

    def refusal(self, body: Body) -> str:
        """Return why a server without compaction refuses a request; "" if it accepts it."""
        if "compaction" in body:
            return REFUSED_PARAMETER
        return REFUSED_BLOCK if block_in(body) else ""

    def check(self, body: Body, headers: Mapping[str, str]) -> None:
        """Raise Invalid for a request without the beta header, or for an altered block."""
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
        """Return the complete prompt, with a compaction block replaced by its original messages."""
        place = next((n for n, (_, b) in enumerate(parts) if b.get("type") == "compaction"), None)
        if place is None:
            return parts
        _, before = self._given.get(parts[place][1]["signature"], ("", []))
        return [*parts[:place], *before, *parts[place + 1 :]]

    def give(self, text: str, messages: Parts) -> Body:
        """Return a block with this text for messages whose earlier blocks are already replaced."""
        told = json.dumps([text, messages], sort_keys=True)
        signature = "cmp" + hashlib.sha256(told.encode()).hexdigest()
        self._given[signature] = (text, messages)
        return {"type": "compaction", "content": text, "signature": signature}

    def answer(self, text: str, body: Body, told: Parts, whole: Body) -> Body:
        """Return the answer to a request for a block. `whole` is the script's reply, `text` its
        summary, and `told` the complete prompt. Without a text, the answer is empty.
        """
        fixed = len(body.get("system", [])) + len(body.get("tools", []))
        ended = whole["stop_reason"] == "end_turn" and text.strip()
        content = [self.give(text, told[fixed:])] if ended else []
        counted = {"type": "compaction", **whole["usage"]}
        usage = {"input_tokens": 0, "output_tokens": 0, "iterations": [counted]}
        reason = "compaction" if content else whole["stop_reason"]
        return {**whole, "content": content, "stop_reason": reason, "usage": usage}


def block_in(body: Body) -> Body | None:
    """Return the compaction block at the start of a request, or None."""
    first = body["messages"][0]["content"][0]
    return first if isinstance(first, dict) and first["type"] == "compaction" else None
