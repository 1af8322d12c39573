"""The connection to one server: connect, list its tools, call them, and reconnect after its end.

A call is sent once. If no answer comes (the server ended, or a timeout), the error says that the
tool may have acted. The next call restarts the server.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from ....tools.system.files import make_private_folder, replace_file
from ....tools.system.phrasing import shorten
from ...config.start_gate import StartGate
from ...errors import ToolError
from ...version import __version__
from .catalog import Catalog, CatalogReader, ListedTool
from .config import ServerConfig
from .http import http, sse
from .inputs import Respondent, elicit, sample
from .transport import BoundedStream, ConnectionEnd, stdio

if TYPE_CHECKING:
    import mcp_types as types
    from mcp.client.session import ClientSession
    from mcp.shared.exceptions import MCPError
    from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher

    from .answers import AnswerDispatcher


MAX_ROUNDS = 10  # of further questions per call
MIN_POLL_S, POLL_S, MAX_POLL_S = 0.05, 1.0, 30.0  # between two polls of a task
CANCEL_TIMEOUT_S = 5.0
TASK_TTL_MS = 24 * 3600 * 1000
_OPEN = ("working",)  # states of a task without a result


async def call_tool(
    session: "ClientSession",
    name: str,
    arguments: Mapping[str, Any],
    respondent: Respondent | None,
    server: str,
    dispatcher: "JSONRPCDispatcher[Any] | None" = None,
) -> "types.CallToolResult":
    """Call a tool once, as a task if a `dispatcher` is given. Raises ToolError, and MCPError for an
    error from the server.
    """
    import mcp_types as types
    from mcp.shared.exceptions import MCPError

    given: dict[str, Any] = {"name": name, "arguments": dict(arguments)}
    try:
        if dispatcher is not None:
            return await _as_task(session, dispatcher, given)
        result = await _sent(session, given)
        for _ in range(MAX_ROUNDS):
            if not isinstance(result, types.InputRequiredResult):
                return result
            result = await _sent(session, {**given, **await _answers(session, result)})
    except MCPError as error:
        if error.code != types.URL_ELICITATION_REQUIRED or respondent is None:
            raise
        raise ToolError(await _ask_to_visit(error, respondent, server)) from None
    raise ToolError(f"The tool asked further questions more than {MAX_ROUNDS} times.")


async def _sent(
    session: "ClientSession", given: Mapping[str, Any]
) -> "types.CallToolResult | types.InputRequiredResult":
    import mcp_types as types
    from pydantic import TypeAdapter

    answer: TypeAdapter[Any] = TypeAdapter(types.CallToolResult | types.InputRequiredResult)
    request = types.CallToolRequest(params=types.CallToolRequestParams(**given))
    return cast(
        "types.CallToolResult | types.InputRequiredResult",
        await session.send_request(request, answer),
    )


async def _answers(session: "ClientSession", asked: "types.InputRequiredResult") -> dict[str, Any]:
    """Return the parameters of the next round: the answers to the server's questions. Raises
    MCPError for a refused question.
    """
    import mcp_types as types
    from mcp.client.session import ClientRequestContext
    from mcp.shared.exceptions import MCPError

    answers = dict[str, Any]()
    for key, request in (asked.input_requests or {}).items():
        context = ClientRequestContext(session=session, request_id=key)
        answer = await session.dispatch_input_request(context, request)
        if isinstance(answer, types.ErrorData):
            raise MCPError.from_error_data(answer)
        answers[key] = answer
    if not answers:
        await asyncio.sleep(MIN_POLL_S)
    return {"input_responses": answers or None, "request_state": asked.request_state}


async def _as_task(
    session: "ClientSession", dispatcher: "JSONRPCDispatcher[Any]", given: Mapping[str, Any]
) -> "types.CallToolResult":
    """Call a tool as a task and wait for its result. Cancel the task if this call is cancelled."""
    import mcp_types as types
    from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER

    params = {**given, "task": {"ttl": TASK_TTL_MS}}
    headers = {MCP_PROTOCOL_VERSION_HEADER: session.protocol_version or ""}
    # `ClientSession` accepts only a tool result as the answer to a call.
    raw = await dispatcher.send_raw_request("tools/call", params, {"headers": headers})
    created = types.CreateTaskResult.model_validate(raw).task
    id = created.task_id
    try:
        status, pause = created.status, created.poll_interval
        while status in _OPEN:
            await asyncio.sleep(min(max((pause or POLL_S * 1000) / 1000, MIN_POLL_S), MAX_POLL_S))
            asked = types.GetTaskRequest(params=types.GetTaskRequestParams(task_id=id))
            now = await session.send_request(asked, types.GetTaskResult)
            status, pause = now.status, now.poll_interval
        payload = types.GetTaskPayloadRequest(params=types.GetTaskPayloadRequestParams(task_id=id))
        return await session.send_request(payload, types.CallToolResult)
    except asyncio.CancelledError:
        with suppress(Exception):
            await asyncio.wait_for(asyncio.shield(_cancelled(session, id)), CANCEL_TIMEOUT_S)
        raise


async def _cancelled(session: "ClientSession", id: str) -> None:
    import mcp_types as types

    request = types.CancelTaskRequest(params=types.CancelTaskRequestParams(task_id=id))
    await session.send_request(request, types.CancelTaskResult)


async def _ask_to_visit(error: "MCPError", respondent: Respondent, server: str) -> str:
    """Ask the user to visit the pages that the server requires. Return the message for the
    model.
    """
    import mcp_types as types

    asked = types.ElicitationRequiredErrorData.model_validate(error.data or {"elicitations": []})
    for each in asked.elicitations:
        if (await elicit(server, each, respondent)).action != "accept":
            return "The server did nothing: the user did not agree to visit a page that it needs."
    return (
        "The server did nothing yet: the user was shown a page to visit first. Call it again once "
        "they say that this is done."
    )


State = Literal["starting", "ready", "failed", "ended"]

PROBE_TIMEOUT_S = 5.0  # for `discover` of the newest protocol, before the handshake
CHECK_TIMEOUT_S = 5.0  # for a ping, after the server refused a request in a session
RELIST_PAUSE_S = 1.0  # after a notification: many lists may have changed at once
END_TIMEOUT_S = 15.0  # for the end of a request or of a connection
MAX_REASON_CHARS = 600
CONFINED_HINT = (
    "It runs in the sandbox; .mcp.json can declare its rights: "
    '"network": true, "write": [FOLDER], "outside": true'
)

UNKNOWN = " Whether it has acted is not known; it was not sent again."
NOT_RUN = " It has not run this: call it again."

T = TypeVar("T")


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
        folder: Path | None,
        show: Callable[[str], None] | None,
    ) -> None:
        self.config = config
        self._folder, self._show = folder, show
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
        self._reported = set[str]()  # notes on the lists
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
        exit_info.unaddressed = ""
        asking = asyncio.ensure_future(question(session))
        try:
            await self._wait_for(asking)
        finally:
            is_late = not asking.done()
            asking.cancel()
        unknown = UNKNOWN if may_act else ""
        if is_late:  # wait until the cancellation is sent to the server
            await asyncio.wait([asking], timeout=END_TIMEOUT_S)
            why = f"gave no answer in {self._call_timeout:g} s"
            if exit_info.unaddressed:
                why = f"{why}, only an error without a request ID: {exit_info.unaddressed}"
            raise ToolError(f"The MCP server {self.name} {why}.{unknown}")
        if asking.cancelled():
            raise ToolError(f"The MCP server {self.name} has ended meanwhile.{unknown}")
        if (error := asking.exception()) is None:
            return asking.result()
        if isinstance(error, ToolError):
            raise error
        from .answers import NoAnswer, describe, is_connection_lost

        if exit_info.is_doubted and not exit_info.is_refused:
            await self._check_session(session, exit_info)
        if not exit_info.is_refused and not is_connection_lost(error):
            unknown = f".{unknown}" if unknown and isinstance(error, NoAnswer) else ""
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

    async def _roots(self, context: Any) -> Any:
        import mcp_types as types
        from pydantic import FileUrl

        root = types.Root(uri=FileUrl(self._cwd.as_uri()), name=self._cwd.name)
        return types.ListRootsResult(roots=[root])

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
                partial(kind, self.config, tokens=self._folder, show=self._show) for kind in kinds
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
                list_roots_callback=self._roots,
            )
        )
        over_http = bool(self.config.url) and not self.config.is_sse
        probe = (PROBE_TIMEOUT_S if self._show is None else None) if over_http else 0
        await _negotiate(session, probe)
        self.protocol = session.protocol_version or ""
        await self._read_catalog(session)
        return session

    def _note_end(self, running: "asyncio.Task[None]") -> None:
        """Record and report why the connection ended."""
        was_ready, self._session = self._session is not None, None
        self.state = "ended" if was_ready else "failed"
        try:
            if not running.cancelled():
                self._report_end(running.exception(), was_ready)
        finally:
            self._settled.set()

    def _report_end(self, error: BaseException | None, was_ready: bool) -> None:
        from .answers import describe

        error, reason = _first(error), self._exit_info.reason
        if isinstance(error, TimeoutError):
            reason = f"it did not answer in {self._start_timeout:g} s"
        elif error is not None and not reason:
            reason = describe(error).rstrip(".")
        if said := self._exit_info.stderr_reason:
            reason = f"{reason} (it said: {said})"
        if self._is_confined and not was_ready:
            reason = f"{reason}. {CONFINED_HINT}"
        self.error = shorten(reason, MAX_REASON_CHARS)
        if kept := self._kept_stderr():
            self.error = f"{self.error}; its whole output: {kept}"
        if not self._closing:
            what = "has ended" if was_ready else "is not available"
            again = "; the next call starts it again" if was_ready else ""
            self._report(f"the MCP server {self.name} {what}: {self.error}{again}")

    def _kept_stderr(self) -> Path | None:
        """Write output of several lines to a file. Return its path."""
        output = self._exit_info.stderr
        if self._folder is None or len(output.split("\n")) < 3:
            return None
        path = self._folder / f"{self.name}.stderr.txt"
        try:
            make_private_folder(path.parent)
            replace_file(path, output.encode("utf-8", "replace"))
        except OSError:
            return None
        return path

    async def refresh(self) -> None:
        """List the server's tools, prompts and resources now. Raises ToolError."""
        await self.ready()
        if self._session is not None:
            await self._list_again(self._session, 0)

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
            self._relisting = asyncio.create_task(self._list_again(self._session, RELIST_PAUSE_S))

    async def _list_again(self, session: "ClientSession", pause: float) -> None:
        await asyncio.sleep(pause)
        listing = asyncio.ensure_future(self._read_catalog(session))
        await asyncio.wait([listing], timeout=self._start_timeout)
        if listing.done():
            listing.exception()  # a lost connection is reported by its end
        listing.cancel()

    async def _read_catalog(self, session: "ClientSession") -> None:
        """Read the lists of the server. Report each new note once."""
        self.catalog = await CatalogReader(self.name, session, self.catalog).read()
        for note in self.catalog.notes:
            if note not in self._reported:
                self._reported.add(note)
                self._report(f"the MCP server {self.name}: {note}")


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

    from .answers import is_connection_lost

    if probe == 0:
        try:
            await session.initialize()
        except MCPError as refused:
            if is_connection_lost(refused):
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
            if is_connection_lost(error):
                raise
    if session.protocol_version is None:
        await session.initialize()


def _first(error: BaseException | None) -> BaseException | None:
    """Return the first error of a group, or the error itself."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
