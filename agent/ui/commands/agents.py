"""/agents: the types of subagents."""

from ...errors import UsageError
from .command_context import CommandContext
from .registry import command


@command("list the types of subagents", anytime=True)
async def _agents(repl: CommandContext, argument: str) -> None:
    from ...features.subagents import SubagentsFeature
    from ..render import render

    if argument:
        raise UsageError(f"/agents does not take {argument!r}", hint="/tasks lists and stops them.")
    feature = repl.agent.features.find(SubagentsFeature)
    rows = [(each.name, each.source, each.description) for each in feature.types] if feature else []
    if rows:
        repl.put(render.table(rows, head=("subagent", "from", "")))
    else:
        repl.say("there are no subagents here")
