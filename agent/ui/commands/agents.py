"""The command about subagents: which types there are, which have worked here, and ending one."""

from typing import TYPE_CHECKING

from ...errors import UsageError
from . import offers
from .registry import Desk, command

if TYPE_CHECKING:
    from ...record.entries import Agent

HEAD = ("subagent", "status", "calls", "tokens", "cost", "type: description")


@command(
    "the subagents; stop ends one that works",
    argument="[stop ID]",
    anytime=True,
    complete=offers.working,
)
async def _agents(desk: Desk, argument: str) -> None:
    from ..look import render

    verb, _, id = argument.partition(" ")
    if verb == "stop":
        _stop(desk, id.strip())
        return
    if argument:
        raise UsageError(f"/agents does not take {argument!r}", hint="/agents or /agents stop ID")
    if types := desk.loop.types:
        rows = [(each.name, each.source, each.description) for each in types]
        desk.put(render.listing(rows, head=("type", "from", "")), "")
    agents = desk.loop.ledger.agents.values()
    if agents:
        desk.put(render.listing([_row(desk, agent) for agent in agents], head=HEAD, wrap=False))
    else:
        desk.put(render.dim("no subagent has worked in this session"))


def _row(desk: Desk, agent: "Agent") -> tuple[str, ...]:
    """One that works with its context as it is now, any other with what it has used in all."""
    from ..look import render

    who = f"{agent.type}: {agent.description}"
    if agent.id in desk.loop.context.agents:
        now = desk.subagents.progress(agent.id)
        size = f"{now.tokens:,} {now.level}" if now else ""
        return agent.id, "running", f"{now.calls:,}" if now else "", size, "", who
    used = desk.loop.totals.by_agent[agent.id]
    status = "not finished" if agent.status == "running" else agent.status
    price = render.price(used.cost_usd)
    return agent.id, status, f"{used.calls:,}", f"{used.usage.total:,}", price, who


def _stop(desk: Desk, id: str) -> None:
    """End the one that works under this id, or one that begins so; the others go on."""
    from ..look import render

    working = desk.loop.context.agents
    found = [id] if id in working else [each for each in working if each.startswith(id)]
    if not working:
        raise UsageError("no subagent is at work")
    if len(found) != 1:
        wrong = f"several subagents at work begin with {id!r}" if found else f"none is {id!r}"
        raise UsageError(wrong, hint=f"At work: {', '.join(working)}")
    working[found[0]]()
    desk.put(render.dim(f"{found[0]} is stopped; the conversation gets what it has"))
