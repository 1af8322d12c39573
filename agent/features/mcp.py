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
from ..loop.interface import Feature
from ..loop.live_session import LiveSession
from ..security.program_starts import gate_of

if TYPE_CHECKING:
    from ..extensions.mcp.servers import McpServers
    from .mcp_respondent import McpRespondent


def servers_of_session(
    launch: LaunchOptions, tools: Sequence[Mapping[str, Any]]
) -> "McpServers | None":
    """Return the MCP servers of a session with these recorded tools. A session that started with
    the tool Mcp keeps it, even if no server is configured any more.
    """
    if launch.extras.mcp is not None or all(tool.get("name") != McpTool.name for tool in tools):
        return launch.extras.mcp
    from ..extensions.mcp.servers import McpServers

    return McpServers((), env=launch.places.environ, cwd=launch.places.cwd, starts=gate_of(launch))


def servers_of(agent: AgentState) -> "McpServers | None":
    """Return the MCP servers that a conversation can call, or None."""
    feature = agent.features.find(McpFeature)
    return feature.servers if feature else None


def report_problems(servers: "McpServers | None", emit: Emit) -> None:
    """Emit server problems as warnings. Servers run in a thread of their own, so emit each warning
    in the caller's event loop, if there is one.
    """
    if servers is None:
        return
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        servers.listen(lambda text: emit(Notice("warning", text)))
        return

    def tell(text: str) -> None:
        with suppress(RuntimeError):  # the loop may have ended
            loop.call_soon_threadsafe(emit, Notice("warning", text))

    servers.listen(tell)


class McpFeature(Feature):
    """The MCP servers that a conversation can call."""

    name = "mcp"

    def __init__(
        self,
        session: LiveSession,
        servers: "McpServers",
        respondent: "McpRespondent | None" = None,
    ) -> None:
        """`respondent` answers requests that servers make during calls."""
        super().__init__(session)
        self.servers = servers
        servers.respondent = respondent

    def tools(self) -> list[Tool[Any]]:
        """Return the tool Mcp."""
        return [self.servers.tool()]

    async def prepare(self) -> None:
        """Wait for the servers whose tools are needed from the start, and add their tools to the
        list.
        """
        session = self.session
        with waiting(session.emit, "MCP servers that are needed from the start"):
            if session.ask is None:
                await self.servers.wait_for(self.servers.needed)
            loaded = await self.servers.tools_at_start(session.view.tools)
        known = {tool.name for tool in session.tools}
        session.tools += [tool for tool in loaded if tool.name not in known]
