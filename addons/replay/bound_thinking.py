"""Measure the thinking that history edits drop on models that bind thinking to the preceding
context.

On such models, an edit drops the thinking of every later reply, and a summary written by the model
drops the thinking of the replies it keeps. Dropped thinking is not sent again, which saves tokens.
The model may have to repeat it, which costs at most the same output. Whether it does is unknown, so
neither amount is part of a replay's dollars.

A recording has no thinking to replay, but often has the true output tokens of a reply. The tokens
beyond its text and calls are counted as thinking. The priced prompts contain no thinking, so the
true cost of every setting is higher by the cost of reading it.
"""

from dataclasses import field

from ...api.base import dataclass
from ...api.context import View
from ...api.models import cost
from ...api.record import Usage
from .results import DroppedThinking, Share


@dataclass(slots=True)
class ThinkingMeter:
    """The thinking of one session and the part that edits have dropped so far."""

    model: str
    _replies: int = 0
    _told: int = 0  # replies with recorded output tokens
    _tokens: dict[int, int] = field(default_factory=dict)  # thinking tokens by seq of the reply
    _dropped: set[int] = field(default_factory=set)
    _unsent: int = 0  # dropped thinking tokens, summed over all later calls

    def add(self, seq: int, output: int | None, said: int) -> None:
        """Record a reply with its output tokens; `said` of them are text and calls."""
        self._replies += 1
        if output is not None:
            self._told += 1
            self._tokens[seq] = max(0, output - said)

    def count_call(self, view: View) -> None:
        """Count the thinking that the next request leaves out of the view."""
        for item in view.items:
            if not item.thinking and (size := self._tokens.get(item.seq)):
                self._dropped.add(item.seq)
                self._unsent += size

    def result(self) -> DroppedThinking:
        """Return the thinking dropped so far, with its prices."""
        dropped = sum(self._tokens[seq] for seq in self._dropped)
        # Price a single token: the sum over all calls would wrongly get the price of a long prompt.
        read = Usage(cache_read=1)
        return DroppedThinking(
            told=Share(self._told, self._replies),
            tokens=sum(self._tokens.values()),
            dropped=dropped,
            saved_usd=self._unsent * (cost(self.model, read) or 0.0),
            again_usd=cost(self.model, Usage(output=dropped)) or 0.0,
        )
