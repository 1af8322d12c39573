"""The connection to one server: connect, list its tools, call them, and reconnect after its end.

A call is sent once. If no answer comes (the server ended, or a timeout), the error says that the
tool may have acted. The next call restarts the server.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ....tools.system.shorten import shorten
from ....tools.system.unicode import clean
from ...config.start_gate import StartGate
from ...errors import ToolError
from ...lazy import dataclass
from ...version import __version__
from .calls import call_tool
from .config import ServerConfig, plain_name
from .http import http, sse
from .inputs import Respondent, elicit, sample
from .transport import BoundedStream, ConnectionEnd, stdio

if TYPE_CHECKING:
    import mcp_types as types
    from mcp.client.session import ClientSession

    from .answers import AnswerDispatcher

State = Literal["starting", "ready", "failed", "ended"]

MAX_TOOLS = 10_000  # of one server
MAX_LISTED = 1_000  # prompts, and resources, of one server
MAX_PAGES = 1_000
MAX_SCHEMA_CHARS = 100_000  # of one tool, as JSON
MAX_CATALOG_CHARS = 32_000_000  # of all tools of one server, as JSON
MAX_DESCRIPTION_CHARS = 4_000
MAX_INSTRUCTION_CHARS = 2_000
MAX_URI_CHARS = 500
READ_RESOURCE = "read_resource"  # tool that we add to each server with resources
RESOURCE_SCHEMA = {
    "type": "object", "properties": {"uri": {"type": "string"}}, "required": ["uri"],
}  # fmt: skip
PROBE_TIMEOUT_S = 5.0  # for `discover` of the newest protocol, before the handshake
CHECK_TIMEOUT_S = 5.0  # for a ping, after the server refused a request in a session
END_TIMEOUT_S = 15.0  # for the end of a request or of a connection
MAX_ERROR_CHARS = 300
CONFINED_HINT = (
    "It runs in the sandbox; .mcp.json can declare its rights: "
    '"network": true, "write": [FOLDER], "outside": true'
)

UNKNOWN = " Whether it has acted is not known; it was not sent again."
NOT_RUN = " It has not run this: call it again."

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ListedTool:
    """A tool from the list of its server."""

    name: str  # mcp__SERVER__TOOL
    own_name: str  # name on the server; "" for the tool that reads resources
    description: str
    schema: Mapping[str, Any]  # JSON schema of its arguments
    size: int  # characters of name, description and schema as JSON
    needs_task: bool = False  # True if the tool can be called only as a task


@dataclass(frozen=True, slots=True)
class ListedPrompt:
    """A prompt from the list of its server."""

    name: str  # for /SERVER:NAME
    own_name: str
    description: str
    arguments: tuple[tuple[str, bool], ...]  # (name, is required)


@dataclass
class Catalog:
    """The tools, prompts and resources of a server, within limits."""

    instructions: str = ""
    tools: dict[str, ListedTool] = field(default_factory=dict)
    prompts: dict[str, ListedPrompt] = field(default_factory=dict)
    resources: dict[str, str] = field(default_factory=dict)  # names by URI
    left_out: int = 0  # number of tools beyond the limits


class Connection:
    """A connection to a server. Use methods only in the loop that it runs in; attributes can be
    read anywhere.
    """

    def __init__(
        self,
        config: ServerConfig,
        *,
        env: Mapping[str, str],
        cwd: Path,
        starts: StartGate,
        start_timeout: float,
        call_timeout: float,
        report: Callable[[str], None],
        tokens: Path | None,
        show: Callable[[str], None] | None,
    ) -> None:
        self.config = config
        self._tokens, self._show = tokens, show
        self.state: State = "starting"
        self.error = ""
        self.protocol = ""
        self.catalog = Catalog()
        self.calls = 0  # number of calls sent
        self._env, self._cwd, self._starts = env, cwd, starts
        self._start_timeout = start_timeout
        self._call_timeout = config.timeout or call_timeout
        self._report = report
        self._session: ClientSession | None = None
        self._dispatcher: AnswerDispatcher | None = None
        self._running: asyncio.Task[None] | None = None
        self._settled = asyncio.Event()  # set when the server is ready or has failed
        self._relisting: asyncio.Task[None] | None = None
        self._exit_info = ConnectionEnd()
        self._closing = self._is_confined = False
        self._respondents: list[Respondent | None] = []  # of the running calls
        self._inputs = set[asyncio.Future[Any]]()  # pending answers to the server's questions

    @property
    def name(self) -> str:
        return self.config.name

    def start(self) -> None:
        """Start to connect, unless the connection is open or being opened."""
        if self._running is None or self._running.done():
            self.state, self.error = "starting", ""
            self._settled.clear()
            self._running = asyncio.create_task(self._serve(), name=f"mcp {self.name}")
            self._running.add_done_callback(self._note_end)

    async def settled(self) -> None:
        """Wait until the server is ready or has failed."""
        await self._settled.wait()

    async def ready(self) -> None:
        """Wait for the connection, and connect if needed. Raises ToolError."""
        self.start()
        await self._settled.wait()
        if self._session is None:
            raise ToolError(f"The MCP server {self.name} is not available: {self.error}")

    async def close(self) -> None:
        """Stop the server."""
        self._closing = True
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running], timeout=END_TIMEOUT_S)

    async def call(
        self, tool: ListedTool, arguments: Mapping[str, Any], respondent: Respondent | None
    ) -> "types.CallToolResult":
        """Call a tool once. The respondent answers questions of the server during the call. Raises
        ToolError.
        """
        await self.ready()
        self.calls += 1
        self._respondents.append(respondent)
        try:
            return await self.ask(
                lambda session: call_tool(
                    session,
                    tool.own_name,
                    arguments,
                    respondent,
                    self.name,
                    self._dispatcher if tool.needs_task else None,
                ),
                may_act=True,
            )
        finally:
            self._respondents.remove(respondent)
            for each in () if self._respondents else self._inputs:
                each.cancel()

    async def ask(
        self, question: "Callable[[ClientSession], Awaitable[T]]", *, may_act: bool = False
    ) -> T:
        """Send a request and return the answer. Raises ToolError. If the request `may_act`, the
        error says that the server may have executed it.
        """
        await self.ready()
        session, exit_info = self._session, self._exit_info
        assert session is not None
        asking = asyncio.ensure_future(question(session))
        try:
            await self._wait_for(asking)
        finally:
            is_late = not asking.done()
            asking.cancel()
        unknown = UNKNOWN if may_act else ""
        if is_late:  # wait until the cancellation is sent to the server
            await asyncio.wait([asking], timeout=END_TIMEOUT_S)
            seconds = f"{self._call_timeout:g} s"
            raise ToolError(f"The MCP server {self.name} gave no answer in {seconds}.{unknown}")
        if asking.cancelled():
            raise ToolError(f"The MCP server {self.name} has ended meanwhile.{unknown}")
        if (error := asking.exception()) is None:
            return asking.result()
        if isinstance(error, ToolError):
            raise error
        if exit_info.is_doubted and not exit_info.is_refused:
            await self._check_session(session, exit_info)
        if not exit_info.is_refused and not _is_connection_lost(error):
            unknown = f".{unknown}" if unknown and _is_unanswered(error) else ""
            raise ToolError(f"The MCP server {self.name} answers: {describe(error)}{unknown}")
        if self._running is not None:
            await asyncio.wait([self._running], timeout=END_TIMEOUT_S)
        why = self.error or exit_info.reason
        unknown = NOT_RUN if exit_info.is_refused else unknown
        raise ToolError(f"The MCP server {self.name} has ended: {why}.{unknown}")

    async def _check_session(self, session: "ClientSession", exit_info: ConnectionEnd) -> None:
        """Ask the server for a sign of life after it refused a request. A server that also refuses
        this one does not know the session; the transport notes it.
        """
        exit_info.is_doubted = False
        asking = asyncio.ensure_future(session.send_ping())
        await asyncio.wait([asking], timeout=CHECK_TIMEOUT_S)
        asking.cancel()
        with suppress(Exception, asyncio.CancelledError):
            await asking

    async def _wait_for(self, asking: "asyncio.Future[Any]") -> None:
        """Wait for an answer until the call timeout. The timeout restarts after each question to
        the user.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + self._call_timeout
        while not asking.done() and loop.time() < end:
            await asyncio.wait([asking], timeout=end - loop.time())
            if self._inputs and not asking.done():
                waited = [asking, *self._inputs]
                await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
                end = loop.time() + self._call_timeout

    async def _elicit(self, context: Any, params: Any) -> Any:
        import mcp_types as types

        decline = types.ElicitResult(action="decline")
        return await self._answered(elicit, params, decline)

    async def _sample(self, context: Any, params: Any) -> Any:
        import mcp_types as types

        return await self._answered(sample, params, types.ErrorData(code=-1, message="Refused."))

    async def _answered(
        self, answer: Callable[[str, Any, Respondent], Coroutine[Any, Any, T]], params: Any, no: T
    ) -> T:
        """Return the answer to a question of the server. Return `no` outside of a call, or if the
        call ends before the answer.
        """
        respondent = self._respondents[-1] if self._respondents else None
        if respondent is None:
            return no
        answering = asyncio.ensure_future(answer(self.name, params, respondent))
        self._inputs.add(answering)
        try:
            await asyncio.wait([answering])
        finally:
            answering.cancel()
            self._inputs.discard(answering)
        return no if answering.cancelled() else answering.result()

    async def _serve(self) -> None:
        """Keep the connection open until the server ends."""
        async with AsyncExitStack() as stack:
            self._session = await self._connected(stack)
            exit_info, self.state = self._exit_info, "ready"
            self._settled.set()
            await exit_info.ended.wait()
            if not exit_info.reason:
                exit_info.reason = "it closed the connection"

    async def _connected(self, stack: AsyncExitStack) -> "ClientSession":
        """Open the connection, by each transport that the server may use. Raises TimeoutError and
        the errors of the transport.
        """
        opened = list[Callable[[ConnectionEnd], Any]]()
        if self.config.url:
            kinds = (sse,) if self.config.is_sse else (http, sse)
            opened = [
                partial(kind, self.config, tokens=self._tokens, show=self._show) for kind in kinds
            ]
        else:
            cleared = await self._starts.clear(self.config.program(self._env, self._cwd))
            self._is_confined = cleared.enclose is not None
            opened = [partial(stdio, cleared)]
        import httpx2

        failed: tuple[Exception, ConnectionEnd] | None = None  # the first failure
        async with asyncio.timeout(self._start_timeout):
            for transport in opened:
                exit_info = self._exit_info = ConnectionEnd()
                try:
                    async with AsyncExitStack() as own:
                        session = await self._opened(own, transport(exit_info), exit_info)
                        stack.push_async_exit(own.pop_all())
                        return session
                except (ExceptionGroup, OSError, httpx2.HTTPError) as error:
                    failed = failed or (error, exit_info)
                    if not exit_info.is_deprecated:
                        break
        assert failed is not None
        self._exit_info = failed[1]
        raise failed[0]

    async def _opened(
        self, stack: AsyncExitStack, transport: Any, exit_info: ConnectionEnd
    ) -> "ClientSession":
        """Open a session over a transport, and list the server's tools, prompts and resources."""
        import mcp_types as types
        from mcp.client.session import ClientSession

        from .answers import AnswerDispatcher

        read, write = await stack.enter_async_context(transport)
        self._dispatcher = AnswerDispatcher(BoundedStream(read, exit_info), write)
        session = await stack.enter_async_context(
            ClientSession(
                dispatcher=self._dispatcher,
                client_info=types.Implementation(name="ctxagent", version=__version__),
                message_handler=self._on_message,
                elicitation_callback=self._elicit,
                sampling_callback=self._sample,
            )
        )
        over_http = bool(self.config.url) and not self.config.is_sse
        probe = (PROBE_TIMEOUT_S if self._show is None else None) if over_http else 0
        await _negotiate(session, probe)
        self.protocol = session.protocol_version or ""
        self.catalog = await _list(self.name, session)
        return session

    def _note_end(self, running: "asyncio.Task[None]") -> None:
        """Record and report why the connection ended."""
        was_ready, self._session = self._session is not None, None
        self.state = "ended" if was_ready else "failed"
        if not running.cancelled():
            error, reason = _first(running.exception()), self._exit_info.reason
            if isinstance(error, TimeoutError):
                reason = f"it did not answer in {self._start_timeout:g} s"
            elif error is not None and not reason:
                reason = describe(error)
            if said := self._exit_info.last_stderr_line:
                reason = f"{reason} (it said: {said})"
            if self._is_confined and not was_ready:
                reason = f"{reason}. {CONFINED_HINT}"
            self.error = shorten(reason, 2 * MAX_ERROR_CHARS)
            if not self._closing:
                what = "has ended" if was_ready else "is not available"
                again = "; the next call starts it again" if was_ready else ""
                self._report(f"the MCP server {self.name} {what}: {self.error}{again}")
        self._settled.set()

    async def _on_message(self, message: Any) -> None:
        """List the server's tools, prompts and resources again after a notification that they
        changed.
        """
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


async def _negotiate(session: "ClientSession", probe: float | None) -> None:
    """Negotiate a protocol version. With a `probe` of 0, use the handshake, and `discover` of the
    newest protocol if the server refuses the handshake. Otherwise send `discover` first, for up to
    `probe` seconds (None: no limit), and fall back to the handshake.

    Use 0 over stdin: an unexpected request there may start work or stay unanswered. Raises the
    errors of the SDK.
    """
    import anyio
    from mcp.shared.exceptions import MCPError
    from pydantic import ValidationError

    if probe == 0:
        try:
            await session.initialize()
        except MCPError as refused:
            if _is_connection_lost(refused):
                raise
            try:
                await session.discover()
            except (MCPError, ValidationError, RuntimeError):
                raise refused from None
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
    """List the tools, prompts and resources of a server, within limits."""
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
            needs_task = bool(tool.execution) and tool.execution.task_support == "required"
            catalog.tools[name] = ListedTool(name, tool.name, about, schema, chars, needs_task)
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
    """Yield the items of a paginated list, at most `most`. Stop when a cursor repeats."""
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
    """Return True if the error is the session's own: it is closed."""
    from mcp.shared.exceptions import MCPError

    from .answers import NoAnswer, ServerError

    return isinstance(error, MCPError) and not isinstance(error, ServerError | NoAnswer)


def _is_unanswered(error: BaseException) -> bool:
    from .answers import NoAnswer

    return isinstance(error, NoAnswer)


def _first(error: BaseException | None) -> BaseException | None:
    """Return the first error of a group, or the error itself."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def describe(error: BaseException) -> str:
    """Return an error message on one line, without terminal control characters."""
    from mcp.shared.exceptions import MCPError
    from pydantic import ValidationError

    if isinstance(error, MCPError):
        text = error.message
    elif isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        text = f"an invalid answer: {f'{where}: ' if where else ''}{first['msg']}"
    else:
        text = str(error) or type(error).__name__
    return shorten(" ".join(clean(text).split()), MAX_ERROR_CHARS)
