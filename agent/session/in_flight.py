"""Requests that have begun and whose reply is not recorded: what they cost by an estimate.

A note is recorded before a request is sent. When the process is killed, the server may have made
the whole reply, and bills it although no log has it. So its estimate stays in the sums of the
session once another process continues it.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from ..lazy import dataclass
from .entries import Assistant, Entry, Note, Usage

REQUEST_TOPIC = "request"  # of the note
FIRST_OUTPUT_TOKENS = 200  # of a reply, before there was one


@dataclass(slots=True)
class InFlight:
    """The requests in flight, folded from the entries of a log."""

    run: str = ""  # of the process that began those in `open`
    open: dict[str, list[float]] = field(default_factory=dict)  # dollars, by purpose
    cut: float = 0.0  # dollars of those that ended with their process
    prompt: int = 0  # tokens that the newest request of a turn left in the server's cache
    replies: int = 0  # in turns
    output: int = 0  # tokens of these replies

    @property
    def dollars(self) -> float:
        """What requests without a recorded reply cost."""
        return self.cut + sum(map(sum, self.open.values()))

    @property
    def usual_output(self) -> int:
        """The tokens of a reply on the average."""
        return self.output // self.replies if self.replies else FIRST_OUTPUT_TOKENS

    def add(self, entry: Entry) -> None:
        """Fold one more entry."""
        if isinstance(entry, Note) and entry.topic == REQUEST_TOPIC:
            self._add_note(entry.data)
        elif isinstance(entry, Assistant):
            if open := self.open.get(entry.purpose):
                open.pop()
            if entry.purpose == "turn":
                usage = Usage.from_json(entry.usage)
                self.prompt = usage.prompt
                self.replies, self.output = self.replies + 1, self.output + usage.output

    def _add_note(self, data: Mapping[str, Any]) -> None:
        purpose, run, cost = str(data.get("of")), str(data.get("run")), data.get("cost_usd")
        if run != self.run:
            self.cut += sum(map(sum, self.open.values()))
            self.run, self.open = run, {}
        open = self.open.setdefault(purpose, [])
        if data.get("replaces") and open:
            open.pop()
        if isinstance(cost, int | float) and cost >= 0:
            open.append(float(cost))


def request_note(purpose: str, run: str, cost: float | None, *, replaces: bool = False) -> Note:
    """Return the note of a request that begins. With `replaces` it says something newer about the
    one that began last: another estimate, or without a cost that it is not billed any more."""
    data = {"of": purpose, "run": run, "cost_usd": cost} | ({"replaces": True} if replaces else {})
    return Note(topic=REQUEST_TOPIC, text="", data=data)
