"""The tasks of a session as shown to the user: subagents and background commands.

The state of a subagent is derived from its events: name, progress and ending. Texts are plain, for
terminals and for standard error.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...tools.system.phrasing import count_of
from ..events import AgentFinished, AgentProgress, AgentStarted
from ..lazy import dataclass

if TYPE_CHECKING:
    from ...tools.job import BackgroundJob
    from ..features.running_subagents import RunningSubagent
    from ..loop.agent import AgentState
    from ..session.entries import SubagentRun

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


SUBAGENT, JOB = "subagent", "job"
STATES = {"interrupted": "stopped", "error": "failed"}  # state names; others are kept


@dataclass(frozen=True, slots=True)
class SessionTask:
    """A subagent or a job. None means unknown or not applicable."""

    id: str
    kind: str
    state: str  # running, waiting, done, failed, stopped, limit or lost
    what: str  # its work in one line
    seconds: float | None = None
    tokens: int | None = None
    cost: float | None = None
    facts: Sequence[str] = ()  # current call, exit status, number of compactions

    @property
    def is_running(self) -> bool:
        return self.state in ("running", "waiting")


def tasks_of(agent: "AgentState", seen: Subagents) -> list[SessionTask]:
    """Return the subagents of a session, then its jobs, each oldest first. `seen` provides
    durations of ended subagents.
    """
    return [*_subagents(agent, seen), *jobs_of(agent)]


def background_tasks(agent: "AgentState") -> list[SessionTask]:
    """Return the running background tasks, which end with the session."""
    running = agent.context.agents.values()
    found = [_running(each) for each in running if each.in_background]
    return [*found, *(task for task in jobs_of(agent) if task.is_running)]


def jobs_of(agent: "AgentState") -> Iterator[SessionTask]:
    """Yield the jobs of a session, including those of earlier processes."""
    running = agent.context.jobs
    for id, fact in agent.ledger.jobs.items():
        if id not in running:
            state = _state_of_job(fact.exit_code, interrupted=fact.interrupted)
            yield SessionTask(id, JOB, state, _line(fact.command))
    yield from map(_job, running.values())


def _job(job: "BackgroundJob") -> SessionTask:
    code, facts = job.process.exit_code, list[str]()
    state = "running" if job.process.running else _state_of_job(code, interrupted=job.interrupted)
    if state == "failed":
        facts.append(job.status)
    return SessionTask(job.id, JOB, state, _line(job.command), job.seconds, facts=facts)


def _state_of_job(code: int | None, *, interrupted: bool) -> str:
    if code is None:
        return "lost"
    return "stopped" if interrupted else "failed" if code else "done"


def _subagents(agent: "AgentState", seen: Subagents) -> Iterator[SessionTask]:
    for run in runs_of(agent).values():
        if run.id in agent.context.agents:
            continue
        known, used = seen.find(run.id), agent.totals.by_agent[run.id]
        finished = known.finished if known else None
        lost = run.lost or run.status == "running"
        yield SessionTask(
            run.id,
            SUBAGENT,
            "lost" if lost else STATES.get(run.status, run.status),
            _line(f"{run.type}: {run.description}"),
            finished.seconds if finished else None,
            used.usage.total,
            used.cost_usd,
            _compactions(used.compaction),
        )
    yield from map(_running, agent.context.agents.values())


def _running(subagent: "RunningSubagent") -> SessionTask:
    child = subagent.child
    used = child.totals.all if child else None
    return SessionTask(
        subagent.id,
        SUBAGENT,
        "running" if child else "waiting",
        _line(f"{subagent.run.type}: {subagent.description}"),
        subagent.seconds,
        used.usage.total if used else None,
        used.cost_usd if used else None,
        [*filter(None, [subagent.last_call]), *(_compactions(used.compaction) if used else [])],
    )


def runs_of(agent: "AgentState") -> "Mapping[str, SubagentRun]":
    """Return the newest entry of each subagent. Include results found after a kill that are
    recorded only with the next turn.
    """
    from ..features.crash_recovery import CrashRecoveryFeature
    from ..session.entries import SubagentRun

    recovery = agent.features.find(CrashRecoveryFeature)
    unrecorded: Sequence[Any] = recovery.unrecorded if recovery else ()
    newer = {run.id: run for run in unrecorded if isinstance(run, SubagentRun)}
    known = agent.ledger.agents
    return {id: newer.get(id, run) if run.status == "running" else run for id, run in known.items()}


def _compactions(layers: Mapping[str, int]) -> list[str]:
    count = sum(layers.values())
    return [count_of(count, "compaction")] if count else []


def _line(text: str) -> str:
    return " ".join(text.split())
