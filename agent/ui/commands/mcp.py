"""/mcp: the MCP servers of the session."""

from ...errors import ToolError, UsageError
from . import completions
from .command_context import CommandContext
from .registry import command

HEAD = ("server", "state", "tools", "where")


@command(
    "MCP servers and their tools, or start one anew",
    argument="[NAME | start NAME]",
    anytime=True,
    complete=completions.mcp_servers,
)
async def _mcp(repl: CommandContext, argument: str) -> None:
    servers = repl.agent.mcp
    if servers is None:
        repl.say("no MCP server is set up; `ctxagent mcp add NAME -- COMMAND` adds one")
        return
    verb, _, rest = argument.partition(" ")
    name = rest.strip() if verb == "start" else argument.strip()
    chosen = [each for each in servers.connections if each.config.name == name or not name]
    if not chosen:
        known = ", ".join(each.config.name for each in servers.connections)
        raise UsageError(f"there is no MCP server {name!r}", hint=f"There are: {known}.")
    if verb == "start":
        for each in chosen:
            await each.close()
            try:
                await each.ready()
            except ToolError as error:
                raise UsageError(str(error)) from error
    rows = [
        (
            each.config.name,
            f"{each.state}: {each.error}" if each.error else each.state,
            f"{len(each.tools):,}" + (f" ({each.left_out:,} left out)" if each.left_out else ""),
            each.config.where,
        )
        for each in chosen
    ]
    repl.show_table(rows, HEAD, wrap=True)
    if name:
        repl.say("\n".join(found.line for found in servers.tools_of(name)) or "no tools are known")
