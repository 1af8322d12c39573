"""What edits of history do to thinking that is bound to all that stands before it.

On such models every edit drops the thinking behind it, and a summary by the model that of the
replies
it leaves. It is not sent again then, which saves; and the model may have to think it again, which
costs at most as much output. Whether it has to is not known, so neither is among a replay's
dollars.

A recording has no thinking that could be played, but often the true output of a reply: what that
has beyond words and calls is taken for thinking. Standing thinking is not in the prompts that are
priced, so the true cost of every setting is higher by reading it.
"""

from dataclasses import field

from ..context.view import View
from ..lazy import dataclass
from ..models.catalog import cost
from ..session.entries import Usage
from .results import DroppedThinking, Share


@dataclass(slots=True)
class ThinkingMeter:
    """The thinking of one session, and what edits have dropped of it so far."""

    model: str
    _replies: int = 0
    _told: int = 0  # replies whose output was recorded
    _tokens: dict[int, int] = field(default_factory=dict)  # of a reply's thinking, by its entry
    _dropped: set[int] = field(default_factory=set)
    _unsent: int = 0  # tokens that were not sent, over all calls since

    def add(self, seq: int, output: int | None, said: int) -> None:
        """Note a reply with its recorded output, of which `said` tokens are words and calls."""
        self._replies += 1
        if output is not None:
            self._told += 1
            self._tokens[seq] = max(0, output - said)

    def count_call(self, view: View) -> None:
        """Count what the next request lacks of the thinking in the view."""
        for item in view.items:
            if not item.thinking and (size := self._tokens.get(item.seq)):
                self._dropped.add(item.seq)
                self._unsent += size

    def result(self) -> DroppedThinking:
        """Return what was dropped so far, with its prices."""
        dropped = sum(self._tokens[seq] for seq in self._dropped)
        # By the token: all calls together are longer than a prompt, and a longer one may cost more.
        read = Usage(cache_read=1)
        return DroppedThinking(
            told=Share(self._told, self._replies),
            tokens=sum(self._tokens.values()),
            dropped=dropped,
            saved_usd=self._unsent * (cost(self.model, read) or 0.0),
            again_usd=cost(self.model, Usage(output=dropped)) or 0.0,
        )
