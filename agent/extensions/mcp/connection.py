"""One server: connected, asked what it offers, called; and connected again once it has ended.

A call is sent once. Where its answer does not come (the server ended, or took too long), the
caller is told that it may have acted; only the next call starts the server again.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ....tools.system.shorten import shorten
from ....tools.system.unicode import clean
from ...errors import ToolError
from ...lazy import dataclass
from ...version import __version__
from ..server_process import Complaint
from .config import ServerConfig, plain_name
from .transport import BoundedStream, http, stdio

if TYPE_CHECKING:
    import mcp_types as types
    from mcp.client.session import ClientSession

State = Literal["starting", "ready", "failed", "ended"]

MAX_TOOLS = 10_000  # of one server
MAX_LISTED = 1_000  # prompts, resources and templates of one server, each
MAX_PAGES = 1_000
MAX_SCHEMA_CHARS = 100_000  # of one tool, as JSON
MAX_CATALOG_CHARS = 32_000_000  # of all that one server says of its tools
MAX_DESCRIPTION_CHARS = 4_000
MAX_INSTRUCTION_CHARS = 2_000
MAX_URI_CHARS = 500
READ_RESOURCE = "read_resource"  # a tool of ours that each server with resources has
RESOURCE_SCHEMA = {
    "type": "object", "properties": {"uri": {"type": "string"}}, "required": ["uri"],
}  # fmt: skip
PROBE_TIMEOUT_S = 5.0  # for the newest protocol's question, before the handshake
MAX_ERROR_CHARS = 300

UNKNOWN = " Whether it has acted is not known; it was not sent again."

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ListedTool:
    """A tool as its server lists it."""

    name: str  # mcp__SERVER__TOOL
    own_name: str  # as its server calls it; "" for the reading of resources
    description: str
    schema: Mapping[str, Any]  # JSON schema of its arguments
    size: int  # characters of all that, as JSON


@dataclass(frozen=True, slots=True)
class ListedPrompt:
    """A prompt as its server lists it."""

    name: str  # for /SERVER:NAME
    own_name: str
    description: str
    arguments: tuple[tuple[str, bool], ...]  # names, each with whether it is required


@dataclass
class Catalog:
    """What a server offers, within bounds."""

    instructions: str = ""
    tools: dict[str, ListedTool] = field(default_factory=dict)
    prompts: dict[str, ListedPrompt] = field(default_factory=dict)
    resources: dict[str, str] = field(default_factory=dict)  # names by URI
    left_out: int = 0  # tools beyond the bounds


class Connection:
    """A server and what is known of it. All but the attributes is for the loop that it runs in."""

    def __init__(
        self,
        config: ServerConfig,
        *,
        env: Mapping[str, str],
        cwd: Path,
        start_timeout: float,
        call_timeout: float,
        tell: Callable[[str], None],
        tokens: Path | None,
        show: Callable[[str], None] | None,
    ) -> None:
        self.config = config
        self._tokens, self._show = tokens, show
        self.state: State = "starting"
        self.error = ""
        self.protocol = ""
        self.catalog = Catalog()
        self.calls = 0  # that were sent
        self._env, self._cwd = env, cwd
        self._start_timeout = start_timeout
        self._call_timeout = config.timeout or call_timeout
        self._tell = tell
        self._session: ClientSession | None = None
        self._running: asyncio.Task[None] | None = None
        self._settled = asyncio.Event()  # it is ready, or has failed
        self._relisting: asyncio.Task[None] | None = None
        self._complaint = Complaint()
        self._closing = False

    @property
    def name(self) -> str:
        return self.config.name

    def start(self) -> None:
        """Begin to connect, unless that goes on already or is done."""
        if self._running is None or self._running.done():
            self.state, self.error = "starting", ""
            self._settled.clear()
            self._running = asyncio.create_task(self._serve(), name=f"mcp {self.name}")
            self._running.add_done_callback(self._note_end)

    async def settled(self) -> None:
        """Wait until the server is ready or has failed."""
        await self._settled.wait()

    async def ready(self) -> None:
        """Connect where there is no connection, and wait for it. Raises ToolError."""
        self.start()
        await self._settled.wait()
        if self._session is None:
            raise ToolError(f"The MCP server {self.name} is not there: {self.error}")

    async def close(self) -> None:
        """End the server."""
        self._closing = True
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> "types.CallToolResult":
        """Call a tool, by the name that the server has for it, once. Raises ToolError."""
        import mcp_types as types
        from pydantic import TypeAdapter

        await self.ready()
        self.calls += 1
        request = types.CallToolRequest(
            params=types.CallToolRequestParams(name=tool, arguments=dict(arguments))
        )
        answer: TypeAdapter[Any] = TypeAdapter(types.CallToolResult | types.InputRequiredResult)
        result = await self.ask(
            lambda session: session.send_request(request, answer),
            may_act=True,
        )
        if isinstance(result, types.InputRequiredResult):
            raise ToolError("The tool asks a person for more, which is not supported here.")
        found: types.CallToolResult = result
        return found

    async def ask(
        self, question: "Callable[[ClientSession], Awaitable[T]]", *, may_act: bool = False
    ) -> T:
        """Send a request and return the answer. Raises ToolError; where it `may_act`, the error
        says what is not known."""
        await self.ready()
        session = self._session
        assert session is not None
        asking = asyncio.ensure_future(question(session))
        try:
            await asyncio.wait([asking], timeout=self._call_timeout)
        finally:
            is_late = not asking.done()
            asking.cancel()
        unknown = UNKNOWN if may_act else ""
        if is_late:
            await asyncio.wait([asking])  # the server is told that nobody waits any more
            seconds = f"{self._call_timeout:g} s"
            raise ToolError(f"The MCP server {self.name} gave no answer in {seconds}.{unknown}")
        if asking.cancelled():
            raise ToolError(f"The MCP server {self.name} has ended meanwhile.{unknown}")
        if (error := asking.exception()) is None:
            return asking.result()
        if self.config.url and str(error) == "Session terminated":  # the SDK's words for a 404
            self._complaint.reason = "it does not know this session any more"
            self._complaint.ended.set()
            unknown = " It has not run this: call it again."
        elif not _is_connection_lost(error):
            raise ToolError(f"The MCP server {self.name} answers: {describe(error)}")
        await asyncio.wait([self._running] if self._running else [asking])
        raise ToolError(f"The MCP server {self.name} has ended: {self.error}.{unknown}")

    async def _serve(self) -> None:
        """Be connected until the server ends."""
        complaint = self._complaint = Complaint()
        async with AsyncExitStack() as stack:
            session = await self._connected(stack, complaint)
            self._session, self.state = session, "ready"
            self._settled.set()
            await complaint.ended.wait()
            if not complaint.reason:
                complaint.reason = "it closed the connection"

    async def _connected(self, stack: AsyncExitStack, complaint: Complaint) -> "ClientSession":
        """Open the connection and learn what the server offers. Raises TimeoutError and whatever
        the transport raises."""
        import mcp_types as types
        from mcp.client.session import ClientSession
        from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher

        over_http = bool(self.config.url)
        transport = (
            http(self.config, complaint, self._tokens, self._show)
            if over_http
            else stdio(self.config, self._env, self._cwd, complaint)
        )
        async with asyncio.timeout(self._start_timeout):
            read, write = await stack.enter_async_context(transport)
            dispatcher: JSONRPCDispatcher[Any] = JSONRPCDispatcher(
                BoundedStream(read, complaint), write
            )
            session = await stack.enter_async_context(
                ClientSession(
                    dispatcher=dispatcher,
                    client_info=types.Implementation(name="ctxagent", version=__version__),
                    message_handler=self._hear,
                )
            )
            probe = (PROBE_TIMEOUT_S if self._show is None else None) if over_http else 0
            await _agree(session, probe)
            self.protocol = session.protocol_version or ""
            self.catalog = await _list(self.name, session)
        return session

    def _note_end(self, running: "asyncio.Task[None]") -> None:
        """Say why there is no connection any more."""
        was_ready, self._session = self._session is not None, None
        self.state = "ended" if was_ready else "failed"
        if not running.cancelled():
            error, reason = _first(running.exception()), self._complaint.reason
            if isinstance(error, TimeoutError):
                reason = f"it did not answer in {self._start_timeout:g} s"
            elif error is not None and not reason:
                reason = describe(error)
            if said := self._complaint.last_words:
                reason = f"{reason} (it said: {said})"
            self.error = shorten(reason, 2 * MAX_ERROR_CHARS)
            if not self._closing:
                what = "has ended" if was_ready else "is not there"
                again = "; the next call starts it again" if was_ready else ""
                self._tell(f"the MCP server {self.name} {what}: {self.error}{again}")
        self._settled.set()

    async def _hear(self, message: Any) -> None:
        """Ask again what the server offers when it says that this has changed."""
        import mcp_types as types

        changed = (
            types.ToolListChangedNotification
            | types.PromptListChangedNotification
            | types.ResourceListChangedNotification
        )
        idle = self._relisting is None or self._relisting.done()
        if isinstance(message, changed) and idle and self._session is not None:
            self._relisting = asyncio.create_task(self._list_again(self._session))

    async def _list_again(self, session: "ClientSession") -> None:
        await asyncio.sleep(1)  # many may have changed at once
        listing = asyncio.ensure_future(_list(self.name, session))
        await asyncio.wait([listing], timeout=self._start_timeout)
        if listing.done() and not listing.cancelled() and listing.exception() is None:
            self.catalog = listing.result()
        listing.cancel()


async def _agree(session: "ClientSession", probe: float | None) -> None:
    """Agree on a protocol: by the handshake or, where that is unknown, by the question that the
    newest has instead. With a `probe` that question comes first, for so many seconds (None: for as
    long as it takes).

    Over stdin it does not: what a server does not expect there may start what it need not, or stay
    unanswered. Raises what the SDK raises.
    """
    import anyio
    from mcp.shared.exceptions import MCPError
    from pydantic import ValidationError

    if probe == 0:
        try:
            await session.initialize()
        except MCPError as error:
            if _is_connection_lost(error):
                raise
            await session.discover()
        return
    with anyio.move_on_after(probe):
        try:
            await session.discover()
        except (MCPError, ValidationError, RuntimeError) as error:
            if _is_connection_lost(error):
                raise
    if session.protocol_version is None:
        await session.initialize()


async def _list(server: str, session: "ClientSession") -> Catalog:
    """Ask a server for all that it offers, within bounds."""
    can = session.server_capabilities
    catalog = Catalog(instructions=clean(session.instructions or "")[:MAX_INSTRUCTION_CHARS])
    size = 0
    if can and can.tools:
        async for tool in pages(session.list_tools, "tools", MAX_TOOLS):
            name = f"mcp__{server}__{plain_name(tool.name, _taken(server, catalog.tools))}"
            schema = tool.input_schema
            chars = len(json.dumps(schema, default=str))
            if chars > MAX_SCHEMA_CHARS:
                schema, chars = {"type": "object"}, 20
            about = (tool.description or tool.title or "")[:MAX_DESCRIPTION_CHARS]
            chars += len(name) + len(about)
            if len(tool.name) > MAX_DESCRIPTION_CHARS or size + chars > MAX_CATALOG_CHARS:
                catalog.left_out += 1
                continue
            size += chars
            catalog.tools[name] = ListedTool(name, tool.name, about, schema, chars)
    reader = f"mcp__{server}__{READ_RESOURCE}"
    if can and can.resources:
        about = "Reads a resource of this server."
        catalog.tools.setdefault(reader, ListedTool(reader, "", about, RESOURCE_SCHEMA, 100))
        async for resource in pages(session.list_resources, "resources", MAX_LISTED):
            uri = str(resource.uri)
            if len(uri) <= MAX_URI_CHARS:
                catalog.resources[uri] = (resource.title or resource.name)[:MAX_URI_CHARS]
    if can and can.prompts:
        async for prompt in pages(session.list_prompts, "prompts", MAX_LISTED):
            name = plain_name(prompt.name, catalog.prompts.__contains__)
            needs = [(a.name, bool(a.required)) for a in prompt.arguments or ()]
            about = (prompt.description or prompt.title or "")[:MAX_DESCRIPTION_CHARS]
            catalog.prompts[name] = ListedPrompt(name, prompt.name, about, tuple(needs[:20]))
    return catalog


def _taken(server: str, tools: Mapping[str, object]) -> Callable[[str], bool]:
    return lambda plain: f"mcp__{server}__{plain}" in tools


async def pages(
    listing: Callable[..., Awaitable[Any]], field: str, most: int
) -> AsyncIterator[Any]:
    """Yield what a server lists, page by page, as long as each page leads to another."""
    import mcp_types as types

    cursor, count, seen = None, 0, set[str]()
    for _ in range(MAX_PAGES):
        page = await listing(params=types.PaginatedRequestParams(cursor=cursor) if cursor else None)
        for item in getattr(page, field):
            if count >= most:
                return
            count += 1
            yield item
        cursor = page.next_cursor
        if not cursor or cursor in seen:
            return
        seen.add(cursor)


def _is_connection_lost(error: BaseException) -> bool:
    from mcp.shared.exceptions import MCPError
    from mcp_types import CONNECTION_CLOSED

    return isinstance(error, MCPError) and error.code == CONNECTION_CLOSED


def _first(error: BaseException | None) -> BaseException | None:
    """Return the first error of a group, or the error itself."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def describe(error: BaseException) -> str:
    """Return what went wrong on one line, without characters that act on a terminal."""
    from mcp.shared.exceptions import MCPError
    from pydantic import ValidationError

    if isinstance(error, MCPError):
        text = error.message
    elif isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        text = f"nonsense, {'.'.join(map(str, first['loc'])) or 'the answer'}: {first['msg']}"
    else:
        text = str(error) or type(error).__name__
    return shorten(" ".join(clean(text).split()), MAX_ERROR_CHARS)
