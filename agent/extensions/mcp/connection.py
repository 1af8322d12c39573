"""The connection to one MCP server. It begins when it is first needed and lasts as long as the
session; a server that has ended is started again for the next call, and no call is sent twice.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ...errors import ToolError
from .server_config import McpServerConfig
from .transport import program_transport

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import CallToolResult, Tool

START_TIMEOUT_S = 30.0
MAX_TOOLS, MAX_PAGES = 2_000, 100  # of one server; what comes beyond is left out

UNKNOWN = (
    "{tool} of the MCP server {name} gave no result: {why}. Whether it has acted is not known: "
    "look before you call it again."
)

State = Literal["not started", "starting", "ready", "failed", "off"]


class Connection:
    """A server, and what is known of it."""

    def __init__(self, config: McpServerConfig, environ: Mapping[str, str], cwd: Path) -> None:
        self.config = config
        self.state: State = "not started" if config.enabled else "off"
        self.error = ""  # why it failed
        self.tools: list[Tool] = []
        self.left_out = 0  # how many tools there are beyond
        self._environ, self._cwd = environ, cwd
        self._task: asyncio.Task[None] | None = None
        self._settled = asyncio.Event()
        self._client: Client | None = None
        self._over: Callable[[str], None] | None = None

    async def ready(self) -> None:
        """Wait until the server can be asked; start it if it does not run. Raises ToolError."""
        if self.state == "off":
            raise ToolError(f"The MCP server {self.config.name} is switched off in its file.")
        if self.state == "failed" and self._task:
            await asyncio.wait([self._task])  # it is on its way out
        if self._task is None or self._task.done():
            self.state, self.error, self._settled = "starting", "", asyncio.Event()
            self._task = asyncio.create_task(self._run(self._settled), name="mcp")
        await self._settled.wait()
        if self.state != "ready":
            raise ToolError(
                f"The MCP server {self.config.name} cannot be used: {self.error}. Go on without "
                "it, or tell the user."
            )

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> "CallToolResult":
        """Call a tool. Raises ToolError; where the server ended or was silent meanwhile, whether it
        has acted is not known."""
        from mcp import MCPError
        from mcp.types import CONNECTION_CLOSED, REQUEST_TIMEOUT

        await self.ready()
        client = self._client
        assert client is not None
        name, limit = self.config.name, self.config.timeout
        try:
            return await client.call_tool(tool, dict(arguments), read_timeout_seconds=limit)
        except MCPError as error:
            if error.error.code not in (CONNECTION_CLOSED, REQUEST_TIMEOUT):
                raise ToolError(f"The MCP server {name} refuses {tool}: {error}") from error
            if error.error.code == CONNECTION_CLOSED and self._over:
                self._over(str(error))
            raise ToolError(
                UNKNOWN.format(tool=tool, name=name, why=self.error or error)
            ) from error
        except (OSError, RuntimeError, TimeoutError, ValueError) as error:
            why = str(error) or "no answer in time"
            raise ToolError(UNKNOWN.format(tool=tool, name=name, why=why)) from error

    async def close(self) -> None:
        """End the server."""
        if self._task and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self, settled: asyncio.Event) -> None:
        from mcp import Client, MCPError

        logging.getLogger("mcp").addHandler(logging.NullHandler())
        logging.getLogger("mcp").propagate = False
        over = asyncio.Event()

        def ended(why: str) -> None:
            self.state, self.error, self._client = "failed", self.error or why, None
            over.set()

        self._over = ended
        try:
            async with contextlib.AsyncExitStack() as stack:
                async with asyncio.timeout(START_TIMEOUT_S):
                    transport = await stack.enter_async_context(self._transport(ended))
                    client = Client(
                        _Entered(transport),
                        mode="auto" if self.config.url else "legacy",
                        read_timeout_seconds=START_TIMEOUT_S,
                    )
                    await stack.enter_async_context(client)
                    self.tools, self.left_out = await _all_tools(client)
                self._client, self.state = client, "ready"
                settled.set()
                await over.wait()
        except asyncio.CancelledError:
            self.state, self._client = "not started", None
            raise
        except TimeoutError:
            ended(f"it did not answer within {START_TIMEOUT_S:g} s")
        except BaseExceptionGroup as group:
            ended(_first(group))
        except (MCPError, OSError, RuntimeError, ValueError) as error:
            ended(str(error) or type(error).__name__)
        finally:
            if self.state == "starting":
                ended("it makes no sense of the protocol")
            settled.set()

    @contextlib.asynccontextmanager
    async def _transport(self, ended: Any) -> AsyncIterator[Any]:
        config = self.config
        if config.command:
            async with program_transport(config, self._environ, self._cwd, ended) as streams:
                yield streams
            return
        from mcp.client.streamable_http import streamable_http_client
        from mcp.shared._httpx_utils import create_mcp_http_client

        async with (
            create_mcp_http_client(dict(config.headers)) as http,
            streamable_http_client(config.url, http_client=http) as streams,
        ):
            yield streams


class _Entered:
    """A transport that is open already."""

    def __init__(self, streams: Any) -> None:
        self._streams = streams

    async def __aenter__(self) -> Any:
        return self._streams

    async def __aexit__(self, *error: object) -> None: ...


async def _all_tools(client: "Client") -> "tuple[list[Tool], int]":
    """Return the tools of all pages, and how many were left out."""
    tools: list[Tool] = []
    cursor, seen = None, set[str]()
    for _ in range(MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        tools += page.tools
        cursor = page.next_cursor
        if not cursor or cursor in seen or len(tools) >= MAX_TOOLS:
            break
        seen.add(cursor)
    return tools[:MAX_TOOLS], max(0, len(tools) - MAX_TOOLS)


def _first(group: BaseException) -> str:
    while isinstance(group, BaseExceptionGroup):
        group = group.exceptions[0]
    return str(group) or type(group).__name__
