"""/agents: the types of subagents, those that have worked in this session, and stopping one."""

from typing import TYPE_CHECKING

from ...errors import UsageError
from . import completions
from .command_context import CommandContext
from .registry import command

if TYPE_CHECKING:
    from ...session.entries import SubagentRun

HEAD = ("subagent", "status", "calls", "tokens", "cost", "type: description")


@command(
    "list the subagents, or stop one",
    argument="[stop ID]",
    anytime=True,
    complete=completions.running_subagents,
    group="files and work",
)
async def _agents(repl: CommandContext, argument: str) -> None:
    from ...features.subagents import SubagentsFeature
    from ..render import render

    verb, _, id = argument.partition(" ")
    if verb == "stop":
        _stop(repl, id.strip())
        return
    if argument:
        raise UsageError(f"/agents does not take {argument!r}", hint="/agents or /agents stop ID")
    if feature := repl.agent.features.find(SubagentsFeature):
        rows = [(each.name, each.source, each.description) for each in feature.types]
        repl.put(render.table(rows, head=("type", "from", "")), "")
    if runs := repl.agent.ledger.agents.values():
        repl.put(render.table([_row(repl, run) for run in runs], head=HEAD, wrap=False))
    else:
        repl.say("no subagent has run in this session")


def _row(repl: CommandContext, run: "SubagentRun") -> tuple[str, ...]:
    """Return the row of a subagent: at work with its context as it is now, else with its totals."""
    from ..render import render

    who = f"{run.type}: {run.description}"
    if run.id in repl.agent.context.agents:
        now = repl.transcript().subagents.progress(run.id)
        size = f"{now.tokens:,} {now.level}" if now else ""
        return run.id, "running", f"{now.calls:,}" if now else "", size, "", who
    used = repl.agent.totals.by_agent[run.id]
    status = "not finished" if run.status == "running" else run.status
    price = render.price(used.cost_usd)
    return run.id, status, f"{used.calls:,}", f"{used.usage.total:,}", price, who


def _stop(repl: CommandContext, id: str) -> None:
    """Stop the subagent whose id is or begins with `id`. Raises UsageError unless it is one."""

    stop_calls = repl.agent.context.agents  # by the ids of the subagents at work
    found = [id] if id in stop_calls else [each for each in stop_calls if each.startswith(id)]
    if not stop_calls:
        raise UsageError("no subagent is running")
    if len(found) != 1:
        problem = "several running subagents begin with" if found else "no running subagent is"
        raise UsageError(f"{problem} {id!r}", hint=f"Running: {', '.join(stop_calls)}")
    stop_calls[found[0]]()
    repl.say(f"{found[0]} stopped; the conversation gets what it has done so far")
