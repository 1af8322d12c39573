"""Traces and metrics of a fleet's run: a span for the run with a child span for each attempt, which
is the parent of the agent's spans. They contain nothing about the tasks' content.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...api.base import service
from .ledger import AttemptOutcome
from .orders import AttemptOrder
from .outages import Breaker
from .runner import RunObserver

if TYPE_CHECKING:
    from opentelemetry.trace import Span

WORKFLOW = "ctxagent fleet"


class FleetTelemetry:
    """The spans and metrics of a run."""

    def __init__(self, environ: Mapping[str, str], tasks: int, jobs: int) -> None:
        """Begin the span of a run. Raises UsageError if the packages are not installed."""
        self._otel = service("telemetry")
        self._telemetry = self._otel.open_telemetry()
        self._run = self._telemetry.begin(
            f"invoke_workflow {WORKFLOW}",
            self._otel.parent_of(environ),
            {
                "gen_ai.operation.name": "invoke_workflow",
                "gen_ai.workflow.name": WORKFLOW,
                "ctxagent.fleet.tasks": tasks,
                "ctxagent.fleet.jobs": jobs,
            },
        )
        self._attempts: dict[str, Span] = {}  # by session

    def __enter__(self) -> "FleetTelemetry":
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        for span in self._attempts.values():
            span.end()
        self._otel.end(self._run, is_error=kind is not None)
        self._telemetry.flush()

    def watching(self, observer: RunObserver) -> RunObserver:
        """Return an observer that creates spans and forwards every event to another observer."""

        def ended(order: AttemptOrder, outcome: AttemptOutcome, again: bool) -> None:
            self._end(order, outcome, again)
            observer.ended(order, outcome, again)

        def outage(breaker: Breaker) -> None:
            state = "waits" if breaker.is_open else "over"
            facts = {"ctxagent.cause": breaker.cause, "ctxagent.state": state}
            self._run.add_event("ctxagent.fleet.outage", facts)
            observer.outage(breaker)

        return RunObserver(observer.started, ended, outage, self._begin)

    def _begin(self, id: str, session: str, attempt: int) -> Mapping[str, str]:
        """Begin the span of an attempt; return the environment variables for its agent."""
        facts = {"ctxagent.fleet.task": id, "ctxagent.fleet.attempt": attempt}
        facts["gen_ai.conversation.id"] = session
        span = self._telemetry.begin("attempt", self._otel.context_of(self._run), facts)
        self._attempts[session] = span
        variables: Mapping[str, str] = self._otel.trace_variables(span)
        return variables

    def _end(self, order: AttemptOrder, outcome: AttemptOutcome, again: bool) -> None:
        result = outcome.kind or "done"
        span = self._attempts.pop(order.session, None)
        if span is not None:
            facts: dict[str, Any] = {
                "ctxagent.result": result,
                "ctxagent.goes_on": again,
                "ctxagent.cost_usd": outcome.cost_usd,
                "ctxagent.calls": outcome.calls,
                "ctxagent.tokens": outcome.tokens,
                "error.type": outcome.kind or None,
            }
            span.set_attributes(self._otel.without_none(facts))
            self._otel.end(span, is_error=bool(outcome.kind))
        self._telemetry.attempts.add(1, {"ctxagent.result": result, "ctxagent.goes_on": again})
