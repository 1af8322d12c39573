"""The MCP servers of a conversation: the tool Mcp and the servers' own tools."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ...tools.base import Tool
from ...tools.mcp import McpTool
from ..events import Emit, Notice, waiting
from ..launch import LaunchOptions
from ..loop.agent import AgentState
from ..loop.feature import Feature
from ..loop.session_handle import SessionHandle

if TYPE_CHECKING:
    from ..extensions.mcp.servers import McpServers
    from .mcp_respondent import McpRespondent


def servers_of_session(
    launch: LaunchOptions, tools: Sequence[Mapping[str, Any]]
) -> "McpServers | None":
    """Return the MCP servers of a session that has recorded these tools. A session that began with
    the tool Mcp keeps the tool, also if no server is configured any more."""
    if launch.mcp is not None or all(tool.get("name") != McpTool.name for tool in tools):
        return launch.mcp
    from ..extensions.mcp.servers import McpServers

    return McpServers((), env=launch.environ, cwd=launch.cwd)


def servers_of(agent: AgentState) -> "McpServers | None":
    """Return the MCP servers that a conversation can call, if there are any."""
    feature = agent.features.find(McpFeature)
    return feature.servers if feature else None


def report_problems(servers: "McpServers | None", emit: Emit) -> None:
    """Show problems of servers as warnings. Servers have their own thread, so the event loop of the
    caller shows each warning, if there is a loop."""
    if servers is None:
        return
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        servers.listen(lambda text: emit(Notice("warning", text)))
        return

    def tell(text: str) -> None:
        with suppress(RuntimeError):  # the loop may end first
            loop.call_soon_threadsafe(emit, Notice("warning", text))

    servers.listen(tell)


class McpFeature(Feature):
    """The MCP servers that a conversation can call."""

    name = "mcp"

    def __init__(
        self,
        handle: SessionHandle,
        servers: "McpServers",
        respondent: "McpRespondent | None" = None,
    ) -> None:
        """`respondent` answers what servers ask for during calls."""
        super().__init__(handle)
        self.servers = servers
        servers.respondent = respondent

    def tools(self) -> list[Tool[Any]]:
        """Return the tool Mcp."""
        return [self.servers.tool()]

    async def prepare(self) -> None:
        """Wait for the servers that the list of tools needs, and add their tools to it."""
        handle = self.handle
        with waiting(handle.emit, "MCP servers that are needed from the start"):
            if handle.ask is None:
                await self.servers.wait_for(self.servers.needed)
            loaded = await self.servers.tools_at_start(handle.view.tools)
        known = {tool.name for tool in handle.tools}
        handle.tools += [tool for tool in loaded if tool.name not in known]
