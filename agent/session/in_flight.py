"""Estimated cost of requests without a recorded reply.

A note is recorded before each request. If the process is killed, the server may still finish the
reply and bill it, although the log has no reply. The estimate then stays in the session's totals
when another process continues the session.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from ..lazy import dataclass
from .entries import Assistant, Entry, Note, Usage

REQUEST_TOPIC = "request"  # topic of the note
FIRST_OUTPUT_TOKENS = 200  # assumed for a reply before the first one


@dataclass(slots=True)
class InFlight:
    """The requests in flight, computed from the entries of a log."""

    run: str = ""  # ID of the process that sent the requests in `open`
    open: dict[str, list[float]] = field(default_factory=dict)  # dollars per request, by purpose
    unanswered: float = 0.0  # dollars for requests of processes that ended before the reply
    prompt: int = 0  # prompt tokens of the newest turn reply, which the server may have cached
    replies: int = 0  # number of turn replies
    output: int = 0  # output tokens of these replies

    @property
    def dollars(self) -> float:
        """The estimated cost of requests without a recorded reply."""
        return self.unanswered + sum(map(sum, self.open.values()))

    @property
    def usual_output(self) -> int:
        """The average number of output tokens of a reply."""
        return self.output // self.replies if self.replies else FIRST_OUTPUT_TOKENS

    def add(self, entry: Entry) -> None:
        """Process one entry."""
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
            self.unanswered += sum(map(sum, self.open.values()))
            self.run, self.open = run, {}
        open = self.open.setdefault(purpose, [])
        if data.get("replaces") and open:
            open.pop()
        if isinstance(cost, int | float) and cost >= 0:
            open.append(float(cost))


def request_note(purpose: str, run: str, cost: float | None, *, replaces: bool = False) -> Note:
    """Return the note for a request that begins. With `replaces`, it updates the newest open
    request of this purpose: it gives another estimate, or says without a cost that the request is
    not billed.
    """
    data = {"of": purpose, "run": run, "cost_usd": cost} | ({"replaces": True} if replaces else {})
    return Note(topic=REQUEST_TOPIC, text="", data=data)
