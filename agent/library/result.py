"""The result of a run: its status, the answer, and the usage of the session."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from .. import errors
from ..errors import CtxagentError
from ..events import TurnFinished
from ..lazy import dataclass
from ..session.totals import Totals

if TYPE_CHECKING:
    from ..loop.agent import AgentState

INTERRUPTED = 130
STATUS_CODES = {"ok": 0, "denied": 3, "limit": 4, "interrupted": INTERRUPTED}


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a run. Counts, tokens and dollars are those of the whole session with its
    subagents. Values are None if they are unknown because the session was never opened.
    """

    status: Literal["ok", "error", "denied", "limit", "interrupted"]
    session_id: str | None
    log: str | None  # path
    text: str  # the final answer
    output: Any  # the answer parsed by the schema; None without a schema
    model: str | None
    turns: int
    calls: int  # model calls
    tool_calls: int
    seconds: float
    usage: Mapping[str, int]  # tokens
    cost_usd: float | None  # None if the price is unknown
    context: Mapping[str, Any] | None  # tokens, window, level, free, summary_at
    compaction: Mapping[str, int]
    agents: Sequence[Mapping[str, Any]]  # usage of each subagent
    denials: Sequence[Mapping[str, Any]]  # denied calls
    # Type and message; if a limit was reached, also the limit and its value.
    error: Mapping[str, Any] | None

    @property
    def exit_code(self) -> int:
        """The exit code of a command with this result."""
        if self.status != "error":
            return STATUS_CODES[self.status]
        kind = getattr(errors, (self.error or {}).get("type", ""), CtxagentError)
        return int(getattr(kind, "exit_code", 1))

    def to_json(self) -> dict[str, Any]:
        """Return the result as `--output-format json` prints it, without `output`, which the caller
        adds for a schema.
        """
        found = dataclasses.asdict(self)
        names = {"text": "result", "seconds": "duration_s"}
        rest = {names.get(name, name): found[name] for name in found if name != "output"}
        return {"type": "result", "status": rest.pop("status"), "exit_code": self.exit_code, **rest}


def result_of(
    agent: "AgentState | None", finished: TurnFinished, seconds: float, output: Any = None
) -> Result:
    """Return the result of a turn that took `seconds`. `agent` is None if the session was never
    opened.
    """
    totals = agent.totals if agent else Totals()
    return Result(
        status=finished.status,
        session_id=agent.log.path.parent.name if agent else None,
        log=str(agent.log.path) if agent else None,
        text=finished.text,
        output=output,
        model=agent.model.id if agent else None,
        turns=totals.turns,
        calls=totals.all.calls,
        tool_calls=totals.all.tool_calls,
        seconds=round(seconds, 3),
        usage=totals.all.usage.to_json(),
        cost_usd=totals.all.cost_usd,
        context=_context(agent) if agent else None,
        compaction=totals.all.compaction,
        agents=_agents(agent) if agent else [],
        denials=[dataclasses.asdict(each) for each in agent.denials] if agent else [],
        error=finished.error,
    )


def _context(agent: "AgentState") -> dict[str, Any]:
    """Return how full the window is, and the token count that triggers a summary."""
    from ..compaction.policy import summary_due_at

    window = agent.model.current_window()
    return {
        "tokens": window.tokens,
        "window": window.size,
        "level": window.level,
        "free": window.free,
        "summary_at": summary_due_at(agent.policy, window),
    }


def _agents(agent: "AgentState") -> list[dict[str, Any]]:
    """Return the usage of each subagent in the session. The totals of the result include it."""
    return [
        {
            "id": run.id,
            "type": run.type,
            "description": run.description,
            "status": run.status,
            "log": str(agent.folder / run.log),
            **dataclasses.asdict(agent.totals.by_agent[run.id]),
        }
        for run in agent.ledger.agents.values()
    ]
