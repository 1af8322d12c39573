"""/mcp: the MCP servers, their state, and their tools, prompts and resources."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ....tools.system.plural import count_of
from ...errors import UsageError
from ..screen import Offer
from .command_context import CommandContext
from .registry import command

if TYPE_CHECKING:
    from ...extensions.mcp.servers import McpServers, ServerStatus

HEAD = ("server", "state", "tools", "prompts", "resources", "calls", "in context", "")
TOOLS_HEAD = ("tool", "tokens", "")
MAX_TOOLS_SHOWN = 200


async def _names(repl: CommandContext) -> Sequence[Offer]:
    from ...features.mcp import servers_of

    servers = servers_of(repl.agent)
    return [(each.name, each.where) for each in servers.status()] if servers else []


@command(
    "the state of the MCP servers, and the tools of one",
    argument="[SERVER]",
    anytime=True,
    complete=_names,
    group="setup",
)
async def _mcp(repl: CommandContext, argument: str) -> None:
    from ...features.mcp import servers_of
    from ..render import render

    servers = servers_of(repl.agent)
    if servers is None:
        repl.say("no MCP server is configured: `ctxagent mcp add NAME COMMAND` adds one")
        return
    if not argument:
        rows = [_row(repl, each) for each in servers.status()]
        repl.put(render.table(rows, head=HEAD))
        return
    if argument not in servers.names:
        raise UsageError(
            f"there is no MCP server {argument}", hint=f"There are: {', '.join(servers.names)}"
        )
    tools = [*_tools(servers, argument)]
    repl.put(render.table(tools[:MAX_TOOLS_SHOWN], head=TOOLS_HEAD, wrap=False))
    if len(tools) > MAX_TOOLS_SHOWN:
        repl.say(f"and {len(tools) - MAX_TOOLS_SHOWN:,} more")


def _row(repl: CommandContext, server: "ServerStatus") -> tuple[str, ...]:
    from ...compaction.breakdown import break_down

    filled = break_down(repl.agent.view, repl.agent.model.current_window()).parts
    tokens = sum(part.tokens for part in filled if part.of == f"mcp {server.name}")
    facts = [server.error or server.where, *([server.protocol] if server.protocol else [])]
    if server.notes:
        facts.append(f"{count_of(len(server.notes), 'note')}: ctxagent mcp get {server.name}")
    counts = (server.tools, server.prompts, server.resources, server.calls)
    numbers = [f"{count:,}" for count in counts]
    return (server.name, server.state, *numbers, f"{tokens:,} tokens", " · ".join(facts))


def _tools(servers: "McpServers", server: str) -> Sequence[tuple[str, str, str]]:
    return [
        (name, f"{tokens:,}", description) for name, tokens, description in servers.tools(server)
    ]
