"""The state of subagents, derived from their events: name, progress and ending. Texts are plain,
for terminals and for standard error.
"""

from collections.abc import Sequence

from ..events import AgentFinished, AgentProgress, AgentStarted
from ..lazy import dataclass

SubagentEvent = AgentStarted | AgentProgress | AgentFinished

STATUS_WORDS = {"done": "done", "error": "failed", "limit": "ended by a limit"}


@dataclass(slots=True)
class Subagent:
    """A subagent in its newest run."""

    id: str
    type: str
    description: str
    background: bool = False  # whether it runs in the background
    progress: AgentProgress | None = None
    finished: AgentFinished | None = None
    questions: int = 0  # number of its unanswered questions

    @property
    def name(self) -> str:
        """Its type and description in one line."""
        return " · ".join(" ".join(each.split()) for each in (self.type, self.description) if each)

    @property
    def tools(self) -> int:
        return self.progress.tools if self.progress else 0

    @property
    def ending(self) -> str:
        """Its result, duration, tokens and price in one line; "" while it runs."""
        end = self.finished
        if end is None:
            return ""
        price = "price not known" if end.cost_usd is None else f"${end.cost_usd:.4f}"
        tokens = f"{sum(end.usage.values()):,} tokens"
        how = STATUS_WORDS.get(end.status, end.status)
        return " · ".join((how, f"{end.seconds:.1f} s", tokens, price))


class Subagents:
    """The subagents of a conversation, in the order of their start."""

    def __init__(self) -> None:
        self._all: dict[str, Subagent] = {}

    def follow(self, event: SubagentEvent) -> Subagent:
        """Record an event and return its subagent."""
        if isinstance(event, AgentStarted):
            self._all.pop(event.id, None)  # a resumed subagent moves to the end
            started = Subagent(event.id, event.type, event.description, event.background)
            self._all[event.id] = started
        subagent = self._all.setdefault(event.id, Subagent(event.id, event.id, ""))
        if isinstance(event, AgentProgress):
            subagent.progress = event
        elif isinstance(event, AgentFinished):
            subagent.finished = event
        return subagent

    def asks(self, id: str, change: int) -> None:
        """Change the number of a subagent's unanswered questions."""
        if id in self._all:
            self._all[id].questions += change

    def awaited(self) -> Sequence[Subagent]:
        """Return the running foreground subagents."""
        return [s for s in self._all.values() if s.finished is None and not s.background]

    def find(self, id: str) -> Subagent | None:
        return self._all.get(id)

    def name(self, id: str) -> str:
        """Return the name of a subagent, or its id if it is not known."""
        return self._all[id].name if id in self._all else id
