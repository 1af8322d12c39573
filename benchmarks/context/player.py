"""Play a recording with the messages that any given policy makes of it.

The session is kept as in `ctxagent replay`, with automatic summaries only. The messages that the
policy returns are sent, priced and searched. A summary is made when these messages fill the window.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from policies import ContextPolicy, Messages

from ctxagent.addons.replay.player import Player, ReplayHost
from ctxagent.agent.compaction.engine import CompactionEngine
from ctxagent.agent.compaction.policy import DEFAULT
from ctxagent.agent.context import tokens
from ctxagent.agent.context.request import Request
from ctxagent.agent.context.window import Window

SUMMARIES_ALONE = replace(
    DEFAULT,
    clear_when="off",
    move_above=None,
    line_numbers=True,
    truncate_at=None,
    outline=False,
)


class Host(ReplayHost):
    """Host whose window contains the context as the policy leaves it."""

    saved = 0  # tokens that the policy removed from the previous request
    summary = 0  # seq of the summary in the previous request

    def current_window(self) -> Window:
        window = super().current_window()
        if self.view.summary is not None and self.view.summary.seq != self.summary:
            return window  # a new summary replaced the messages that were saved
        return replace(window, tokens=max(0, window.tokens - self.view.scaled(self.saved)))


@dataclass
class PolicyPlayer(Player):
    """Player of one recording under an external policy. Its terms enable summaries only."""

    change: ContextPolicy = lambda messages: messages
    sent: str = ""  # all text of the newest request

    def __post_init__(self) -> None:
        super().__post_init__()
        self.host.log.close()
        self.host.log.path.unlink(missing_ok=True)
        self.host = Host(self.host.log.path, self.terms.model, self.terms.window)
        self.engine = CompactionEngine(self.host, self.terms.policy)

    def request(self) -> Request:
        """Return the next request, with the messages as changed by the policy."""
        whole = super().request()
        messages = self.change([_without_marks(message) for message in whole.messages])
        assert isinstance(self.host, Host)
        self.host.saved = _size(whole.messages) - _size(messages)
        self.host.summary = self.host.view.summary.seq if self.host.view.summary else 0
        self.sent = "\n".join(
            text for message in messages for block in _blocks(message) for text in _texts(block)
        )
        return replace(whole, messages=_marked(messages))

    def context(self) -> str:
        """Return all text of the newest request."""
        return self.sent

    def _is_gone(self, seq: int) -> bool:
        """Return True if the newest request does not contain the text of an entry."""
        if seq in self._results:
            return self._results[seq].strip() not in self.sent
        place = self.host.view.position(seq)
        if place is None:
            return True
        item = self.host.view.items[place]
        return any(
            text.strip() not in self.sent
            for block in item.blocks
            for text in _texts(block)
            if block["type"] != "tool_result"
        )


def _without_marks(message: Mapping[str, Any]) -> dict[str, Any]:
    content = [
        {name: value for name, value in block.items() if name != "cache_control"}
        for block in message["content"]
    ]
    return {**message, "content": content}


def _marked(messages: Messages) -> Messages:
    """Return the messages with cache breakpoints at the end of this and the previous request."""
    replies = [n for n, message in enumerate(messages[:-1]) if message["role"] == "assistant"]
    marked = [*messages]
    for place in {len(messages) - 1, *(n - 1 for n in replies[-1:] if n)}:
        blocks = _blocks(marked[place])
        last = {**blocks[-1], "cache_control": {"type": "ephemeral"}}
        marked[place] = {**marked[place], "content": [*blocks[:-1], last]}
    return marked


def _blocks(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _size(messages: Messages) -> int:
    return sum(tokens.estimate_block(b) for message in messages for b in _blocks(message))


def _texts(block: Mapping[str, Any]) -> list[str]:
    """Return the texts of a block."""
    found = [str(block.get("text", ""))]
    if isinstance(block.get("input"), dict):
        found += map(str, block["input"].values())
    if isinstance(content := block.get("content"), str):
        found.append(content)
    elif isinstance(content, list):
        found += [str(each.get("text", "")) for each in content]
    return found
