"""The tasks of a session as shown to the user: subagents and background commands."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...tools.system.plural import count_of
from ..lazy import dataclass
from .subagent_progress import Subagents

if TYPE_CHECKING:
    from ...tools.job import BackgroundJob
    from ..features.running_subagents import RunningSubagent
    from ..loop.agent import AgentState
    from ..session.entries import SubagentRun

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
